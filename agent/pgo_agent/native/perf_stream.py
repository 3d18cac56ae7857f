"""Read what `perf record -o -` writes while it records: samples with registers and the top of the stack.

`perf script` would unwind the samples of all programs, as root, with what is at the paths of their files
here, if it was built with a library for that. The format of the stream is in Linux's
`tools/perf/Documentation/perf.data-file-format.txt`, and that of the kernel's events in
https://man7.org/linux/man-pages/man2/perf_event_open.2.html.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import starmap
from operator import itemgetter
from typing import BinaryIO

_MAGIC = b"PERFILE2"
_HEAD = struct.Struct("<IHH")  # type, flags, size with this
_WORD = struct.Struct("<Q")
# Types of events: those below 64 are the kernel's, the others perf's own.
_LOST, _NAMED, _FORKED, _SAMPLE, _MAPPED, _LOST_SAMPLES = 2, 3, 7, 9, 10, 13
_READ = {_LOST, _NAMED, _FORKED, _SAMPLE, _MAPPED, _LOST_SAMPLES}
_ATTRIBUTES, _ROUND = 64, 68
_HAS_BUILD_ID, _EXEC = 1 << 14, 1 << 13
_PROTECTION, _EXECUTABLE = 56, 4
# The bits of a sample's type that add a word to it, in the order of these words, before all else: an
# identifier, the address of the code, process and thread, time, an address of data, two identifiers, the CPU,
# the period.
_TASK, _TIME, _PERIOD = 2, 4, 1 << 8
_FIRST = (1 << 16, 1, _TASK, _TIME, 8, 1 << 6, 1 << 9, 1 << 7, _PERIOD)
_CALLERS, _REGISTERS, _STACK = 1 << 5, 1 << 12, 1 << 13
_LATER = 1 << 14 | 1 << 15 | 1 << 24  # after the stack: weight, source of data
# Those that add a word to the end of all other events, in the order of these words.
_LAST = (_TASK, _TIME, 1 << 6, 1 << 9, 1 << 7, 1 << 16)
# The numbers that perf gives registers of x86-64, in Linux's `asm/perf_regs.h`, in DWARF's order.
_IN_DWARF_ORDER = (0, 3, 2, 1, 4, 5, 6, 7, *range(16, 24), 8)
_MARKS = (1 << 64) - 4095  # addresses from here on say what those are that follow
_USER = (1 << 64) - 512


@dataclass(frozen=True, slots=True)
class Mapped:
    """A process has mapped executable memory; `file` may be no file, such as `//anon`."""

    pid: int
    start: int
    size: int
    offset: int
    build_id: str
    file: str


@dataclass(frozen=True, slots=True)
class Named:
    """A thread has a name, since its process has begun to run another program if `is_exec`."""

    pid: int
    thread: int
    comm: str
    is_exec: bool


@dataclass(frozen=True, slots=True)
class Forked:
    """A thread has started, or a process if its parent is another."""

    pid: int
    thread: int
    parent: int
    parent_thread: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The kernel had no room for this many samples or other events."""

    count: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """A sample. `kernel` and `user` are the stack, leaf first, as far as the kernel has followed it.

    `registers` are the thread's in user space, in DWARF's order; none if there are none, or they aren't
    recorded. `stack` is the memory from its stack pointer on.
    """

    pid: int
    thread: int
    period: int
    kernel: tuple[int, ...]
    user: tuple[int, ...]
    registers: tuple[int, ...]
    stack: bytes


Event = Mapped | Named | Forked | Lost | Sampled

_Waiting = tuple[int, int, int, bytes]
_time_of: Callable[[_Waiting], int] = itemgetter(0)


def events(stream: BinaryIO) -> Iterator[Event]:
    """Yield the events of a stream in order of time; none if it is empty, as of a perf that is stopped early.

    Raises ValueError if it isn't perf's, or is cut off.
    Each CPU has events of its own; those that perf has read by the end of a round are older than all that it
    reads from the round after the next on.
    """
    try:
        yield from _events(stream)
    except struct.error as error:
        raise ValueError("a stream of perf record with an event that is cut off") from error


def _events(stream: BinaryIO) -> Iterator[Event]:
    magic = stream.read(16)
    if not magic:
        return
    if len(magic) != 16 or not magic.startswith(_MAGIC):
        raise ValueError("not a stream of perf record")
    layout: _Layout | None = None
    waiting: list[_Waiting] = []
    seen = newest = 0
    while head := stream.read(_HEAD.size):
        type_, flags, size = _HEAD.unpack(head)
        body = _part(stream, size - _HEAD.size)
        if type_ == _ATTRIBUTES:  # of the clock; what follows of others has the same at its end
            layout = layout or _Layout(*(_WORD.unpack_from(body, at)[0] for at in (24, 80)))
        elif layout is None:
            continue
        elif type_ == _ROUND:
            waiting.sort(key=_time_of)
            done = bisect_right(waiting, seen, key=_time_of)
            yield from starmap(layout.read, waiting[:done])
            waiting, seen = waiting[done:], newest
        elif type_ in _READ and (type_ != _MAPPED or _is_executable(body)):
            time = layout.time(type_, body)
            newest = max(newest, time)
            waiting.append((time, type_, flags, body))
    if layout:
        waiting.sort(key=_time_of)
        yield from starmap(layout.read, waiting)


