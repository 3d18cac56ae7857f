"""Run trackers with bpftrace: a script prints each event over the threshold, and counts the rest.

Every event comes with the number of events so far on its CPU and in its bucket, and their total delay.
Events of a CPU come in order, so a gap in these numbers is what bpftrace had to drop, with its delay. What
was dropped after the last event is in the maps that bpftrace prints when it ends.
"""

from __future__ import annotations

import json
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.backends import ONLY_FRAME_POINTERS, PARENT, Bcc, Bpftrace
from pgo_agent.errors import NotSupported
from pgo_agent.latency.histogram import lower_bound, upper_bound
from pgo_agent.latency.processes import cgroup_ids, pids_of, skipped_runs
from pgo_agent.latency.settings import TrackerSettings
from pgo_agent.latency.trackers import Tracker

_COMMON = Path(__file__).parent / "bpf" / "common.bt"
_TRACING = Path("/sys/kernel/tracing")
_START = f"""[ -d {_TRACING}/events ] || mount -t tracefs tracefs {_TRACING} || exit
exec "$@" $$"""
_MOST_WATCHED = 500  # processes, and cgroups, that a script can name
_MOST_STACKS = 5000  # different ones between two ticks
_ENVIRONMENT = {
    "BPFTRACE_MAP_KEYS_MAX": "16384",
    # Only addresses are used; looking up symbols takes longer than the events may.
    "BPFTRACE_NO_USER_SYMBOLS": "1",
}
# Compute the delay and its bucket, and count it; bucket 0 is for 0 ns, bucket i for 2^(i-1) up to 2^i ns.
_MEASURE = """$delay = nsecs - $start;
        $bucket = (uint64)0;
        $rest = $delay;
        if ($rest >= 4294967296) { $bucket += 32; $rest = $rest >> 32; }
        if ($rest >= 65536) { $bucket += 16; $rest = $rest >> 16; }
        if ($rest >= 256) { $bucket += 8; $rest = $rest >> 8; }
        if ($rest >= 16) { $bucket += 4; $rest = $rest >> 4; }
        if ($rest >= 4) { $bucket += 2; $rest = $rest >> 2; }
        if ($rest >= 2) { $bucket += 1; $rest = $rest >> 1; }
        if ($rest >= 1) { $bucket += 1; }
        if ($delay >= THRESHOLD) {
            @over[cpu, $bucket] += 1;
            @over_ns[cpu, $bucket] += $delay;
            @burst += 1;
            @offered += 1;
        } else {
            @below[$bucket] = stats($delay);
        }"""
_REPORTED = "$delay >= THRESHOLD && (@one_in < 2 ? @burst <= MOST_AT_ONCE : rand % @one_in == 0)"
_MOST_PRINTED = 50  # events in 10 ms, which bpftrace and the agent can read on a busy machine
_COUNTED = "$delay, cpu, @over[cpu, $bucket], @over_ns[cpu, $bucket]"
# Delay, CPU, events so far, their delay; process, parent, thread, number, operation; stacks, name, comm.
_EVENT_FORMAT = r'"event %llu %llu %llu %llu %llu %llu %llu %llu %llu%s\n;%s\n;%s;%s"'
_EVENT = re.compile(
    r"event (?P<delay>\d{1,20}) (?P<cpu>\d{1,10}) (?P<count>\d{1,20}) (?P<total>\d{1,20})"
    r" (?P<pid>\d{1,10}) (?P<parent>\d{1,10}) (?P<thread>\d{1,10})"
    r" (?P<number>\d{1,20}) (?P<operation>\d{1,10})"
    r"(?P<kernel>(?:\n\t.*)*)\n*;(?P<user>(?:\n\t.*)*)\n*;(?P<name>[^;]*);(?P<comm>(?s:.*))"
)
_KEY = re.compile(r"(?:\d{1,10},)?\d{1,2}", re.ASCII)  # of a map: a CPU, a bucket
_TICK = re.compile(r"tick (\d{1,10})\n", re.ASCII)
_ADDRESS = re.compile(r"\n\t([0-9a-f]{1,16}) ")
_NO_COPY = 0  # of registers and stack, which a script can't take
_LONGEST_DELAY = (1 << 63) - 1
_Place = tuple[int, int]  # a CPU and a bucket
_Sum = tuple[int, int]  # a number of events, and their total delay (ns)
# Maps that count events whose latency isn't known; and all that are printed at the end, so not cleared.
_UNKNOWN = ("table_full", "missed")
_COUNTS = frozenset({"below", "over", "over_ns", *_UNKNOWN})


