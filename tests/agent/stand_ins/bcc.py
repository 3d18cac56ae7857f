"""A part of the module bcc, which the agent's programs use, over a kernel that the test tells what happens.

Each line of the file `BCC_HAPPENS` is a JSON object; those of a tracker are handled as bpf/common.c does:

    {"what": "begin", ...}   it begins: `id`, `comm`, `pid`, `thread`, `kernel`, `user`; maybe `ago` (ns)
    {"what": "end", ...}     it is over after a `delay` (ns), on a `cpu`; it may never have begun; maybe with
                             the id of a `copy`, which is sent if `registers` and `stack` are there
    {"what": "fork", ...}    a process `pid` is forked from `parent`
    {"what": "sample", ...}  a thread is sampled: `comm`, `pid`, `thread`, `kernel`, `user`; maybe a copy: its
                             `registers` (numbers, as in struct pt_regs) and the top of its `stack` (hex);
                             maybe what it runs of `python`: four numbers for each frame
    {"what": "lose"}         a sample is lost
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_CPUS = 2
_U32, _U64, _S64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64
_KERNEL_DEPTH, _USER_DEPTH, _SAMPLE_DEPTH = 64, 127, 127
_SEEN, _REPORTED, _LOST_STACKS = 0, 1, 4
_SYMBOLS = {0xFFFF_0000_0000_0010: b"schedule", 0xFFFF_0000_0000_0020: b"unix_stream_sendmsg"}

PerfType, PerfSWConfig = SimpleNamespace(SOFTWARE=1), SimpleNamespace(CPU_CLOCK=0)
utils = SimpleNamespace(get_online_cpus=lambda: range(0))  # no CPU is asked for interrupts


class _Settings(ctypes.Structure):
    _fields_ = (
        *(("threshold", _U64), ("filters", _U32), ("at_entry", _U32), ("wakers", _U32)),
        *(("generation", _U32), ("own", _U32 * 2), ("is_on", _U32), ("pause", _U32)),
    )


class _Key(ctypes.Structure):
    _fields_ = (("id", _U64), ("part", _U64))


class _Entry(ctypes.Structure):
    _fields_ = (
        *(("start", _U64), ("number", _U64), ("comm", _U64 * 2), ("name", ctypes.c_char * 16)),
        *(("pid", _U32), ("thread", _U32), ("operation", _U32), ("has_stack", _U32)),
    )


class _Bucket(ctypes.Structure):
    _fields_ = (("count", _U64), ("total", _U64))


class _Extremes(ctypes.Structure):
    _fields_ = (("generation", _U64), ("min", _U64), ("max", _U64))


class _Counted(ctypes.Structure):
    _fields_ = (
        *(("counters", _U64 * 6), ("extremes", _Extremes * 2)),
        *(("below", _Bucket * 65), ("dropped", _Bucket * 65), ("shown", _U64)),
    )


class _Sum(ctypes.Structure):
    _fields_ = (("count", _U64), ("total", _U64), ("max", _U64), ("is_told", _U64))


class _Python(ctypes.Structure):
    _fields_ = (("words", _U64 * 18),)


class _Table:
    def __init__(self, key: Any, leaf: Any) -> None:
        self.Key, self.Leaf = key, leaf
        self._items: dict[bytes, Any] = {}

    def __setitem__(self, key: Any, leaf: Any) -> None:
        self._items[bytes(key)] = leaf

    def __getitem__(self, key: Any) -> Any:
        return self._items[bytes(key)]

    def __delitem__(self, key: Any) -> None:
        del self._items[bytes(key)]

    def __contains__(self, key: Any) -> bool:
        return bytes(key) in self._items

    def __iter__(self) -> Iterator[Any]:
        return (self.Key.from_buffer_copy(key) for key in [*self._items])

    def items_lookup_batch(self) -> Iterator[tuple[Any, Any]]:
        return ((getattr(key, "value", key), self[key]) for key in self)


class _Ring:
    """A ring buffer; what is in it is read by `read_all`."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def open_ring_buffer(self, add: Callable[[Any, int, int], None]) -> None:
        self._add = add

    def read_all(self) -> None:
        records, self.records = self.records, []
        for record in records:
            buffer = ctypes.create_string_buffer(record, len(record))
            self._add(None, ctypes.addressof(buffer), len(record))


