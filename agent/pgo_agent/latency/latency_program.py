"""Track latencies with bcc until SIGINT: the child process of `BccFeed`, run by the Python that has bcc.

The first line of its input is a JSON object: the C `text`, whether that `knows_forks`, the `tracepoints` that
it uses, `own` processes, `depths` of stacks, `settings`, and what `Tracker` documents of this one: whether it
asks for `interrupts`, `waking`, `filtered_at_end`, `not_counted` and `forgotten_after`. Each line after that
is a command:

    ["set", settings]      change the threshold, the timeout or the filters
    ["in_flight"]          ask for what is in flight
    ["flush"]              ask for a tick now

It prints JSON lists, one a line:

    ["started"]                          once events are tracked
    ["processes", [[pid, parent, ...]]]  the processes with new events, ten times a second, each with those
                                         that it was forked from, if they are known
    ["copy", [id, pid, copy]]            registers and stack of a thread as `bcc_parts` reads them, in base64;
                                         its events, and those with the same stack, have the id
    ["tick", {...}]                      once a second, and at the end: what was counted since the last one
    ["event", {...}], ["late", {...}]    an event over the threshold, and one in flight over the timeout
    ["in_flight", [{...}, ...]]          the answer to the command
    ["flushed", []]                      the answer to the command, after the tick
"""

from __future__ import annotations

import base64
import ctypes
import json
import mmap
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bcc import BPF, utils  # type: ignore[import-not-found] # only the distribution's Python has it

# This file is run apart from its package, whose folders Python doesn't search.
sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "backends")]
from bcc_parts import family  # type: ignore[import-not-found]
from processes import cgroup_id_of, cgroup_ids, pids_of, skipped_runs  # type: ignore[import-not-found]

_TRACING = Path("/sys/kernel/tracing")
_DRAIN_SECONDS = 0.1
_TICK_SECONDS = 1.0
_LATE_SECONDS = 0.5  # between two looks for what is over the timeout
_FORGET_TICKS = 10  # between two looks for what is forgotten
_MOST_STACKS = 5000  # different ones between two ticks
_MOST_LISTED = 1000  # in flight, longest first
_MANY_SUMS = 8192  # of which those are forgotten that didn't grow in so many ticks
_IDLE_TICKS = 3
_LONGEST_PAUSE = (1 << 32) - 1  # ns
_BY_PROCESS, _BY_COMM, _BY_CGROUP = 1, 2, 4
_PROCESS_FILTERS = {"pids", "executables"}
_FILTERS = _PROCESS_FILTERS | {"comms", "cgroups"}
# The counters of the C program, in its order.
_COUNTERS = ("seen", "reported", "table_full", "ring_full", "lost_stacks", "missed")
_NEW_NAMESPACE, _PRIVATE, _RECURSIVE = 0x20000, 1 << 18, 0x4000  # CLONE_NEWNS, MS_PRIVATE, MS_REC
_PERF_EVENT_OPEN, _ENABLE = 298, 0x2400
# struct event of the C program, up to its stack; and struct stack, up to its addresses.
_EVENT = struct.Struct("=QQQQ16s16sIIII")
_STACK = struct.Struct("=qq16sIIQ")
_COPIED = struct.Struct("=QII")  # struct copied, up to the copy


def _mount_tracing() -> None:
    """Mount tracefs for this process only, if it isn't mounted. If that isn't allowed, `_missing` says so."""
    if (_TRACING / "events").is_dir():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NAMESPACE) == 0:
        libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None)
        libc.mount(b"tracefs", bytes(_TRACING), b"tracefs", 0, None)


def _missing(tracepoints: list[str]) -> str:
    """Return what keeps these tracepoints from being used, "" if nothing does."""
    if not (_TRACING / "events").is_dir():
        return f"tracefs is not mounted: mount -t tracefs tracefs {_TRACING}"
    gone = [name for name in tracepoints if not (_TRACING / "events" / name.replace(":", "/")).is_dir()]
    return f"this kernel has no tracepoint {' or '.join(gone)}" if gone else ""


