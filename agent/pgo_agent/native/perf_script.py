"""Read a recording of `perf record -g` through `perf script`: its samples, with the mapping of each frame.

A recording may have several events, of which one is read. `types_of` says what a profile of it measures.

Recordings with stacks are required. For those, perf prints the frames of programs as file offsets; without
stacks it prints addresses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from pgo_agent.errors import NotReadable, ToolFailed
from pgo_agent.native.external_tools import run_tool
from pgo_agent.native.perf_maps import JitCode
from pgo_agent.native.recording import (
    BY_CALL_FRAMES,
    BY_FRAME_POINTERS,
    Frame,
    Mapping,
    Recording,
    Stack,
)
from pgo_agent.native.unwinding import Unwinder
from pgo_agent.profile_builder import CPU_TYPES

# What perf prints of any recording: `-F` and the fields of a sample follow.
SCRIPT = ("script", "--show-mmap-events", "--show-task-events", "--no-inline", "--no-demangle", "--ns", "-F")
HEAD = "comm,pid,tid,time,period,event"
_FIELDS = f"{HEAD},ip,sym,dso"
# The events whose period is CPU time in ns.
_CLOCKS = frozenset({"cpu-clock", "task-clock"})
# The events that happen as code runs: their samples say how often code ran, as those of clocks do. Intel and
# Arm have names of their own for them.
_RUNNING = re.compile(
    r"(?:cpu-|ref-)?cycles|instructions|branch(?:es|-instructions)|cpu_cycles|br_retired|inst_retired"
    r"|(?:cpu_clk_unhalted|inst_retired|br_inst_retired)\..+",
    re.IGNORECASE,
)
# An event of a kind of cores, such as cpu_core/cycles/u, and any other, such as cycles:u or sched:sched_exit.
_OF_CORES = re.compile(r"(?:cpu|cpu_core|cpu_atom|armv\w+)/(?P<name>[\w.-]+)/(?P<modifiers>[a-zA-Z]*)")
_OF_ANY = re.compile(r"(?P<name>[^/]+/[^/]*/|.+?)(?::?(?<=[:/])(?P<modifiers>[ukhGHpPSDIWe]+))?")
# The modifiers that say where events count: in programs, the kernel, a hypervisor, guests or the host.
_WHERE = frozenset("ukhGH")
# The number of events that an error names.
_NAMED_EVENTS = 10
# Programs choose the names of their threads and files, and so can forge a line. Numbers are therefore matched
# with the number of digits that they can have at most.
_MAPPED = re.compile(
    r"PERF_RECORD_MMAP2? (?P<pid>-?\d{1,10})/\d+: \[0x(?P<start>[0-9a-f]{1,16})\(0x(?P<size>[0-9a-f]{1,16})\)"
    r" @ (?P<offset>(?:0x)?[0-9a-f]{1,16})"
    r"(?: <(?P<build_id>[0-9a-f]+)>| [^\]]*)?\]: \S+ (?P<file>.*)"
)
# A gap is looked at from its beginning only, which takes time that is linear in its length.
SAMPLE = re.compile(
    r"(?P<comm>.*?)(?<! ) +(?P<pid>-?\d{1,10})/(?P<thread>-?\d{1,10}) +(?P<time>\d{1,9}\.\d{9}): +"
    r"(?P<period>\d{1,12}) +(?P<event>[!-~]{1,255}):(?: +(?P<frame>\S.*)?)?"
)
_FRAME = re.compile(r"\s+(?P<at>[0-9a-f]{1,16}) (?P<symbol>.*?) \((?P<file>.*)\)")
# The name of a task, and the task that it was forked from. Other task events aren't needed.
NAMED = re.compile(r"PERF_RECORD_COMM(?P<exec> exec)?: (?P<comm>.*):(?P<pid>\d+)/(?P<thread>\d+)$")
FORKED = re.compile(r"PERF_RECORD_FORK\((?P<pid>\d+):(?P<thread>\d+)\):\((?P<parent>\d+):\d+\)$")
EVENT = re.compile(r" PERF_RECORD_[A-Z0-9]+\b")
# Where perf has the name of code that is no file's.
_JIT = re.compile(r"/tmp/perf-\d+\.map")  # noqa: S108 - perf's name for it
_KERNEL = "[kernel.kallsyms]"
_KERNEL_STARTS = 1 << 63
_ADDRESSES = 1 << 64
_UNKNOWN = "[unknown]"
# Functions that a thread begins with, in libraries without call frame information, too.
_OUTERMOST = frozenset({"main", "_start", "start_thread", "clone", "clone3", "__clone", "__clone3"})


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of an event: `period` ns of CPU time or events of a thread, at `time` (ns by perf's clock).

    `event` is its name without precision and kind of cores: `cycles:u` for `cpu_core/cycles/upp`.
    `process` is the name of the main thread of its process at that time, "" if perf didn't print it.
    `has_stack` is false if perf didn't record stacks of the event.
    """

    stack: Stack
    time: int
    period: int
    process: str
    event: str
    has_stack: bool