class BPF:
    """A loaded program with its tables. Before a table is read, all that has happened is in it.

    A program of more than `BCC_LONGEST` bytes is too long for the kernel.
    """

    PERF_EVENT = 7

    def __init__(self, text: str) -> None:
        self._text, self._attached, self._ring, self._copies = text, set[str](), _Ring(), _Ring()
        self.open_perf_events: dict[tuple[int, int], int] = {}
        self._frequencies: set[int] = set()
        self._file = Path(os.environ["BCC_HAPPENS"]).open()  # noqa: SIM115 - it grows while this runs
        self._tables: dict[str, Any] = {
            "settings": _Table(_U32, _Settings),
            "processes": _Table(_U32, ctypes.c_uint8),
            "comms": _Table(_Key, ctypes.c_uint8),
            "cgroups": _Table(_U64, ctypes.c_uint8),
            "forked": _Table(_U32, _U32),
            "entries": _Table(_Key, _Entry),
            "stacks": _Table(_Key, bytes),
            "sums": _Table(_U64, _Sum),
            "counted": [[_Counted() for _ in range(_CPUS)]],
            "interrupts": _Table(_U32, _U32),
            "pythons": _Table(_U32, _Python),
            "lost": [_U64()],
            "copied": [_U64()],
            "events": self._ring,
            "samples": self._ring,
            "copies": self._copies,
            "copied_bytes": [_U64()],
        }

    def __getitem__(self, name: str) -> Any:
        self._catch_up()
        return self._tables[name]

    def ring_buffer_consume(self) -> None:
        self._catch_up()
        for ring in (self._copies, self._ring):
            ring.read_all()

    def _catch_up(self) -> None:
        is_begun = self._frequencies or _U32(0) in self._tables["settings"]
        for line in self._file if is_begun else ():
            happened = json.loads(line)
            getattr(self, "_" + happened.pop("what"))(SimpleNamespace(**happened))

    def load_func(self, name: str, kind: int) -> None:
        assert kind == self.PERF_EVENT
        if f"int {name}(" not in self._text or len(self._text) > int(
            os.environ.get("BCC_LONGEST", "1000000")
        ):
            raise Exception(f"Failed to load BPF program {name}")  # noqa: TRY002 - as bcc does

    def ksym(self, address: int) -> bytes:
        return _SYMBOLS.get(address, b"")

    def attach_tracepoint(self, tp: str, fn_name: str) -> None:
        assert fn_name in self._text
        self._attached.add(tp)

    def detach_tracepoint(self, tp: str) -> None:
        self._attached.remove(tp)

    def attach_perf_event(self, ev_type: int, ev_config: int, fn_name: str, sample_freq: int) -> None:
        assert f"int {fn_name}(" in self._text
        self.open_perf_events[ev_type, ev_config] = sample_freq
        self._frequencies.add(sample_freq)

    def detach_perf_event(self, ev_type: int, ev_config: int) -> None:
        self._frequencies.remove(self.open_perf_events.pop((ev_type, ev_config)))

    def _sample(self, of: SimpleNamespace) -> None:
        halves = struct.unpack("=QQ", of.comm.encode().ljust(16, b"\0"))
        wanted = " && ".join(f"comm[{half}] == {number}ULL" for half, number in enumerate(halves))
        if of.pid == of.thread and wanted not in self._text:
            return
        stacks = (struct.pack(f"={len(stack)}Q", *stack) for stack in (of.kernel, of.user))
        parts = (stack.ljust(8 * _SAMPLE_DEPTH, b"\0") for stack in stacks)
        sizes = (8 * len(of.kernel) or -14, 8 * len(of.user) or -14)
        addresses = b"".join(parts)
        for frequency in self._frequencies:
            thread = (of.pid, of.thread, of.comm.encode(), 10**9 // frequency)
            head = struct.pack("=II16sQqq", *thread, *sizes)
            python = getattr(of, "python", ())
            frames = struct.pack(f"=Q{len(python)}Q", len(python) // 4, *python)
            self._ring.records.append(head + addresses + frames + _copy(of))

    def _fork(self, of: SimpleNamespace) -> None:
        assert "forked.update(" in self._text
        self._tables["forked"][_U32(of.pid)] = _U32(of.parent)

    def _lose(self, _: SimpleNamespace) -> None:
        self._tables["lost"][0].value += 1

    def _begin(self, of: SimpleNamespace) -> None:
        settings, key = self._tables["settings"][_U32(0)], _Key(of.id)
        if self._is_wanted(of, settings):
            entry = self._entry(of)
            entry.start = time.monotonic_ns() - getattr(of, "ago", 0)
            self._tables["entries"][key] = entry
            if settings.at_entry:
                self._tables["stacks"][key] = _stack(of)

    def _end(self, of: SimpleNamespace) -> None:
        settings, key = self._tables["settings"][_U32(0)], _Key(getattr(of, "id", 0))
        for table in (self._tables["entries"], self._tables["stacks"]):
            if key in table:
                del table[key]
        if not settings.is_on or not self._is_wanted(of, settings):
            return
        counts = self._tables["counted"][0][of.cpu]
        found = counts.extremes[settings.generation & 1]
        if found.generation != settings.generation:
            found.generation, found.min, found.max = settings.generation, of.delay, of.delay
        found.min, found.max = min(found.min, of.delay), max(found.max, of.delay)
        counts.counters[_SEEN] += 1
        if of.delay < settings.threshold:
            bucket = counts.below[of.delay.bit_length()]
            bucket.count, bucket.total = bucket.count + 1, bucket.total + of.delay
            return
        if hasattr(of, "stack"):
            self._copies.records.append(struct.pack("=QII", of.copy, of.pid, 0) + _copy(of))
        counts.counters[_LOST_STACKS] += not of.kernel and not of.user
        counts.counters[_REPORTED] += 1
        told = bytes(self._entry(of)) + _stack(of)
        if hasattr(of, "waker") and settings.wakers and "sched:sched_waking" in self._attached:
            told += _stack(SimpleNamespace(**of.waker))
        self._add(of.delay, told, getattr(of, "has_room", True))

    def _add(self, delay: int, told: bytes, has_room: bool) -> None:
        """Add an event to those of its kind. All are shown."""
        digest = hashlib.sha256(told + bytes([delay.bit_length()])).digest()
        kind = int.from_bytes(digest[:8]) | 1 if has_room else 0
        self._ring.records.append(struct.pack("=QQ", delay, kind) + told)
        if kind:
            sums = self._tables["sums"]
            if _U64(kind) not in sums:
                sums[_U64(kind)] = _Sum()
            found = sums[_U64(kind)]
            found.count, found.total = found.count + 1, found.total + delay
            found.max, found.is_told = max(found.max, delay), 1

    def _is_wanted(self, of: SimpleNamespace, settings: _Settings) -> bool:
        tables, own = self._tables, [*settings.own]
        return of.pid not in own and all(
            not settings.filters & bit or key in tables[name]
            for bit, name, key in (
                (1, "processes", _U32(of.pid)),
                (2, "comms", _comm(of)),
                (4, "cgroups", _U64(getattr(of, "cgroup", 0))),
            )
        )

    @staticmethod
    def _entry(of: SimpleNamespace) -> _Entry:
        comm, number, operation = _comm(of), getattr(of, "number", 1), getattr(of, "operation", 1)
        name = getattr(of, "name", "").encode()
        return _Entry(0, number, (comm.id, comm.part), name, of.pid, of.thread, operation, 0)


def _copy(of: SimpleNamespace) -> bytes:
    """Return a struct copy; without a stack if there is none."""
    stack = bytes.fromhex(getattr(of, "stack", ""))
    return struct.pack("=21QQ", *getattr(of, "registers", [0] * 21), len(stack)) + stack


def _comm(of: SimpleNamespace) -> _Key:
    return _Key(*struct.unpack("=QQ", of.comm.encode().ljust(16, b"\0")))


def _stack(of: SimpleNamespace) -> bytes:
    sizes = (8 * len(of.kernel) or -14, 8 * len(of.user) or -14)  # -EFAULT
    head = struct.pack("=qq16sIIQ", *sizes, of.comm.encode(), of.pid, 0, getattr(of, "copy", 0))
    kernel, user = (struct.pack(f"={len(stack)}Q", *stack) for stack in (of.kernel, of.user))
    return head + kernel.ljust(8 * _KERNEL_DEPTH, b"\0") + user.ljust(8 * _USER_DEPTH, b"\0")