class _Interrupts:
    """A perf event for each CPU, whose records each ask their CPU for an interrupt. Nobody reads them."""

    def __init__(self, table: Any) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        # perf_event_attr: software (1), its size, BPF output (10), a sample for each record, with raw bytes
        # (1 << 10), no flags, and a wake-up at each sample.
        attr = struct.pack("=IIQQQQQI", 1, 128, 10, 1, 1 << 10, 0, 0, 1).ljust(128, b"\0")
        self._buffers = []
        for cpu in utils.get_online_cpus():
            fd = libc.syscall(_PERF_EVENT_OPEN, attr, -1, cpu, -1, 8)
            if fd < 0:
                raise OSError(ctypes.get_errno(), "perf_event_open failed")
            # A buffer that is mapped for reading only is overwritten, and so never full.
            self._buffers.append(mmap.mmap(fd, 2 * mmap.PAGESIZE, prot=mmap.PROT_READ))
            libc.ioctl(fd, _ENABLE, 0)
            table[table.Key(cpu)] = table.Leaf(fd)


class _Aggregate:
    """Events reported since the last tick: stacks with their counts and total delays, by bucket."""

    def __init__(self) -> None:
        self.stacks: dict[tuple[Any, ...], list[int]] = {}
        self.left_out: dict[int, list[int]] = {}
        self.processes: set[int] = set()

    def add(self, key: tuple[Any, ...], count: int, total: int) -> None:
        """Add events; the last part of a key is their bucket."""
        counts = self.stacks.get(key)
        if counts is None:
            if len(self.stacks) < _MOST_STACKS:
                counts = self.stacks[key] = [0, 0]
            else:
                counts = self.left_out.setdefault(key[-1], [0, 0])
        counts[0] += count
        counts[1] += total


class _Sum:
    """A sum of the kernel's: the `key` of the events in it, and what was read of it so far.

    The key is None if these events aren't counted.
    """

    __slots__ = ("count", "idle", "key", "total")

    def __init__(self, key: tuple[Any, ...] | None) -> None:
        self.key = key
        self.count = self.total = self.idle = 0


