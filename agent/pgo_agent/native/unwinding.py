"""Unwind stacks by call frame information, from the registers of a thread and a copy of its stack's top.

Most programs are compiled without frame pointers, and the kernel can't follow their stacks. Their files say
how the caller's registers are found at each address (.eh_frame, for exceptions, also in C).

libdw (elfutils) reads that; it is in every distribution, and perf has it. Its own unwinder,
libdwfl, wants the files of each process again; framehop is a crate, and the agent has no Rust. So libdw is
only asked what an address needs (`unwind_rules`), once for each part of a function, and the frames are
followed here, which takes some look-ups in dicts.
"""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Self

from pgo_agent.errors import ToolFailed
from pgo_agent.native.dwarf_expressions import STACK_VALUE, compute
from pgo_agent.native.elf import candidate_paths
from pgo_agent.native.memory_maps import Area, MemoryMaps
from pgo_agent.native.recording import Frame, Mapping
from pgo_agent.native.unwind_rules import RBP, REGISTERS, RIP, RSP, CodeFile, Rule, RuleReader

_MOST_FRAMES = 512
_MOST_MAPS = 1024
_MOST_BAD_FILES = 1024
_MOST_ADDRESSES = 500_000  # 100 MB
_READ_AGAIN_SECONDS = 1.0  # a process that has loaded a library since its memory map was read
_WORD_BYTES = 8
# A rule for code without call frame information, such as what a program has compiled while it ran: the
# register rbp points at the caller's, beside which is the return address.
_BY_FRAME_POINTER = Rule(0, 0, RBP, 16, ((RBP, -16), (RIP, -8)))
# add $n, %rsp; ret
_FREE_AND_RETURN = re.compile(rb"\x48\x83\xc4([\x00-\x78])\xc3", re.DOTALL)
_END, _NO_CODE = Rule(0, 0, is_end=True), Rule(0, 0)
_VDSO = "[vdso]"


class Unwinder:
    """Unwinds stacks of any processes. What it learns of their files it keeps, up to a bound.

    It may be called from several threads. `close` ends the process that it starts.
    """

    def __init__(self) -> None:
        self.obstacle = ""  # what keeps it from using call frame information
        self._lock = threading.Lock()
        self._reader: RuleReader | None = None
        self._bad_files = set[tuple[int, ...]]()
        self._rules: dict[str, dict[int, Rule]] = {}  # by address, by memory map
        self._files: dict[tuple[str, Area], CodeFile] = {}
        self._addresses = 0
        self._maps_read: dict[int, float] = {}

    def unwind(
        self,
        pid: int,
        maps: MemoryMaps,
        registers: Sequence[int],
        stack: bytes,
        pointers: list[int] | None = None,
    ) -> tuple[list[int], bool]:
        """Return the addresses of a stack, leaf first, and whether it is whole: up to the thread's start.

        `registers` are the 17 of x86-64 in DWARF's order: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15,
        rip; one that isn't known is 0. `stack` is the memory from rsp on. `maps` has read the process's map.
        A caller's address is its return address, as the kernel's are; where a signal interrupted the caller,
        it is one more than its address. `pointers`, if given, becomes the stack pointers at the addresses,
        and maybe another, where the frame of the last one ends. Raises ValueError unless there are 17
        registers.
        """
        if len(registers) != REGISTERS:
            raise ValueError(f"{len(registers)} registers, not {REGISTERS}")
        with self._lock:
            self._forget_what_is_over()
            while True:
                rules = self._rules.setdefault(maps.text(pid), {})
                addresses, at, end = _follow(registers, stack, rules, partial(self._learn, pid, maps))
                if end is not _NO_CODE or not self._has_another_map(pid, maps):
                    if pointers is not None:
                        pointers[:] = at
                    return addresses, end is _END

    def is_start(self, frame: Frame) -> bool:
        """Return whether the file of a frame, as it is here, says that threads start there."""
        with self._lock:
            self._forget_what_is_over()
            mapping, reader = frame.mapping, self._ready()
            file = reader and mapping and reader.file(Path(mapping.file), mapping.build_id)
            if not (reader and mapping and file):
                return False
            rule = reader.rule(file, frame.address - mapping.start + mapping.offset)
            return bool(rule and rule.is_end)

    def start(self) -> bool:
        """Start the process that reads call frame information; return False if there is an `obstacle`."""
        with self._lock:
            self._forget_what_is_over()
            return self._ready() is not None

    def close(self) -> None:
        """End the process that reads call frame information."""
        with self._lock:
            if self._reader:
                self._reader.close()
                self._reader.is_over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _forget_what_is_over(self) -> None:
        """Start again with nothing if as much is kept as may be, or if the process has ended."""
        if self._addresses > _MOST_ADDRESSES or len(self._rules) > _MOST_MAPS:
            self._rules, self._addresses = {}, 0
        if self._reader and self._reader.is_over:
            self._reader.close()
            self._reader, self._rules, self._files, self._addresses = None, {}, {}, 0
        if len(self._bad_files) > _MOST_BAD_FILES:
            self.obstacle = "libdw has failed too often"

    def _has_another_map(self, pid: int, maps: MemoryMaps) -> bool:
        """Read a process's map again, if that was a moment ago; return whether it has changed."""
        now = time.monotonic()
        if now - self._maps_read.get(pid, 0) < _READ_AGAIN_SECONDS:
            return False
        if len(self._maps_read) > _MOST_MAPS:
            self._maps_read = {}
        self._maps_read[pid] = now
        before = maps.text(pid)
        maps.read(pid)
        return maps.text(pid) != before

    def _learn(self, pid: int, maps: MemoryMaps, address: int) -> Rule:
        """Return the rule for an address that is met for the first time."""
        area = maps.area(pid, address)
        if area is None:
            return _NO_CODE
        text, rule = maps.text(pid), None
        # The code of a JIT compiler is in no file.
        mapping = area.mapping if area.mapping and area.mapping.file else None
        if mapping and (file := self._files.get((text, area)) or self._open(pid, area, mapping)):
            self._files[text, area] = file
            rule = self._reader and self._reader.rule(file, area.offset(address))
        rule = rule or _rule_of_compiled(pid, address + 1)
        if text in self._rules and maps.text(pid) == text:  # else it was just read again, by another thread
            self._rules[text][address] = rule
            self._addresses += 1
        return rule

    def _open(self, pid: int, area: Area, mapping: Mapping) -> CodeFile | None:
        """Return a mapped file, as the process sees it, also if it has been deleted or replaced."""
        reader = self._ready()
        if reader is None:
            return None
        if mapping.file == _VDSO:
            return reader.opened(_vdso())
        mapped = Path(f"/proc/{pid}/map_files/{area.start:x}-{area.end:x}")
        for path in (mapped, *candidate_paths(mapping.file, [pid])):
            if file := reader.file(path, mapping.build_id):
                return file
        return None

    def _ready(self) -> RuleReader | None:
        if platform.machine() != "x86_64":
            self.obstacle = "call frame information is followed on x86-64 only"
        if not (self.obstacle or self._reader):
            try:
                self._reader = RuleReader(self._bad_files)
            except ToolFailed as error:
                self.obstacle = str(error)
        return None if self.obstacle else self._reader


