"""Read a recording of `perf record -g` through `perf script`: its samples, with the mapping of each frame.

Recordings with stacks are required. For those, perf prints the frames of programs as file offsets; without
stacks it prints addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.errors import NotReadable
from pgo_agent.native.external_tools import run_tool
from pgo_agent.native.recording import Frame, Mapping, Recording, Stack

_FIELDS = "comm,pid,tid,time,period,event,ip,sym,dso"
_SCRIPT = (
    "script",
    "--show-mmap-events",
    "--show-task-events",
    "--no-inline",
    "--no-demangle",
    "--ns",
    "-F",
    _FIELDS,
)
# The events whose period is CPU time in ns.
_CLOCKS = frozenset({"cpu-clock", "task-clock"})
# Programs choose the names of their threads and files, and so can forge a line. Numbers are therefore matched
# with the number of digits that they can have at most.
_MAPPED = re.compile(
    r"PERF_RECORD_MMAP2? -?\d+/\d+: \[0x(?P<start>[0-9a-f]{1,16})\(0x(?P<size>[0-9a-f]{1,16})\)"
    r" @ (?P<offset>(?:0x)?[0-9a-f]{1,16})"
    r"(?: <(?P<build_id>[0-9a-f]+)>| [^\]]*)?\]: \S+ (?P<file>.*)"
)
_SAMPLE = re.compile(
    r"(?P<comm>.*?) +(?P<pid>-?\d{1,10})/(?P<thread>-?\d{1,10}) +(?P<time>\d{1,9}\.\d{9}): +"
    r"(?P<period>\d{1,12}) (?P<event>\S+?)(?::[a-zA-Z]*)?: *(?P<frame>\S.*)?"
)
_FRAME = re.compile(r"\s+(?P<at>[0-9a-f]{1,16}) (?P<symbol>.*?) \((?P<file>.*)\)")
# The name of a task, and the task that it was forked from. Other task events aren't needed.
_NAMED = re.compile(r"PERF_RECORD_COMM(?: exec)?: (?P<comm>.*):(?P<pid>\d+)/(?P<thread>\d+)$")
_FORKED = re.compile(r"PERF_RECORD_FORK\((?P<pid>\d+):(?P<thread>\d+)\):\((?P<parent>\d+):\d+\)$")
_EVENT = re.compile(r" PERF_RECORD_[A-Z0-9]+\b")
_KERNEL = "[kernel.kallsyms]"
_KERNEL_STARTS = 1 << 63
_ADDRESSES = 1 << 64
_UNKNOWN = "[unknown]"


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: `period` ns of CPU time of a thread, at `time` (ns by perf's clock).

    `process` is the name of the main thread of its process at that time, "" if perf didn't print it.
    """

    stack: Stack
    time: int
    period: int
    process: str


def read_samples(path: Path, perf: str = "perf") -> list[Sample]:
    """Return the samples of a perf.data file, in order of time. `perf` is the program to run.

    Raises NotReadable if the recording isn't of CPU time or has no stacks, and ToolFailed if perf is missing
    or can't read the file.
    """
    printed = run_tool(perf, *_SCRIPT, "-i", path)
    try:
        return list(parse(printed))
    except ValueError as error:
        raise NotReadable(path, str(error)) from error


def recording_of(samples: Sequence[Sample], ended: int) -> Recording:
    """Return a recording of samples in order of time, the last one taken at `ended` (ns since 1970)."""
    period = samples[0].period if samples else 0
    duration = samples[-1].time - samples[0].time + period if samples else 0
    counted = ((sample.stack, 1, sample.period) for sample in samples)
    return Recording.from_samples(ended - duration, duration, period, counted)


def parse(lines: Iterable[str]) -> Iterator[Sample]:
    """Yield the samples in the output of perf with `_SCRIPT`. Raises ValueError for any other text."""
    mappings: dict[str, list[Mapping]] = {}
    processes: dict[str, str] = {}
    header: re.Match[str] | None = None
    frames: list[Frame] = []
    for line in lines:
        if not line:
            if header:
                yield _sample(header, frames, processes)
            header, frames = None, []
        elif header:
            frames.extend(_frame(line, mappings, frames))
        elif _EVENT.search(line):
            _apply_event(line, mappings, processes)
        elif header := _SAMPLE.fullmatch(line):
            if header["event"] not in _CLOCKS:
                raise ValueError(
                    f"its samples are of {header['event']}, not of CPU time: record with -e cpu-clock"
                )
            if header["frame"]:
                raise ValueError("it has no stacks: record with -g")
        else:
            raise ValueError(f"not a line of perf script: {line!r}")
    if header:
        yield _sample(header, frames, processes)


def _sample(header: re.Match[str], frames: list[Frame], processes: dict[str, str]) -> Sample:
    stack = Stack(header["comm"].strip(), int(header["pid"]), int(header["thread"]), tuple(frames))
    time = int(header["time"].replace(".", ""))
    return Sample(stack, time, int(header["period"]), processes.get(header["pid"], ""))


def _apply_event(line: str, mappings: dict[str, list[Mapping]], processes: dict[str, str]) -> None:
    """Update the mappings by file, and the names of main threads by process id, from an event line."""
    if mapped := _MAPPED.search(line):
        mapping = _mapping(mapped)
        if mapping.start + mapping.size < _ADDRESSES:
            mappings.setdefault(mapping.file, []).insert(0, mapping)
    elif (named := _NAMED.search(line)) and named["pid"] == named["thread"]:
        processes[named["pid"]] = named["comm"]
    elif (forked := _FORKED.search(line)) and forked["pid"] == forked["thread"]:
        processes[forked["pid"]] = processes.get(forked["parent"], "")


def _mapping(mapped: re.Match[str]) -> Mapping:
    file = mapped["file"]
    return Mapping(
        file=_KERNEL if file.startswith(_KERNEL) else file,
        build_id=mapped["build_id"] or "",
        start=int(mapped["start"], 16),
        size=int(mapped["size"], 16),
        offset=int(mapped["offset"], 16),
    )


def _frame(line: str, mappings: dict[str, list[Mapping]], called: Sequence[Frame]) -> Iterator[Frame]:
    """Yield the frame in a line, or nothing for a caller in no file, where perf lost track of the stack."""
    parts = _FRAME.fullmatch(line)
    if parts is None:
        raise ValueError(f"not a frame of perf script: {line!r}")
    if parts["file"] == _UNKNOWN and called:
        return
    at = int(parts["at"], 16)
    # A caller's address is its return address; pprof's tools expect the call, which is before it. Code that
    # the kernel interrupted, by a fault or the clock, made no call.
    if called and (at >= _KERNEL_STARTS or called[-1].address < _KERNEL_STARTS):
        at = max(at - 1, 0)
    symbol = "" if parts["symbol"] == _UNKNOWN else parts["symbol"]
    # The latest mapping comes first: a file may have been replaced while perf recorded.
    for mapping in mappings.get(parts["file"], ()):
        if mapping.offset <= at < mapping.offset + mapping.size:
            yield Frame(at - mapping.offset + mapping.start, mapping, symbol)
            return
    yield Frame(at, None, symbol)