def read_samples(path: Path, perf: str = "perf", event: str = "") -> list[Sample]:
    """Return the samples of one event of a perf.data file, in order of time. `perf` is the program to run.

    `event` may be left out if there is one only. Raises NotReadable if it isn't there or has no stacks, and
    ToolFailed if perf is missing or can't read the file.
    """
    printed = run_tool(perf, *SCRIPT, _FIELDS, "-i", path)
    try:
        samples = samples_of(parse(printed), event)
    except ValueError as error:
        raise NotReadable(path, str(error)) from error
    if not all(sample.has_stack for sample in samples):
        reason = (
            f"its samples of {samples[0].event} have no stacks: record with -g, which follows frame pointers"
            " (as --call-graph fp), with --call-graph dwarf, or with --call-graph lbr"
        )
        with suppress(ToolFailed):
            if has_branches(path, perf):
                reason += "; convert its branch records (perf record -b) with --branches"
        raise NotReadable(path, reason)
    return samples


def has_branches(path: Path, perf: str) -> bool:
    """Return whether a recording has branch records. Raises ToolFailed."""
    return any("BRANCH_STACK" in line for line in run_tool(perf, "evlist", "-v", "-i", path))


def samples_of(samples: Iterable[Sample], event: str) -> list[Sample]:
    """Return the samples of an event, or of the only one if `event` is "".

    The event is named with the modifiers that say where it counts, or without if that is one event only.
    Raises ValueError if it isn't one.
    """
    every = list(samples)
    chosen = chosen_event(Counter(sample.event for sample in every), event)
    return [sample for sample in every if sample.event == chosen]


def chosen_event(counts: Counter[str], event: str) -> str:
    """Return the one of some events, with their numbers of samples, that is meant; raise as `samples_of`.

    Without any events and `event`, it is "".
    """
    wanted = event and event_name(event)
    chosen = {name for name in counts if wanted in {"", name}} or {
        name for name in counts if wanted == kind_of(name)
    }
    if len(chosen) == 1 or not (counts or event):
        return "".join(chosen)
    found = ", ".join(f"{name} ({count})" for name, count in counts.most_common(_NAMED_EVENTS)) or "none"
    if chosen:
        raise ValueError(f"it has samples of several events, choose one with --event: {found}")
    raise ValueError(f"it has no samples of {event}, but of: {found}")


@lru_cache(maxsize=1024)
def _spelled(event: str) -> tuple[str, str]:
    """Return the kind of an event and where it counts, such as `:u`, from any of perf's spellings of it."""
    parts = _OF_CORES.fullmatch(event) or _OF_ANY.fullmatch(event)
    if parts is None:
        return event, ""
    where = "".join(sorted(_WHERE.intersection(parts["modifiers"] or ""), reverse=True))
    return parts["name"], where and f":{where}"


def event_name(event: str) -> str:
    """Return an event's name without precision and kind of cores: `cycles:u` for `cpu_core/cycles/upp`."""
    return "".join(_spelled(event))


def kind_of(event: str) -> str:
    """Return an event's name without where it counts: `cycles` for `cycles:u`."""
    return _spelled(event)[0]


def types_of(event: str) -> Sequence[tuple[str, str]]:
    """Return the sample types, each a name and a unit, of a profile of an event.

    Compilers take `samples` for how often code ran, so other events, such as page faults, have none.
    """
    kind = kind_of(event)
    if kind in _CLOCKS:
        return CPU_TYPES
    amount = (kind, "count")
    return (CPU_TYPES[0], amount) if _RUNNING.fullmatch(kind) else (amount,)


