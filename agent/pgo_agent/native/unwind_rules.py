"""Learn from a file's call frame information how the caller's registers are found at an address.

`RuleReader` asks libdw, in a process of its own (`cfi_program`), once for each part of a function. Its
answers are checked here, since the file may be hostile: anyone can have a program of their own profiled.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pgo_agent.errors import NotReadable, ToolFailed
from pgo_agent.native import dwarf_expressions as dwarf
from pgo_agent.native.dwarf_expressions import WORD
from pgo_agent.native.elf import Elf

# In DWARF's order, figure 3.36 of https://gitlab.com/x86-psABIs/x86-64-ABI: rax, rdx, rcx, rbx, rsi, rdi,
# rbp, rsp, r8 to r15, and the address of the code, rip.
REGISTERS = 17
RBX, RBP, RSP, RIP = 3, 6, 7, 16
FOLLOWED = (RBX, RBP, RSP, 12, 13, 14, 15, RIP)  # those that a function leaves to its caller as they were
_PROGRAM = Path(__file__).with_name("cfi_program.py")
_ANSWER_BYTES = 64 << 10
_ANSWER_SECONDS = 5.0
_MOST_OPERATIONS = 64
_MOST_FILES, _MOST_RULES = 256, 200_000  # 60 MB


class Rule(NamedTuple):
    """How the caller's registers are found, from `start` to `end` of a file (addresses in it).

    The canonical frame address (CFA), where the caller's stack ends, is `offset` above `register`, or what
    `cfa` computes. Registers in `saved` are at offsets from it; the places, or values, of those in `computed`
    are what expressions compute. `is_end`: there is no caller. `is_signal`: the caller was interrupted.
    """

    start: int
    end: int
    register: int = RSP
    offset: int = 0
    saved: tuple[tuple[int, int], ...] = ()
    cfa: dwarf.Operations = ()
    computed: tuple[tuple[int, dwarf.Operations], ...] = ()
    is_end: bool = False
    is_signal: bool = False


class CodeFile:
    """An executable file: its segments, and those of its rules that are known, by their addresses."""

    def __init__(self, number: int, identity: tuple[int, ...], elf: Elf) -> None:
        self.number, self.identity, self.elf = number, identity, elf
        self._starts: list[int] = []
        self._rules: list[Rule] = []

    def known(self, address: int) -> Rule | None:
        """Return the rule at an address, if it has been asked for before."""
        at = bisect_right(self._starts, address) - 1
        return self._rules[at] if at >= 0 and address < self._rules[at].end else None

    def add(self, rule: Rule) -> None:
        """Keep a rule."""
        at = bisect_right(self._starts, rule.start)
        self._starts.insert(at, rule.start)
        self._rules.insert(at, rule)


class RuleReader:
    """A process that knows libdw, and what it has said of files so far. Raises ToolFailed if it can't start.

    `is_over` says that it answers no more: its process has ended, or it has said as much as is kept. Files at
    which it ended are added to `bad`, and aren't asked for again.
    """

    def __init__(self, bad: set[tuple[int, ...]]) -> None:
        self.is_over = False
        self._bad = bad
        self._files: dict[tuple[int, ...], CodeFile | None] = {}
        self._rules = 0
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_SECONDS)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this same Python
                (sys.executable, "-I", "-S", _PROGRAM), stdin=theirs.fileno(), start_new_session=True
            )
        said = self._receive()
        if said is not True:
            self.close()
            reason = (
                f"it is not installed (Debian's package: libdw1): {said}" if said else "it does not start"
            )
            raise ToolFailed("libdw", reason)

    def close(self) -> None:
        """End the process."""
        self.is_over = True
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def file(self, path: Path, build_id: str = "") -> CodeFile | None:
        """Return the file at a path; None if it can't be read, or has another build id than this."""
        with suppress(OSError):
            # O_NONBLOCK: the path may be a FIFO.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                return self.opened(descriptor, build_id)
            finally:
                os.close(descriptor)
        return None

    def opened(self, descriptor: int, build_id: str = "") -> CodeFile | None:
        """Return the file of a descriptor, as `file` does."""
        status = os.fstat(descriptor)
        identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        if identity not in self._files:
            self._files[identity] = None
            with suppress(NotReadable):
                elf = Elf.read(Path(f"/proc/self/fd/{descriptor}"))
                new = CodeFile(len(self._files), identity, elf)
                if identity not in self._bad and self._ask(new, [], [descriptor]):
                    self._files[identity] = new
        file = self._files[identity]
        return file if file and build_id in {"", file.elf.build_id} else None

    def rule(self, file: CodeFile, offset: int) -> Rule | None:
        """Return the rule at an offset of a file; None if it has none there."""
        address = file.elf.address_of(offset)
        if address is None or self.is_over:
            return None
        rule = file.known(address)
        if rule is None:
            with suppress(ValueError, TypeError, KeyError):
                rule = _rule(self._ask(file, [address]), address)
                file.add(rule)
                self._rules += 1
                self.is_over |= self._rules > _MOST_RULES or len(self._files) > _MOST_FILES
        return rule

    def _ask(self, file: CodeFile, question: Sequence[int], descriptors: Sequence[int] = ()) -> Any:
        with suppress(OSError):
            socket.send_fds(self._socket, [json.dumps([file.number, *question]).encode()], descriptors)
        answer = self._receive()
        if self.is_over:
            self._bad.add(file.identity)
        return answer

    def _receive(self) -> Any:
        """Return the next answer; None, and say that it is over, if none comes in time."""
        try:
            return json.loads(self._socket.recv(_ANSWER_BYTES))
        except (OSError, ValueError, RecursionError):
            self.is_over = True
            return None


def _rule(answer: Any, address: int) -> Rule:
    """Return a rule that has been checked. Raises ValueError, TypeError or KeyError unless it is one."""
    end, is_signal, returns, cfa, registers = answer
    if not address < end <= WORD or returns != RIP:
        raise ValueError(answer)
    if registers.get(str(RIP), ()) is None:
        return Rule(address, end, is_end=True)
    saved, computed = [], []
    for register in range(REGISTERS) if is_signal else FOLLOWED:
        place = _operations(registers.get(str(register)) or ())
        match [code for code, _, _ in place]:
            case [dwarf.CALL_FRAME_CFA]:
                saved.append((register, 0))
            case [dwarf.CALL_FRAME_CFA, dwarf.PLUS_UCONST]:
                saved.append((register, dwarf.signed(place[1][1])))
            case [dwarf.CALL_FRAME_CFA, dwarf.STACK_VALUE] if register == RSP:
                pass  # as in any function
            case [_, *_]:
                computed.append((register, place))
    operations = _operations(cfa)
    (code, register, offset), *more = operations
    rule = Rule(address, end, saved=tuple(saved), computed=tuple(computed), is_signal=bool(is_signal))
    if code == dwarf.BREGX and not more and register < REGISTERS:
        return rule._replace(register=register, offset=dwarf.signed(offset))
    return rule._replace(cfa=operations)


def _operations(expression: Any) -> dwarf.Operations:
    """Return an expression that has been checked. Raises ValueError or TypeError unless it is one."""
    operations = tuple((int(code), int(one) & WORD, int(two) & WORD) for code, one, two in expression)
    if len(operations) > _MOST_OPERATIONS:
        raise ValueError(expression)
    return operations
