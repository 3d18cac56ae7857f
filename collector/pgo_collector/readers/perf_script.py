"""The text that `perf script` prints of a recording, as people keep it to draw flame graphs from.

    nginx  1234/1240 [001]  5021.311201:     250000 cycles:u:
            55d0c0ffee ngx_http_process_request+0x1c (/usr/sbin/nginx)
            55d0c0fd00 main+0x80 (/usr/sbin/nginx)

Which fields of a sample are there, `-F` says. The agent has a reader of its own: it chooses the fields, and
finds the mapping of each frame in lines that `perf script` doesn't print by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from pprof_merge import Limits

from pgo_collector.errors import NotPprof
from pgo_collector.readers.stack_profile import SampleLabels, StackProfile, lines_of

# Each is matched in time that is linear in a line, whatever is in it: programs choose the names of threads.
_TIME = re.compile(r"\s(\d{1,12})\.(\d{1,9}):\s", re.ASCII)
_IDS = re.compile(r"(-?\d{1,10})(?:/(-?\d{1,10}))?", re.ASCII)
_CORE = re.compile(r"\[\d{1,5}\]", re.ASCII)
_PERIOD = re.compile(r"\d{1,18}", re.ASCII)
_ADDRESS = re.compile(r"[0-9a-f]{1,16}")
_OFFSET = re.compile(r"\+0x[0-9a-f]{1,16}\Z")
_MODIFIERS = re.compile(r":[a-zA-Z]{0,10}\Z")
_RECORD = " PERF_RECORD_"
_UNKNOWN = "[unknown]"
# The events whose period is CPU time in ns.
_CLOCKS = frozenset({"cpu-clock", "task-clock"})
_CPU = ("cpu", "nanoseconds")
_SAMPLES = ("samples", "count")
_LINES_LOOKED_AT = 200
_LONGEST_SHOWN = 60


class _Kind(NamedTuple):
    """The stack of samples, from the leaf on, their labels, and their event."""

    stack: tuple[int, ...]
    labels: SampleLabels
    event: str


class _Frame(NamedTuple):
    name: str
    file: str


class _Sample(NamedTuple):
    """A sample at a time in ns by perf's clock; the period is 0 where it isn't printed."""

    labels: SampleLabels
    event: str
    time: int
    period: int
    stack: list[_Frame]


def is_perf_script(text: str) -> bool:
    """Return whether the first line that says something is the head of a sample, or one of perf's records."""
    for line in islice(lines_of(text), _LINES_LOOKED_AT):
        if line.strip() and not line.startswith("#"):
            return _RECORD in line or _head(line) is not None
    return False


def read_perf_script(text: str, limits: Limits) -> bytes:
    """Return a profile of the samples as bare protobuf, with the labels comm, pid and thread.

    Of one event it has the number of samples and, where periods are printed, CPU time or the number of
    events. Of several events, it has a sample type for each. Raises NotPprof, which names the first line that
    perf doesn't print, and LimitExceeded.
    """
    profile = StackProfile((), limits)
    counts: Counter[_Kind] = Counter()
    periods: Counter[_Kind] = Counter()
    first = last = 0
    for sample in _samples(text):
        stack = tuple(profile.location(*frame) for frame in sample.stack)
        kind = _Kind(stack, sample.labels, sample.event)
        counts[kind] += 1
        periods[kind] += sample.period
        limits.check("samples", len(counts))
        first, last = min(first or sample.time, sample.time), max(last, sample.time)
    events = sorted({kind.event for kind in counts})
    has_periods = any(periods.values())
    limits.check("sample_types", len(events))
    for name, unit in _types(events, has_periods=has_periods):
        profile.profile.sample_type.add(type=profile.text(name), unit=profile.text(unit))
    profile.profile.duration_nanos = last - first
    if events and has_periods and len(events) == 1:
        profile.profile.period_type.CopyFrom(profile.profile.sample_type[-1])
        profile.profile.period = periods.total() // counts.total()
    for kind, count in counts.items():
        values = [count, periods[kind]] if has_periods else [count]
        if len(events) > 1:
            values = [0] * len(events)
            values[events.index(kind.event)] = periods[kind] or count
        profile.add(kind.stack, values, kind.labels)
    return profile.written()


def _types(events: list[str], *, has_periods: bool) -> list[tuple[str, str]]:
    amounts = [_CPU if event in _CLOCKS and has_periods else (event, "count") for event in events]
    if len(events) > 1:
        return amounts
    return [_SAMPLES, *amounts] if has_periods else [_SAMPLES]


def _samples(text: str) -> Iterator[_Sample]:
    sample: _Sample | None = None
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            if sample is not None:
                yield sample
            sample = None
        elif line.startswith("#") or _RECORD in line:
            continue
        elif sample is not None and line.startswith("\t") and (frame := _frame(line)) is not None:
            # Where a caller is in no file, perf lost track of the stack.
            if frame.name != _UNKNOWN or not sample.stack:
                sample.stack.append(frame)
        elif (head := _head(line)) is not None:
            if sample is not None:
                yield sample
            sample = head
        else:
            shown = line[:_LONGEST_SHOWN]
            raise NotPprof(f"line {number:,} is neither a sample nor a frame of perf script: {shown!r}")
    if sample is not None:
        yield sample


def _head(line: str) -> _Sample | None:
    """Return the sample whose head a line is: a thread, maybe a core, a time, maybe a period, an event."""
    time = _TIME.search(line)
    if time is None:
        return None
    before = line[: time.start()].rstrip()
    if _CORE.fullmatch(core := before[before.rfind(" ") + 1 :]):
        before = before[: -len(core)].rstrip()
    comm, _, of_thread = before.rpartition(" ")
    ids = _IDS.fullmatch(of_thread)
    first, _, others = line[time.end() :].lstrip().partition(" ")
    period = "0"
    if _PERIOD.fullmatch(first):
        period, (first, _, others) = first, others.lstrip().partition(" ")
    if ids is None or not comm.strip() or len(first) < len("e:") or not first.endswith(":"):
        return None
    # Without a process id, perf prints the one of the thread.
    labels = (("comm", comm.strip()), ("pid", ids[1]), ("thread", ids[2] or ids[1]))
    event = _MODIFIERS.sub("", first[:-1])
    if event.count("/") > 1:  # of a kind of cores, such as cpu_core/cycles/
        event = event.split("/")[1] or event
    # Without stacks, perf prints a sample in one line.
    only = _frame(others)
    nanos = int(time[1]) * 10**9 + int(time[2].ljust(9, "0"))
    return _Sample(labels, event, nanos, int(period), [] if only is None else [only])


def _frame(line: str) -> _Frame | None:
    """Return the frame in a line: an address, a symbol that may have blanks and brackets, and a file."""
    stripped = line.strip()
    address, _, rest = stripped.partition(" ")
    symbol, bracket, file = rest[:-1].rpartition(" (")
    if not (bracket and stripped.endswith(")") and _ADDRESS.fullmatch(address)):
        return None
    if file in {_UNKNOWN, "inlined"}:
        file = ""
    name = _OFFSET.sub("", symbol.lstrip())
    return _Frame(f"[{file.rpartition('/')[2]}]" if name == _UNKNOWN and file else name, file)
