"""Compute DWARF expressions, by which call frame information says what an offset can't.

Compilers and C libraries have them for procedure linkage tables, signal handlers' callers and functions that
align their stack. Operations have the codes of section 7.7.1 of https://dwarfstd.org/doc/DWARF5.pdf.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

BREGX, PLUS_UCONST, CALL_FRAME_CFA, STACK_VALUE = 0x92, 0x23, 0x9C, 0x9F
WORD = (1 << 64) - 1
_SIGN = 1 << 63
_DEREF = 0x06
_CONSTANTS, _LITERALS, _BREG = range(0x08, 0x12), range(0x30, 0x50), range(0x70, 0x90)
_ON_STACK: dict[int, Callable[[list[int]], object]] = {
    0x12: lambda stack: stack.append(stack[-1]),  # dup
    0x13: lambda stack: stack.pop(),  # drop
    0x14: lambda stack: stack.append(stack[-2]),  # over
    0x16: lambda stack: stack.append(stack.pop(-2)),  # swap
    STACK_VALUE: lambda _: None,
}
_UNARY: dict[int, Callable[[int], int]] = {0x19: abs, 0x1F: operator.neg, 0x20: operator.invert}
_BINARY: dict[int, Callable[[int, int], int]] = {
    0x1A: operator.and_,
    0x1C: operator.sub,
    0x1E: operator.mul,
    0x21: operator.or_,
    0x22: operator.add,
    0x24: lambda left, right: left << (right & 63),
    0x25: lambda left, right: (left & WORD) >> (right & 63),
    0x26: lambda left, right: left >> (right & 63),
    0x27: operator.xor,
    0x29: operator.eq,
    0x2A: operator.ge,
    0x2B: operator.gt,
    0x2C: operator.le,
    0x2D: operator.lt,
    0x2E: operator.ne,
}

# Of each, its code and its two numbers, unsigned 64-bit.
Operations = tuple[tuple[int, int, int], ...]


def compute(operations: Operations, registers: Sequence[int], cfa: int, read: Callable[[int], int]) -> int:
    """Return the value of an expression. `read` returns the word at an address.

    Raises ValueError for an operation that isn't known here, such as a jump, IndexError for a value that
    isn't there, and what `read` does.
    """
    stack: list[int] = []
    for code, number, number2 in operations:
        if code in _BINARY:
            right = stack.pop()
            stack.append(signed(int(_BINARY[code](stack.pop(), right)) & WORD))
        elif code in _UNARY:
            stack.append(_UNARY[code](stack.pop()))
        elif code in _ON_STACK:
            _ON_STACK[code](stack)
        elif code == _DEREF:
            stack.append(signed(read(stack.pop() & WORD)))
        elif code == PLUS_UCONST:
            stack.append(signed(stack.pop() + number & WORD))
        else:
            stack.append(signed(_pushed(code, number, number2, registers, cfa) & WORD))
    return stack.pop() & WORD


def _pushed(code: int, number: int, number2: int, registers: Sequence[int], cfa: int) -> int:
    """Return the value that an operation adds. Raises ValueError and IndexError as `compute` does."""
    if code == CALL_FRAME_CFA:
        return cfa
    if code == BREGX:
        return registers[number] + number2
    if code in _BREG:
        return registers[code - _BREG.start] + number
    if code in _LITERALS:
        return code - _LITERALS.start
    if code in _CONSTANTS:
        return number
    raise ValueError(f"not a known DWARF operation: {code:#x}")


def signed(word: int) -> int:
    """Return the value of an unsigned 64-bit number as a signed one."""
    return word - ((word & _SIGN) << 1)