def _follow(
    registers: Sequence[int], stack: bytes, rules: dict[int, Rule], learn: Callable[[int], Rule]
) -> tuple[list[int], list[int], Rule | None]:
    """Return the addresses of a stack, the stack pointers at them, and what ended it.

    That is _END, _NO_CODE, or None if it was cut short.
    """
    now = [*registers]
    bottom, words = now[RSP], memoryview(stack[: len(stack) & -_WORD_BYTES]).cast("Q")
    at = now[RIP]
    addresses, pointers = [at], [bottom]
    with suppress(ValueError, IndexError):
        while len(addresses) < _MOST_FRAMES:
            rule = rules.get(at) or learn(at)
            if rule is _NO_CODE:
                return addresses[: -1 if addresses[1:] else 1], pointers, rule
            if rule.is_end or (rule is _BY_FRAME_POINTER and not now[RBP]):
                return addresses, pointers, _END
            _to_caller(now, rule, bottom, words)
            pointers.append(now[RSP])
            at = now[RIP]
            if not at:
                return addresses, pointers, _END
            addresses.append(at + rule.is_signal)
            at -= not rule.is_signal
    if len(pointers) == len(addresses) and now[RSP] != pointers[-1]:
        pointers.append(now[RSP])
    return addresses, pointers, None


def _to_caller(now: list[int], rule: Rule, bottom: int, words: Sequence[int]) -> None:
    """Change registers to those of the caller. `words` are the memory from `bottom` on.

    Raises ValueError or IndexError if they can't be known; the stack pointer may be.
    """
    values: Sequence[tuple[int, int]] = ()
    if rule.cfa or rule.computed:
        cfa, values = _computed(now, rule, bottom, words)
    else:
        cfa = now[rule.register] + rule.offset
    if cfa <= now[RSP] and not rule.is_signal:
        raise ValueError(cfa)
    most = len(words) * _WORD_BYTES
    for register, offset in rule.saved:
        place = cfa + offset - bottom
        if 0 <= place < most and not place % _WORD_BYTES:
            now[register] = words[place // _WORD_BYTES]
        elif register == RIP:
            now[RSP] = cfa
            raise ValueError(place)
        # Others are below the stack's top when the function has restored them, and is about to return.
    now[RSP] = cfa
    for register, value in values:
        now[register] = value


def _computed(
    now: Sequence[int], rule: Rule, bottom: int, words: Sequence[int]
) -> tuple[int, list[tuple[int, int]]]:
    """Return the CFA, and those values of registers that expressions compute, or say the places of."""

    def read(address: int) -> int:
        place = address - bottom
        if place < 0 or place % _WORD_BYTES:
            raise ValueError(address)
        return words[place // _WORD_BYTES]

    cfa = compute(rule.cfa, now, 0, read) if rule.cfa else now[rule.register] + rule.offset
    values = []
    for register, expression in rule.computed:
        result = compute(expression, now, cfa, read)
        values.append((register, result if expression[-1][0] == STACK_VALUE else read(result)))
    return cfa, values


def _rule_of_compiled(pid: int, address: int) -> Rule:
    """Return the rule for a caller without call frame information, by the code that it returns to.

    Python's perf trampolines move the stack pointer, and keep no frame pointer.
    """
    with suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        if found := _FREE_AND_RETURN.match(memory.read(5)):
            return Rule(0, 0, RSP, found[1][0] + _WORD_BYTES, ((RIP, -8),))
    return _BY_FRAME_POINTER


@cache
def _vdso() -> int:
    """Return a file with the code that the kernel maps into each process. Raises OSError if it maps none."""
    line = next(line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(_VDSO))
    start, end = (int(part, 16) for part in line.split()[0].split("-"))
    file = os.memfd_create("vdso", os.MFD_CLOEXEC)
    with Path("/proc/self/mem").open("rb") as memory:
        memory.seek(start)
        os.write(file, memory.read(end - start))
    return file