class _Tracker:
    """The loaded C program with its tables, and what was read of them since the last tick."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._kernel_bytes, self._user_bytes = (8 * depth for depth in setup["depths"])
        self._stack_size = _STACK.size + self._kernel_bytes + self._user_bytes
        self._own = setup["own"]
        self._bpf = BPF(text=setup["text"])
        self._forked = self._bpf["forked"] if setup["knows_forks"] else None
        ctypes.CDLL(None).malloc_trim(0)  # the compiler has freed 25 MiB
        self._waking, self._is_at_wakers = setup["waking"], False
        self._aggregate = _Aggregate()
        self._sums: dict[int, _Sum] = {}
        self._announced: set[int] = set()
        self._generation = 1
        self._last: dict[str, list[tuple[int, int]]] = {}
        self._unseen = 0
        self._last_counters = [0] * len(_COUNTERS)
        self._filtered_at_end = {*setup["filtered_at_end"]}
        self._not_counted = tuple(name.encode() for name in setup["not_counted"])
        self._forgotten_after = setup["forgotten_after"]
        self._abandoned = self._refuted = self._largest = 0
        self._refuting: dict[str, bool] = {}
        self._late: set[tuple[bytes, int]] = set()
        self._late_due = self._event_due = 0.0
        self._skipped = 0
        if setup["interrupts"]:
            self._interrupts = _Interrupts(self._bpf["interrupts"])
        self._bpf["copies"].open_ring_buffer(self._add_copy)  # first, so that it is read first
        self._bpf["events"].open_ring_buffer(self._add)
        self._is_on = True
        self._settings = setup["settings"]
        self.set(setup["settings"])

    def obey(self, command: str, *arguments: Any) -> None:
        """Do what a command says, and print the answer."""
        if command == "set":
            self.set(*arguments)
        elif command == "flush":
            self.tick()
            _print_list("flushed", [])
        else:
            _print_list("in_flight", self.in_flight())

    def set(self, settings: dict[str, Any]) -> None:
        """Apply settings: from now on, the C program reads them."""
        changed = {name for name in settings if settings[name] != self._settings[name]}
        self._settings = settings
        self._attach_to_wakers(wanted=settings["wakers"])
        self._late.clear()
        _replace(self._bpf["comms"], ((*_comm_key(comm),) for comm in settings["comms"]))
        self._refresh_filters(forget_forks=not changed.isdisjoint(_PROCESS_FILTERS))
        self._write_settings()
        if not changed.isdisjoint(_FILTERS):
            self._forget_unwanted()

    def _attach_to_wakers(self, *, wanted: bool) -> None:
        """Run the program that takes stacks of wakers only if they are wanted: it costs at each wake-up."""
        if not self._waking or wanted == self._is_at_wakers:
            return
        if wanted:
            self._bpf.attach_tracepoint(tp=self._waking, fn_name="take_waker")
        else:
            self._bpf.detach_tracepoint(tp=self._waking)
        self._is_at_wakers = wanted

    def _write_settings(self) -> None:
        settings, table = self._settings, self._bpf["settings"]
        leaf = table.Leaf()
        leaf.threshold = settings["threshold"]
        leaf.filters = (
            _BY_PROCESS * bool(settings["pids"] or settings["executables"])
            | _BY_COMM * bool(settings["comms"])
            | _BY_CGROUP * bool(settings["cgroups"])
        )
        leaf.at_entry, leaf.wakers = bool(settings["timeout"]), settings["wakers"]
        leaf.generation, leaf.is_on = self._generation, self._is_on
        leaf.pause = min(10**9 // settings["events"], _LONGEST_PAUSE)
        leaf.own[0], leaf.own[1] = self._own, os.getpid()
        table[table.Key(0)] = leaf

    def _refresh_filters(self, *, forget_forks: bool = False) -> None:
        """Bring the processes and cgroups up to date: new ones may have started."""
        settings, processes = self._settings, self._bpf["processes"]
        wanted = {*settings["pids"], *pids_of(settings["executables"])}
        forked = set() if forget_forks or not settings["pids"] else {key.value for key in processes}
        kept = {pid for pid in forked if Path(f"/proc/{pid}").exists()}
        _replace(processes, ((pid,) for pid in wanted | kept))
        _replace(self._bpf["cgroups"], ((id_,) for id_ in cgroup_ids(settings["cgroups"])))

    def drain(self) -> None:
        """Read the ring buffer, and announce processes with new events."""
        self._read_events()
        self._look_for_late()

    def _read_events(self) -> None:
        self._bpf["copied_bytes"][0] = ctypes.c_uint64(0)
        self._bpf.ring_buffer_consume()
        self._announce()

    def _announce(self) -> None:
        new = self._aggregate.processes - self._announced
        if new:
            self._announced |= new
            _print_list("processes", [[*family(self._forked, pid)] for pid in new])

    def _add_copy(self, _context: Any, at: int, size: int) -> None:
        id_, pid, _ = _COPIED.unpack(ctypes.string_at(at, _COPIED.size))
        self._aggregate.processes.add(pid)
        self._announce()
        copy = ctypes.string_at(at + _COPIED.size, size - _COPIED.size)
        _print_list("copy", [id_, pid, base64.b64encode(copy).decode()])

    def _add(self, _context: Any, at: int, size: int) -> None:
        record = ctypes.string_at(at, size)
        delay, sum_, _start, number, comm, name, pid, thread, operation, _ = _EVENT.unpack_from(record)
        _, kernel, user, copy = self._stack(record, _EVENT.size)
        is_refuted = bool(self._not_counted) and self._refutes(kernel)
        waker = None
        if size >= _EVENT.size + 2 * self._stack_size:
            waker = self._stack(record, _EVENT.size + self._stack_size)
        name = _text(name)
        key = (pid, comm, number, name, operation, kernel, user, copy, waker, delay.bit_length())
        if sum_ and sum_ not in self._sums:
            self._sums[sum_] = _Sum(None if is_refuted else key)
        elif not sum_:
            self._count(None if is_refuted else key, 1, delay, delay)
        if is_refuted:
            return
        self._see_processes(key)
        now = time.monotonic()
        if now < self._event_due:
            return
        self._event_due = now + 1 / self._settings["events"]
        found = _described(
            comm, pid=pid, thread=thread, number=number, name=name, operation=operation, delay=delay
        )
        skipped = max(self._skipped - (not sum_), 0)
        _print_list("event", found | {"kernel": kernel, "user": user, "copy": copy, "skipped": skipped})
        self._skipped = -1 if sum_ else 0  # it will be among those added up

    def _count(self, key: tuple[Any, ...] | None, count: int, total: int, largest: int) -> None:
        """Count events that were reported, or that aren't counted if they have no key."""
        if key is None:
            self._refuted += count
            return
        self._skipped += count
        self._largest = max(self._largest, largest)
        self._aggregate.add(key, count, total)

    def _see_processes(self, key: tuple[Any, ...]) -> None:
        self._aggregate.processes.add(key[0])
        if waker := key[8]:
            self._aggregate.processes.add(waker[0][0])

    def _read_sums(self) -> None:
        """Count what the kernel has added up since the last call; forget what it doesn't any more."""
        table = self._bpf["sums"]
        found = [(number, sum_.count, sum_.total, sum_.max) for number, sum_ in table.items_lookup_batch()]
        self._read_events()  # which tell what the sums are of
        for number, count, total, largest in found:
            known = self._sums.get(number)
            if known is None:  # the kernel had no room to tell
                continue
            if count == known.count:
                known.idle += 1
                if known.idle >= _IDLE_TICKS and len(found) > _MANY_SUMS:
                    del table[table.Key(number)], self._sums[number]
                continue
            self._count(known.key, count - known.count, total - known.total, largest)
            known.count, known.total, known.idle = count, total, 0
            if known.key:
                self._see_processes(known.key)
        self._announce()

    def _stack(self, record: bytes, at: int) -> tuple[tuple[int, str], str, str, int]:
        """Return the pid and comm in a struct stack, its addresses in kernel and process, and its copy."""
        kernel, user, comm, pid, _, copy = _STACK.unpack_from(record, at)
        at += _STACK.size
        kernel_part = record[at : at + max(0, min(kernel, self._kernel_bytes))]
        at += self._kernel_bytes
        return (pid, _text(comm)), kernel_part.hex(), record[at : at + max(0, user)].hex(), copy

    def _refutes(self, kernel: str) -> bool:
        """Return whether a stack has one of the functions whose events aren't counted."""
        if kernel not in self._refuting:
            if len(self._refuting) > _MOST_STACKS:
                self._refuting.clear()
            names = (self._bpf.ksym(address) for address in memoryview(bytes.fromhex(kernel)).cast("Q"))
            self._refuting[kernel] = any(name.startswith(self._not_counted) for name in names)
        return self._refuting[kernel]

    def tick(self) -> None:
        """Print what was counted since the last tick, and start again at 0."""
        finished, self._generation = self._generation, self._generation + 1
        self._write_settings()
        # What is still being counted in the other CPUs' last moment lands in the next tick.
        counts = self._bpf["counted"][0]
        below, dropped = (self._new_buckets(name, counts) for name in ("below", "dropped"))
        found = [part.extremes[finished & 1] for part in counts]
        found = [part for part in found if part.generation == finished]
        self._read_sums()
        aggregate, self._aggregate = self._aggregate, _Aggregate()
        self._announced.clear()
        self._read_events()  # and so the copies that were sent before these events
        totals = [sum(part.counters[i] for part in counts) for i in range(len(_COUNTERS))]
        counters = {
            name: total - last
            for name, total, last in zip(_COUNTERS, totals, self._last_counters, strict=True)
        }
        self._last_counters = totals
        left_out = sum(count for count, _ in aggregate.left_out.values())
        unseen_before, self._unseen = self._unseen, skipped_runs(os.getpid())
        counters |= {
            "below": sum(count for count, _ in below.values()),
            "left_out": left_out,
            "abandoned": self._abandoned + self._refuted,
            "unseen": self._unseen - unseen_before,
        }
        counters["reported"] -= left_out + self._refuted
        counters["seen"] -= self._refuted
        largest = max((part.max for part in found), default=0)
        if self._refuted and not dropped:
            largest = min(largest, self._largest or self._settings["threshold"])
        self._abandoned = self._refuted = self._largest = 0
        for bucket, (count, total) in aggregate.left_out.items():
            before = dropped.get(bucket, (0, 0))
            dropped[bucket] = before[0] + count, before[1] + total
        _print_list(
            "tick",
            {
                "stacks": [
                    [(pid, _text(comm)), number, name, operation, kernel, user, copy, waker, bucket, *counts]
                    for (pid, comm, number, name, operation, kernel, user, copy, waker, bucket), counts in (
                        aggregate.stacks.items()
                    )
                ],
                "below": below,
                "dropped": dropped,
                "counters": counters,
                "min": min((part.min for part in found), default=0),
                "max": largest,
            },
        )
        self._refresh_filters()

    def _new_buckets(self, name: str, counts: list[Any]) -> dict[int, tuple[int, int]]:
        """Return what the CPUs added to these buckets since the last call, without empty ones."""
        sums = [
            (sum(bucket.count for bucket in buckets), sum(bucket.total for bucket in buckets))
            for buckets in zip(*(getattr(part, name) for part in counts), strict=True)
        ]
        before = self._last.get(name, [(0, 0)] * len(sums))
        self._last[name] = sums
        return {
            index: (count - old_count, total - old_total)
            for index, ((count, total), (old_count, old_total)) in enumerate(zip(sums, before, strict=True))
            if count != old_count
        }

    def in_flight(self) -> list[dict[str, Any]]:
        """Return what is in flight, longest first, with the stack that it waits in if that is known."""
        now = time.monotonic_ns()
        found = sorted(self._entries(), key=lambda item: item[1].start)[:_MOST_LISTED]
        return [self._waiting(key, entry, now) for key, entry in found]

    def _entries(self) -> Iterator[tuple[Any, Any]]:
        for key, entry in self._bpf["entries"].items_lookup_batch():
            if entry.start:
                yield key, entry

    def _waiting(self, key: Any, entry: Any, now: int) -> dict[str, Any]:
        comm, name = bytes(entry.comm), _text(bytes(entry.name))
        described = _described(
            comm,
            pid=entry.pid,
            thread=entry.thread,
            number=entry.number,
            name=name,
            operation=entry.operation,
            delay=max(0, now - entry.start),
        )
        kernel, user, copy = "", "", 0
        with suppress(KeyError):
            _, kernel, user, copy = self._stack(bytes(self._bpf["stacks"][key]), 0)
        return described | {"kernel": kernel, "user": user, "copy": copy}

    def _look_for_late(self) -> None:
        """Print each entry in flight that is over the timeout, once."""
        timeout = self._settings["timeout"]
        if not timeout or time.monotonic() < self._late_due:
            return
        self._late_due = time.monotonic() + _LATE_SECONDS
        now = time.monotonic_ns()
        late = {
            (bytes(key), entry.start): (key, entry)
            for key, entry in self._entries()
            if now - entry.start >= timeout
        }
        for known in late.keys() - self._late:
            _print_list("late", self._waiting(*late[known], now))
        self._late = {*late}

    def stop(self) -> None:
        """Count nothing more, wait for the stacks of the last arrivals, so that counts add up, and tick."""
        self._is_on = False
        self._write_settings()
        time.sleep(_DRAIN_SECONDS)
        self.tick()

    def _forget_unwanted(self) -> None:
        """Forget what is in flight and doesn't pass the filters, which may have changed since it began."""
        settings, entries, stacks = self._settings, self._bpf["entries"], self._bpf["stacks"]
        processes = {key.value for key in self._bpf["processes"]}
        cgroups = {key.value for key in self._bpf["cgroups"]}
        comms = {bytes(key) for key in self._bpf["comms"]}
        for key, entry in [*entries.items_lookup_batch()]:
            if entry.operation in self._filtered_at_end:
                continue
            unwanted = (
                ((settings["pids"] or settings["executables"]) and entry.pid not in processes)
                or (settings["comms"] and bytes(entry.comm) not in comms)
                or (settings["cgroups"] and cgroup_id_of(entry.pid) not in cgroups)
            )
            for table in (entries, stacks) if unwanted else ():
                with suppress(KeyError):
                    del table[key]

    def forget_abandoned(self) -> None:
        """Forget what is in flight for too long, such as packets that nobody reads, to free its room."""
        if not self._forgotten_after:
            return
        oldest = time.monotonic_ns() - self._forgotten_after
        for key, entry in [*self._entries()]:
            if entry.start < oldest:
                with suppress(KeyError):
                    del self._bpf["entries"][key]
                    self._abandoned += 1


