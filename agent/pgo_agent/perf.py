"""What `perf script` prints of a recording → its samples, each with the files that its frames are in.

For recordings with stacks (`perf record -g`), where perf prints the frames of programs as offsets in
their files. Samples of recordings without print addresses instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.errors import NotReadable
from pgo_agent.tool import run_tool

_FIELDS = "comm,pid,tid,time,period,event,ip,sym,dso"
_SCRIPT = ("script", "--show-mmap-events", "--no-inline", "--no-demangle", "--ns", "-F", _FIELDS)
# Their period is CPU time, in ns; that of others counts something else.
_CLOCKS = frozenset({"cpu-clock", "task-clock"})
_MAPPED = re.compile(
    r"PERF_RECORD_MMAP2? -?\d+/\d+: \[0x(?P<start>[0-9a-f]+)\(0x(?P<size>[0-9a-f]+)\) @ (?P<offset>\S+)"
    r"(?: <(?P<build_id>[0-9a-f]+)>| [^\]]*)?\]: \S+ (?P<file>.*)"
)
_SAMPLE = re.compile(
    r"(?P<comm>.*?) +(?P<pid>\d+)/(?P<thread>\d+) +(?P<time>\d+\.\d{9}): +(?P<period>\d+) "
    r"(?P<event>\S+?)(?::[a-zA-Z]*)?: *(?P<frame>\S.*)?"
)
_FRAME = re.compile(r"\s+(?P<at>[0-9a-f]+) (?P<symbol>.*?) \((?P<file>.*)\)")
_KERNEL = "[kernel.kallsyms]"
_UNKNOWN = "[unknown]"


@dataclass(frozen=True, slots=True)
class Mapping:
    """`size` bytes of a file, from `offset` on, that lay at `start` in memory."""

    file: str
    build_id: str
    start: int
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Frame:
    """An address in memory; `mapping` is None and `symbol` empty where perf didn't know them."""

    address: int
    mapping: Mapping | None
    symbol: str


@dataclass(frozen=True, slots=True)
class Sample:
    """`period` ns of CPU time of a thread; `time` in ns, by the clock of perf; `frames` from the leaf on."""

    comm: str
    pid: int
    thread: int
    time: int
    period: int
    frames: tuple[Frame, ...]


def read_recording(path: Path) -> list[Sample]:
    """The samples of a recording, in the order of time.

    Raises NotReadable if it isn't one of CPU time with stacks, ToolFailed if perf is missing or refuses it.
    """
    printed = run_tool("perf", *_SCRIPT, "-i", path)
    try:
        return list(parse(printed))
    except ValueError as error:
        raise NotReadable(path, str(error)) from error


def parse(lines: Iterable[str]) -> Iterator[Sample]:
    """The samples in what perf prints. Raises ValueError where it isn't what `_SCRIPT` asks for."""
    mappings: dict[str, list[Mapping]] = {}
    header: re.Match[str] | None = None
    frames: list[Frame] = []
    for line in lines:
        if not line:
            if header:
                yield _sample(header, frames)
            header, frames = None, []
        elif header:
            frames.extend(_frame(line, mappings, leaf=not frames))
        elif mapped := _MAPPED.search(line):
            mapping = _mapping(mapped)
            mappings.setdefault(mapping.file, []).insert(0, mapping)
        elif header := _SAMPLE.fullmatch(line):
            if header["event"] not in _CLOCKS:
                raise ValueError(f"its samples are of {header['event']}: record with -e cpu-clock")
            if header["frame"]:
                raise ValueError("it has no stacks: record with -g")
        else:
            raise ValueError(f"not a line of perf script: {line!r}")
    if header:
        yield _sample(header, frames)


def _sample(header: re.Match[str], frames: list[Frame]) -> Sample:
    time = int(header["time"].replace(".", ""))
    numbers = int(header["pid"]), int(header["thread"]), time, int(header["period"])
    return Sample(header["comm"].strip(), *numbers, tuple(frames))


def _mapping(mapped: re.Match[str]) -> Mapping:
    file = mapped["file"]
    return Mapping(
        file=_KERNEL if file.startswith(_KERNEL) else file,
        build_id=mapped["build_id"] or "",
        start=int(mapped["start"], 16),
        size=int(mapped["size"], 16),
        offset=int(mapped["offset"], 16),
    )


def _frame(line: str, mappings: dict[str, list[Mapping]], *, leaf: bool) -> Iterator[Frame]:
    """The frame that a line tells of; none for a caller that is in no file: perf lost track of the stack."""
    parts = _FRAME.fullmatch(line)
    if parts is None:
        raise ValueError(f"not a frame of perf script: {line!r}")
    if parts["file"] == _UNKNOWN and not leaf:
        return
    # A caller's frame is where it goes on; the call is before that. pprof's tools expect the call.
    at = int(parts["at"], 16) - (not leaf)
    symbol = "" if parts["symbol"] == _UNKNOWN else parts["symbol"]
    # The latest comes first: a file may have been replaced while perf recorded.
    for mapping in mappings.get(parts["file"], ()):
        if mapping.offset <= at < mapping.offset + mapping.size:
            yield Frame(at - mapping.offset + mapping.start, mapping, symbol)
            return
    yield Frame(at, None, symbol)