@dataclass(frozen=True, slots=True)
class BpftraceTrackers:
    """The bpftrace backend; `program` is the path or name of bpftrace."""

    program: str = "bpftrace"
    name: str = "bpftrace"

    def obstacles(self) -> list[str]:
        """Return the obstacles, as `TrackerBackend` documents."""
        return Bpftrace(self.program).obstacles()

    def how_followed(self) -> str:
        """Return how callers were found, as `TrackerBackend` documents."""
        return ONLY_FRAME_POINTERS

    def feed(self, tracker: Tracker, settings: TrackerSettings) -> BpftraceFeed:
        """Return the feed of a tracker. Raises NotSupported."""
        script = script_of(tracker, settings)
        # The shell's process becomes bpftrace's, so that the script gets its number.
        command = ("sh", "-c", _START, "sh", self.program, "-q", "-f", "json", "-B", "line", "-e", script)
        # If nobody mounted tracefs, it is mounted for bpftrace only.
        own = () if os.access(_TRACING / "events", os.X_OK) else ("unshare", "--mount", "--")
        return BpftraceFeed((*own, *command), settings.threshold, settings.events)


def script_of(tracker: Tracker, settings: TrackerSettings) -> str:
    """Return the text of the bpftrace script of a tracker. Raises NotSupported."""
    if not tracker.script:
        raise _refused(f"run the tracker {tracker.name}")
    if settings.timeout:
        raise _refused("report what is in flight: leave out timeout")
    if settings.wakers:
        raise _refused("record the stacks of wakers: leave out wakers")
    wanted, filters = _filters(settings)
    text = (_COMMON.read_text() + tracker.script).replace("MEASURE", _MEASURE).replace("REPORTED", _REPORTED)
    maps = {*re.findall(r"@(\w+)", text + filters)} - _COUNTS
    words = {
        "COUNTED": _COUNTED,
        "PARENT": PARENT,
        "EVENT": _EVENT_FORMAT,
        "WANTED": wanted,
        "FILTERS": filters,
        "THRESHOLD": str(settings.threshold),
        "MOST_PRINTED": str(_MOST_PRINTED),
        "MOST_AT_ONCE": str(4 * _MOST_PRINTED),
        "CLEAR": " ".join(f"clear(@{name});" for name in sorted(maps)),
    }
    # In one pass: the name of a thread may be one of these words.
    return re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found[0]], text)


def _refused(what: str) -> NotSupported:
    return NotSupported("bpftrace", what, Bcc().obstacles())


def _filters(settings: TrackerSettings) -> tuple[str, str]:
    """Return the condition that the current process must meet, and what fills the maps that it uses."""
    conditions, filling = [f"pid != $1 && pid != {os.getpid()}"], list[str]()
    if settings.pids or settings.executables:
        pids = {*settings.pids, *pids_of(settings.executables)}
        conditions.append("@wanted[pid]")
        filling += _fill("wanted", pids, "processes")
    if settings.cgroups:
        conditions.append("@cgroups[cgroup]")
        filling += _fill("cgroups", {*cgroup_ids(settings.cgroups)}, "control groups")
        filling.append("@cgroups[(uint64)0] = 0;")
    if settings.comms:
        for comm in settings.comms:
            if not comm.isprintable() or not comm.isascii() or '"' in comm or "\\" in comm:
                raise _refused(f"filter by the name {comm!r}")
        conditions.append("(" + " || ".join(f'comm == "{comm}"' for comm in settings.comms) + ")")
    return " && ".join(conditions), "\n    ".join(filling)


