"""Put the frames of Python functions into native stacks, in place of the interpreter's own frames.

The kernel's side (backends/bcc_python.py) reads at each sample which code objects the thread runs, and where
on the C stack the interpreter was entered for them. Here their names are read from the memory of the process,
a moment later: each has a fingerprint from the kernel, so that code which has gone meanwhile has no name,
rather than that of another.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pgo_agent.native.interpreters import CodeLayout, Interpreter
from pgo_agent.native.recording import Frame
from pgo_agent.stack_reader import Memory

# A frame, as the kernel's side writes it: its code object or 0, its instruction, a fingerprint of the code,
# and, if it is the first of its C function, an address in the frame of that.
_ITEM = struct.Struct("<4Q")
_WORD = (1 << 64) - 1
_TYPE, _LENGTH, _HASH, _STATE, _BYTES = 8, 16, 24, 32, 32  # offsets in objects, bytes and strings
# Bits of a string's state: one, two or four bytes a character; that these follow the header; only ASCII.
_KIND, _COMPACT, _ASCII = 0x1C, 0x20, 0x40
_CODECS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_MOST_NAME, _MOST_FILE, _MOST_TABLE = 256, 1024, 16 << 10  # characters, and bytes
_MOST_LINE = (1 << 31) - 1
_MOST_CODES, _MOST_BYTES = 20_000, 32 << 20  # of a capture
_MOST_FRAMES = 100_000  # that are kept at a time
_SHIMS = ("<shim>", "__init__")  # the files of code of the interpreter itself, for calls, in 3.12 and 3.13


@dataclass(frozen=True, slots=True, eq=False)
class PythonFrame(Frame):
    """A line of a Python function. It has no address; its symbol is as perf's trampolines name it.

    `PythonCodes` makes each once, so one is equal to itself only: stacks of many are hashed often.
    """

    file: str
    line: int
    first_line: int

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Segment(NamedTuple):
    """The Python frames of a C frame, leaf first, and an address in the stack frame of that."""

    frames: tuple[PythonFrame, ...]
    entry: int


class _Code:
    """A function: its name, its file, and the lines of its instructions."""

    def __init__(self, name: str, file: str, first_line: int, start: int, table: bytes) -> None:
        self.file = file
        self._of = name, file, first_line
        self._start = start
        self.size = 4 * (len(name) + len(file)) + len(table)
        self._starts, self._lines = array("I"), array("I")
        for offset, line in _lines(table, first_line):
            self._starts.append(offset)
            self._lines.append(max(0, min(line, _MOST_LINE)))
        self._frames: dict[int, PythonFrame] = {}

    def frame(self, instruction: int) -> PythonFrame:
        """Return the frame at an instruction, by its address."""
        before = bisect_right(self._starts, instruction - self._start)
        line = self._lines[before - 1] if before else 0
        if line not in self._frames:
            name, file, first_line = self._of
            self._frames[line] = PythonFrame(0, None, name, file, line, first_line)
        return self._frames[line]


class PythonCodes:
    """Code objects of processes, each read once, up to a bound."""

    def __init__(self) -> None:
        self._codes: dict[tuple[int, int, int], _Code | None] = {}
        self._bytes = 0
        # By process, code, instruction and fingerprint; none for the interpreter's own, None if not known.
        self._frames: dict[tuple[int, int, int, int], tuple[PythonFrame, ...] | None] = {}

    def segments(self, interpreter: Interpreter, chain: bytes) -> list[Segment] | None:
        """Return the Python frames of a thread, leaf first; None if what they are can't be known.

        `chain` is what the kernel's side wrote. Frames after the last entry are left out.
        """
        segments, frames = list[Segment](), list[PythonFrame]()
        for address, instruction, fingerprint, entry in _ITEM.iter_unpack(chain):
            if address:
                key = interpreter.pid, address, instruction, fingerprint
                if key not in self._frames:
                    if len(self._frames) >= _MOST_FRAMES:
                        self._frames.clear()
                    self._frames[key] = self._read_frame(interpreter, address, instruction, fingerprint)
                known = self._frames[key]
                if known is None:
                    return None
                frames += known
            if entry:
                segments.append(Segment(tuple(frames), entry))
                frames = []
        return segments

    def _read_frame(
        self, interpreter: Interpreter, address: int, instruction: int, fingerprint: int
    ) -> tuple[PythonFrame, ...] | None:
        key = interpreter.pid, address, fingerprint
        if key not in self._codes:
            if len(self._codes) >= _MOST_CODES or self._bytes >= _MOST_BYTES:
                return None
            read = self._codes[key] = _read_code(interpreter, address, fingerprint)
            self._bytes += read.size if read else 0
        code = self._codes[key]
        if code is None:
            return None
        return () if code.file in _SHIMS else (code.frame(instruction),)


def mixed(
    addresses: Sequence[int],
    pointers: Sequence[int],
    segments: Sequence[Segment],
    *,
    is_whole: bool,
    is_compiled: Callable[[int], bool],
) -> tuple[int | PythonFrame, ...] | None:
    """Return a stack with Python's frames in place of those of the C functions that run them, leaf first.

    `pointers` are the stack pointers at the addresses, as `Unwinder.unwind` has them. Where the stack isn't
    whole, the Python frames that are further out follow at its end. Returns None if not all segments are in C
    frames of this stack: the interpreter was about to change it. If code that `is_compiled` calls such a C
    function, that is one of perf's trampolines, which isn't needed any more.
    """
    stack = list[int | PythonFrame]()
    left = [*reversed(segments)]
    is_called = False
    for place, address in enumerate(addresses):
        end = pointers[place + 1] if place + 1 < len(pointers) else 0
        if left and pointers[place] <= left[-1].entry < end:
            stack.extend(left.pop().frames)
            is_called = True
        elif is_called and is_compiled(address):
            is_called = False
        else:
            stack.append(address)
            is_called = False
    if left and (is_whole or left[-1].entry < pointers[-1]):
        return None
    stack.extend(frame for segment in reversed(left) for frame in segment.frames)
    return tuple(stack)


def _read_code(interpreter: Interpreter, address: int, fingerprint: int) -> _Code | None:
    """Return a code object; None if there is none, or another one by now."""
    memory, layout = interpreter.memory, interpreter.codes
    try:
        if memory.live(address + _TYPE) != interpreter.code_type:
            return None
        name = _text(memory, layout, memory.live(address + layout.qualname), _MOST_NAME)
        file = _text(memory, layout, memory.live(address + layout.filename), _MOST_FILE)
        first_line = int.from_bytes(memory.read(address + layout.first_line, 4), "little")
        table = memory.live(address + layout.linetable)
        size = min(memory.live(table + _LENGTH), _MOST_TABLE)
        lines = memory.read(table + _BYTES, size)
        named = memory.live(memory.live(address + layout.qualname) + _HASH)
        if (memory.live(address + layout.linetable) * 31 + named) & _WORD != fingerprint:
            return None
    except (OSError, ValueError, OverflowError):
        return None
    return _Code(f"py::{name}:{file}", file, first_line, address + layout.instructions, lines)


def _text(memory: Memory, layout: CodeLayout, address: int, most: int) -> str:
    """Return the first `most` characters of a string. Raises OSError, or ValueError if there is none."""
    state = memory.live(address + _STATE)
    width, length = (state & _KIND) >> 2, min(memory.live(address + _LENGTH), most)
    if not state & _COMPACT or width not in _CODECS:
        raise ValueError("not a string")
    header = layout.ascii_size if state & _ASCII else layout.compact_size
    text = memory.read(address + header, length * width).decode(_CODECS[width], "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _lines(table: bytes, first_line: int) -> Iterator[tuple[int, int]]:
    """Yield offsets of instructions, and the line from there on; 0 if there is none.

    The format is https://github.com/python/cpython/blob/main/Objects/locations.md; the table may be cut off.
    """
    at = offset = 0
    line = first_line

    def number() -> int:
        nonlocal at
        value = shift = 0
        while at < len(table) and shift < 32:
            byte = table[at]
            at += 1
            value |= (byte & 0x3F) << shift
            shift += 6
            if not byte & 0x40:
                break
        return value

    while at < len(table):
        code, units = table[at] >> 3 & 0xF, (table[at] & 7) + 1
        at += 1
        match code:
            case 15:
                yield offset, 0
            case 13 | 14:
                change = number()
                line += -(change >> 1) if change & 1 else change >> 1
                for _ in range(3 if code == 14 else 0):
                    number()
                yield offset, line
            case 10 | 11 | 12:
                line += code - 10
                at += 2
                yield offset, line
            case _:
                at += 1
                yield offset, line
        offset += 2 * units