def recording_of(samples: Sequence[Sample], ended: int) -> Recording:
    """Return a recording of one event's samples in order of time, the last at `ended` (ns since 1970).

    Its period is the mean, since perf changes the period of most events to keep to a frequency (`-F`).
    """
    types = types_of(samples[0].event) if samples else CPU_TYPES
    period = sum(sample.period for sample in samples) // max(len(samples), 1)
    duration = samples[-1].time - samples[0].time if samples else 0
    if types == CPU_TYPES:
        duration += period
    counted = ((sample.stack, 1, sample.period) for sample in samples)
    return Recording.from_samples(ended - duration, duration, period, counted, types)


def with_stacks_told(recording: Recording, path: Path, perf: str = "perf") -> Recording:
    """Return a recording of a file that says how its stacks were found, and how many are cut short.

    Raises ToolFailed if perf is missing or can't read the file.
    """
    options = "\n".join(run_tool(perf, "evlist", "-v", "-i", path))
    if "CALLCHAIN" not in options:
        return recording
    followed = BY_FRAME_POINTERS
    if "STACK_USER" in options:
        followed = BY_CALL_FRAMES
    elif "CALL_STACK" in options:
        followed = "by the CPU's records of calls"
    with Unwinder() as unwinder:
        is_start = cache(unwinder.is_start)
        cut_short = sum(
            count for stack, (count, _) in recording.stacks.items() if not _is_whole(stack, is_start)
        )
    return replace(recording, followed=followed, cut_short=cut_short)


def _is_whole(stack: Stack, is_start: Callable[[Frame], bool]) -> bool:
    """Return whether the frames in user space, if there are any, reach `main` or the start of the thread."""
    user = [frame for frame in stack.frames if frame.address < _KERNEL_STARTS]
    return not user or any(frame.symbol in _OUTERMOST for frame in user) or is_start(user[-1])


def parse(lines: Iterable[str]) -> Iterator[Sample]:
    """Yield the samples in the output of perf with `SCRIPT`. Raises ValueError for any other text."""
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
        elif EVENT.search(line):
            _apply_event(line, mappings, processes)
        elif header := SAMPLE.fullmatch(line):
            if header["frame"]:
                # Without stacks, perf prints the sample in one line.
                yield _sample(header, frames, processes)
                header = None
        else:
            raise ValueError(f"not a line of perf script: {line!r}")
    if header:
        yield _sample(header, frames, processes)


def _sample(header: re.Match[str], frames: list[Frame], processes: dict[str, str]) -> Sample:
    stack = Stack(header["comm"].strip(), int(header["pid"]), int(header["thread"]), tuple(frames))
    time = int(header["time"].replace(".", ""))
    process, event = processes.get(header["pid"], ""), event_name(header["event"])
    return Sample(stack, time, int(header["period"]), process, event, has_stack=not header["frame"])


def _apply_event(line: str, mappings: dict[str, list[Mapping]], processes: dict[str, str]) -> None:
    """Update the mappings by file, and the names of main threads by process id, from an event line."""
    if mapped := mapping_in(line):
        _, mapping = mapped
        mappings.setdefault(mapping.file, []).insert(0, mapping)
    elif (named := NAMED.search(line)) and named["pid"] == named["thread"]:
        processes[named["pid"]] = named["comm"]
    elif (forked := FORKED.search(line)) and forked["pid"] == forked["thread"]:
        processes[forked["pid"]] = processes.get(forked["parent"], "")


def mapping_in(line: str) -> tuple[str, Mapping] | None:
    """Return the process id and the mapping of an event line; None if it has none, or one of no memory."""
    mapped = _MAPPED.search(line)
    if mapped is None:
        return None
    file, start, size = mapped["file"], int(mapped["start"], 16), int(mapped["size"], 16)
    mapping = Mapping(
        file=_KERNEL if file.startswith(_KERNEL) else file,
        build_id=mapped["build_id"] or "",
        start=start,
        size=size,
        offset=int(mapped["offset"], 16),
    )
    return (mapped["pid"], mapping) if start + size < _ADDRESSES else None


def _frame(line: str, mappings: dict[str, list[Mapping]], called: Sequence[Frame]) -> Iterator[Frame]:
    """Yield the frame in a line, or nothing for a caller in no file, where perf lost track of the stack."""
    # Without its last parenthesis, the expression would look for the end of the line at each other one.
    parts = _FRAME.fullmatch(line) if line.endswith(")") else None
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
    yield Frame(at, JitCode.at(at, at + 1) if _JIT.fullmatch(parts["file"]) else None, symbol)