def _replace(table: Any, keys: Iterable[tuple[int, ...]]) -> None:
    """Make these keys the table's only ones."""
    wanted = {bytes(table.Key(*key)): table.Key(*key) for key in keys}
    for key in [*table]:
        if wanted.pop(bytes(key), None) is None:
            with suppress(KeyError):
                del table[key]
    for key in wanted.values():
        table[key] = table.Leaf(1)


def _comm_key(comm: str) -> tuple[int, int]:
    return struct.unpack("=QQ", comm.encode(errors="surrogateescape")[:15].ljust(16, b"\0"))


def _described(comm: bytes, **fields: object) -> dict[str, Any]:
    return {"comm": _text(comm), "time": time.time_ns(), **fields}


def _text(string: bytes) -> str:
    return string.partition(b"\0")[0].decode(errors="replace")


def _print_list(*items: object) -> None:
    print(json.dumps(items), flush=True)  # noqa: T201 - printing is this program's interface


def main() -> None:
    """Track until SIGINT, or until the input ends."""
    setup = json.loads(sys.stdin.readline())
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGINT, stop)
    _mount_tracing()
    if obstacle := _missing(setup["tracepoints"]):
        sys.exit(obstacle)
    try:
        tracker = _Tracker(setup)
    except Exception as error:  # noqa: BLE001 - bcc raises no other; what it means is on standard error
        sys.exit(str(error))
    _print_list("started")
    commands = sys.stdin.fileno()
    os.set_blocking(commands, False)
    tick_due = time.monotonic() + _TICK_SECONDS
    ticks, unread = 0, b""
    while not stopped:
        if select.select([commands], [], [], _DRAIN_SECONDS)[0]:
            piece = os.read(commands, 1 << 16)
            if not piece:
                break
            *lines, unread = (unread + piece).split(b"\n")
            for line in lines:
                tracker.obey(*json.loads(line))
        tracker.drain()
        if time.monotonic() >= tick_due:
            tracker.tick()
            tick_due = time.monotonic() + _TICK_SECONDS
            ticks += 1
            if ticks % _FORGET_TICKS == 0:
                tracker.forget_abandoned()
    tracker.stop()


if __name__ == "__main__":
    main()
