"""What `perf script` prints of a recording → its samples, each with the files that its frames are in.

For recordings with stacks (`perf record -g`), where perf prints the frames of programs as offsets in
their files. Samples of recordings without print addresses instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.errors import NotReadable
from pgo_agent.native.recording import Frame, Mapping, Recording, Stack
from pgo_agent.native.tool import run_tool

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
# Their period is CPU time, in ns; that of others counts something else.
_CLOCKS = frozenset({"cpu-clock", "task-clock"})
# Programs choose what threads and files are called, and so may forge a line; numbers have as many digits as
# they can have.
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
# What a task is called, and which task it was forked from; other events of tasks are of no use here.
_NAMED = re.compile(r"PERF_RECORD_COMM(?: exec)?: (?P<comm>.*):(?P<pid>\d+)/(?P<thread>\d+)$")
_FORKED = re.compile(r"PERF_RECORD_FORK\((?P<pid>\d+):(?P<thread>\d+)\):\((?P<parent>\d+):\d+\)$")
_EVENT = re.compile(r" PERF_RECORD_[A-Z0-9]+\b")
_KERNEL = "[kernel.kallsyms]"
_KERNEL_STARTS = 1 << 63
_ADDRESSES = 1 << 64
_UNKNOWN = "[unknown]"


@dataclass(frozen=True, slots=True)
class Sample:
    """`period` ns of CPU time of a thread; `time` in ns, by the clock of perf.

    `process` is what the kernel called the main thread of its process then; empty if perf didn't say.
    """

    stack: Stack
    time: int
    period: int
    process: str


def read_recording(path: Path, perf: str = "perf") -> list[Sample]:
    """The samples of a recording, in the order of time; `perf` is the program.

    Raises NotReadable if it isn't one of CPU time with stacks, ToolFailed if perf is missing or refuses it.
    """
    printed = run_tool(perf, *_SCRIPT, "-i", path)
    try:
        return list(parse(printed))
    except ValueError as error:
        raise NotReadable(path, str(error)) from error


def whole_recording(samples: Sequence[Sample], ended: int) -> Recording:
    """All of these, in the order of time, the last of them taken at `ended` (ns since 1970)."""
    period = samples[0].period if samples else 0
    duration = samples[-1].time - samples[0].time + period if samples else 0
    counted = ((sample.stack, 1, sample.period) for sample in samples)
    return Recording.of(ended - duration, duration, period, counted)


def parse(lines: Iterable[str]) -> Iterator[Sample]:
    """The samples in what perf prints. Raises ValueError where it isn't what `_SCRIPT` asks for."""
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
            _follow(line, mappings, processes)
        elif header := _SAMPLE.fullmatch(line):
            if header["event"] not in _CLOCKS:
                raise ValueError(f"its samples are of {header['event']}: record with -e cpu-clock")
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


def _follow(line: str, mappings: dict[str, list[Mapping]], processes: dict[str, str]) -> None:
    """Keeps up with what lies where in memory, and with the names of main threads, by their ids."""
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
    """The frame that a line tells of; none for a caller that is in no file: perf lost track of the stack."""
    parts = _FRAME.fullmatch(line)
    if parts is None:
        raise ValueError(f"not a frame of perf script: {line!r}")
    if parts["file"] == _UNKNOWN and called:
        return
    at = int(parts["at"], 16)
    # A caller's frame is where it goes on; the call is before that. pprof's tools expect the call. What the
    # kernel interrupted, by a fault or the clock, made no call.
    if called and (at >= _KERNEL_STARTS or called[-1].address < _KERNEL_STARTS):
        at = max(at - 1, 0)
    symbol = "" if parts["symbol"] == _UNKNOWN else parts["symbol"]
    # The latest comes first: a file may have been replaced while perf recorded.
    for mapping in mappings.get(parts["file"], ()):
        if mapping.offset <= at < mapping.offset + mapping.size:
            yield Frame(at - mapping.offset + mapping.start, mapping, symbol)
            return
    yield Frame(at, None, symbol)