def _part(stream: BinaryIO, size: int) -> bytes:
    part = stream.read(size) if size >= 0 else b""
    if len(part) != size:
        raise ValueError("a stream of perf record that is cut off")
    return part


class _Layout:
    """Where the parts of events are, by the type of samples and the registers that they have."""

    def __init__(self, kinds: int, registers: int) -> None:
        if unknown := kinds & ~(sum(_FIRST) | _CALLERS | _REGISTERS | _STACK | _LATER):
            raise ValueError(f"samples of a type that isn't known here, {unknown:#x}")
        self._kinds = kinds
        first = [bit for bit in _FIRST if kinds & bit]
        self._first_bytes = 8 * len(first)
        self._task, self._time, self._period = (
            8 * first.index(bit) if bit in first else None for bit in (_TASK, _TIME, _PERIOD)
        )
        last = [bit for bit in _LAST if kinds & bit]
        self._last_time = 8 * (len(last) - last.index(_TIME)) if _TIME in last else 0
        numbers = [number for number in range(64) if registers >> number & 1]
        self._registers = struct.Struct(f"<{len(numbers)}Q")
        self._order = [numbers.index(number) for number in _IN_DWARF_ORDER if number in numbers]

    def time(self, type_: int, body: bytes) -> int:
        """Return the time of an event, ns by perf's clock; 0 for what was so before."""
        at = self._time if type_ == _SAMPLE else len(body) - self._last_time
        if at is None or not 0 <= at <= len(body) - 8:
            return 0
        return int(_WORD.unpack_from(body, at)[0])

    def read(self, _time: int, type_: int, flags: int, body: bytes) -> Event:
        """Return an event. Raises struct.error if it is cut off."""
        if type_ == _SAMPLE:
            return self._sampled(body)
        if type_ == _MAPPED:
            return _mapped(flags, body)
        if type_ == _FORKED:
            pid, parent, thread, parent_thread = struct.unpack_from("<4I", body)
            return Forked(pid, thread, parent, parent_thread)
        if type_ == _NAMED:
            pid, thread = struct.unpack_from("<II", body)
            return Named(pid, thread, _text(body[8:]), bool(flags & _EXEC))
        return Lost(struct.unpack_from("<8xQ" if type_ == _LOST else "<Q", body)[0])

    def _sampled(self, body: bytes) -> Sampled:
        pid, thread = struct.unpack_from("<II", body, self._task or 0)
        (period,) = _WORD.unpack_from(body, self._period or 0)
        at = self._first_bytes
        followed: tuple[int, ...] = ()
        if self._kinds & _CALLERS:
            (count,) = _WORD.unpack_from(body, at)
            followed = struct.unpack_from(f"<{min(count, len(body) // 8)}Q", body, at + 8)
            at += 8 + 8 * count
        registers: tuple[int, ...] = ()
        stack = b""
        if self._kinds & _REGISTERS:
            (has_any,) = _WORD.unpack_from(body, at)
            at += 8
            if has_any:
                registers = self._registers.unpack_from(body, at)
                at += self._registers.size
        if self._kinds & _STACK:
            (size,) = _WORD.unpack_from(body, at)
            if size:
                (used,) = _WORD.unpack_from(body, at + 8 + size)
                stack = body[at + 8 : at + 8 + min(used, size)]
        # The kernel's addresses come first, those of the process after a mark.
        split = followed.index(_USER) if _USER in followed else len(followed)
        kernel, user = (
            tuple(address for address in part if address < _MARKS)
            for part in (followed[:split], followed[split:])
        )
        in_order = tuple(registers[place] for place in self._order) if registers else ()
        return Sampled(pid, thread, period, kernel, user, in_order, stack)


def _is_executable(body: bytes) -> bool:
    return bool(body[_PROTECTION : _PROTECTION + 1] and body[_PROTECTION] & _EXECUTABLE)


def _mapped(flags: int, body: bytes) -> Mapped:
    pid, start, size, offset = struct.unpack_from("<I4xQQQ", body)
    build_id = body[36 : 36 + min(body[32], 20)].hex() if flags & _HAS_BUILD_ID else ""
    return Mapped(pid, start, size, offset, build_id, _text(body[64:]))


def _text(body: bytes) -> str:
    return body.split(b"\0", 1)[0].decode(errors="surrogateescape")