def _fill(name: str, keys: set[int], kind: str) -> Iterator[str]:
    if len(keys) > _MOST_WATCHED:
        raise _refused(f"watch more than {_MOST_WATCHED} {kind}: here are {len(keys)}")
    return (f"@{name}[(uint64){key}] = 1;" for key in sorted(keys))


class BpftraceFeed:
    """The feed of a script. A line that isn't the script's is passed over, so its event counts as dropped."""

    setup = b""
    environment: Mapping[str, str] = _ENVIRONMENT

    def __init__(self, command: Sequence[str | Path], threshold: int, events: int) -> None:
        self.command = command
        self._threshold, self._pause = threshold, 1 / events
        # Since the start: the last event of a CPU and bucket; what the maps count, and what ticks told of it.
        self._last: dict[_Place, _Sum] = {}
        self._below: dict[int, _Sum] = {}
        self._below_told: dict[int, _Sum] = {}
        self._over: dict[_Place, int] = {}
        self._over_ns: dict[_Place, int] = {}
        self._unknown = dict.fromkeys(_UNKNOWN, 0)
        self._unknown_told = dict.fromkeys(_UNKNOWN, 0)
        self._unseen = self._unseen_told = 0
        self._event_due, self._skipped = 0.0, 0
        self._begin_tick()

    def _begin_tick(self) -> None:
        self._stacks: dict[tuple[Any, ...], list[int]] = {}
        self._dropped: dict[int, list[int]] = {}
        self._processes: set[int] = set()
        self._reported = self._ring_full = self._left_out = self._lost_stacks = self._longest = 0

    def messages(self, line: bytes) -> Iterator[tuple[str, Any]]:
        """Yield what a line says: an event, or a tick."""
        try:
            printed = json.loads(line.decode(errors="surrogateescape"), strict=False)
        except (ValueError, RecursionError):
            return
        told = printed.get("data") if isinstance(printed, dict) else None
        if isinstance(told, dict):
            self._read_maps(told)
        elif isinstance(told, str) and (found := _TICK.fullmatch(told)):
            self._unseen = max(self._unseen, skipped_runs(int(found[1])))
            yield "tick", self._tick()
        elif isinstance(told, str) and (found := _EVENT.fullmatch(told)):
            yield from self._add(found)

    def last_messages(self) -> Iterable[tuple[str, Any]]:
        """Return the last tick, with what was dropped and not yet known."""
        for place, count in self._over.items():
            self._drop_until(place, (count, self._over_ns.get(place, 0)))
        return [("tick", self._tick())]

    def change(self, _settings: TrackerSettings) -> bytes:
        """Refuse, since a script has its settings in its text."""
        raise _refused("change a tracker while it runs: stop it, and start it again")

    def ask_in_flight(self) -> bytes:
        """Refuse, since a script can't be asked."""
        raise _refused("list what is in flight")

    def ask_tick(self) -> bytes:
        """Return nothing, since a script can't be asked."""
        return b""

    def _read_maps(self, maps: dict[str, Any]) -> None:
        """Note what the script's maps count, by CPU and bucket, or by bucket."""
        for name, counted in maps.items():
            if name[1:] in _UNKNOWN and isinstance(counted, int):
                self._unknown[name[1:]] = counted
            if not isinstance(counted, dict):
                continue
            for key, value in counted.items():
                if not _KEY.fullmatch(key):
                    continue
                place = [int(part) for part in key.split(",")]
                if name == "@below" and len(place) == 1 and isinstance(value, dict):
                    count, total = value.get("count"), value.get("total")
                    if isinstance(count, int) and isinstance(total, int):
                        self._below[place[0]] = count, total
                elif name in {"@over", "@over_ns"} and len(place) == 2 and isinstance(value, int):
                    (self._over if name == "@over" else self._over_ns)[place[0], place[1]] = value

    def _add(self, found: re.Match[str]) -> Iterator[tuple[str, Any]]:
        delay, cpu, count, total = (int(found[name]) for name in ("delay", "cpu", "count", "total"))
        pid, thread, number = (int(found[name]) for name in ("pid", "thread", "number"))
        if delay > _LONGEST_DELAY or number > _LONGEST_DELAY:
            return
        bucket, place = delay.bit_length(), (cpu, delay.bit_length())
        self._drop_until(place, (count - 1, total - delay))
        self._last[place] = count, total
        self._longest = max(self._longest, delay)
        kernel, user = (_packed(found[name]) for name in ("kernel", "user"))
        comm, operation = found["comm"], int(found["operation"])
        self._lost_stacks += not kernel and not user
        key = ((pid, comm), number, found["name"], operation, kernel, user, _NO_COPY, None, bucket)
        if key in self._stacks or len(self._stacks) < _MOST_STACKS:
            self._reported += 1
            _increase(self._stacks.setdefault(key, [0, 0]), 1, delay)
        else:
            self._left_out += 1
            _increase(self._dropped.setdefault(bucket, [0, 0]), 1, delay)
        if pid not in self._processes:
            self._processes.add(pid)
            parent = int(found["parent"])
            yield "processes", [[pid, parent] if parent else [pid]]
        now = time.monotonic()
        if now < self._event_due:
            self._skipped += 1
            return
        self._event_due = now + self._pause
        event = {"comm": comm, "pid": pid, "thread": thread, "number": number, "name": found["name"]}
        event |= {"operation": operation, "delay": delay, "time": time.time_ns()}
        yield "event", event | {"kernel": kernel, "user": user, "copy": _NO_COPY, "skipped": self._skipped}
        self._skipped = 0

    def _drop_until(self, place: _Place, until: _Sum) -> None:
        """Count the events between the last one of a CPU and bucket, and this, as dropped."""
        last = self._last.get(place, (0, 0))
        count, total = until[0] - last[0], until[1] - last[1]
        if count > 0:
            self._ring_full += count
            _increase(self._dropped.setdefault(place[1], [0, 0]), count, max(0, total))
            self._last[place] = until

    def _tick(self) -> dict[str, Any]:
        """Return what was counted since the last tick, and start again at 0."""
        below: dict[int, tuple[int, int]] = {}
        for bucket, (count, total) in self._below.items():
            count_told, total_told = self._below_told.get(bucket, (0, 0))
            if (count, total) != (count_told, total_told):
                below[bucket] = count - count_told, max(0, total - total_told)
                self._below_told[bucket] = count, total
        unknown = {name: self._unknown[name] - self._unknown_told[name] for name in _UNKNOWN}
        self._unknown_told = {**self._unknown}
        n_below = sum(count for count, _ in below.values())
        counters = {
            "seen": n_below + self._reported + self._ring_full + self._left_out + sum(unknown.values()),
            "below": n_below,
            "reported": self._reported,
            **unknown,
            "ring_full": self._ring_full,
            "left_out": self._left_out,
            "lost_stacks": self._lost_stacks,
            "abandoned": 0,
            "unseen": self._unseen - self._unseen_told,
        }
        self._unseen_told = self._unseen
        found = {
            "stacks": [[*key, *counts] for key, counts in self._stacks.items()],
            "below": below,
            "dropped": self._dropped,
            "counters": counters,
            **self._extremes(below),
        }
        self._begin_tick()
        return found

    def _extremes(self, below: Mapping[int, object]) -> dict[str, int]:
        """Return the bounds of what is only known by its bucket, and the longest that was reported."""
        buckets = {*below, *self._dropped, *(key[-1] for key in self._stacks)}
        shortest = lower_bound(min(buckets, default=0))
        by_bucket = max((upper_bound(bucket) - 1 for bucket in self._dropped), default=0)
        if not self._longest and not by_bucket and below:
            by_bucket = min(upper_bound(max(below)), self._threshold) - 1
        return {"min": shortest, "max": max(self._longest, by_bucket)}


def _packed(stack: str) -> str:
    """Return the addresses in a stack that bpftrace printed, as the hex of native 64-bit numbers."""
    addresses = [int(address, 16) for address in _ADDRESS.findall(stack)]
    return struct.pack(f"={len(addresses)}Q", *addresses).hex()


def _increase(counted: list[int], count: int, total: int) -> None:
    counted[0] += count
    counted[1] += total
