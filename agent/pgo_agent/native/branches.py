"""Read the branch records of `perf record -b`: which branches were taken, and what ran between two of them.

A CPU can record its latest branches, with each sample up to 32: from which instruction, and to which. Between
the target of one and the source of the next, each instruction ran once. So a recording is two kinds of pairs
of addresses with their numbers: ranges of instructions, and branches. As samples of pprof, a range is a stack
of its last and its first instruction, and a branch one of its target and its source. These add up in merges
as all samples do.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pgo_agent.errors import NotReadable
from pgo_agent.native.external_tools import tool_lines
from pgo_agent.native.memory_maps import Area, map_area
from pgo_agent.native.perf_script import (
    EVENT,
    FORKED,
    HEAD,
    NAMED,
    SAMPLE,
    SCRIPT,
    chosen_event,
    event_name,
    has_branches,
    mapping_in,
)
from pgo_agent.native.recording import Frame, Mapping, Recording, Stack
from pgo_agent.profile_builder import BRANCH_TYPES

# A branch, with flags after its addresses. The latest is printed first.
_BRANCH = re.compile(r"(?:^| )(0x[0-9a-f]{1,16}/0x[0-9a-f]{1,16})/\S+")
_NOWHERE = -1
_Pair = tuple[int, int]


@dataclass(slots=True)
class _Process:
    """The code that a process has mapped, by address, and the pairs of places that were printed of it."""

    pid: int
    areas: list[Area] = field(default_factory=list)
    pairs: dict[str, _Pair] = field(default_factory=dict)
    is_shared: bool = False

    def map(self, area: Area) -> None:
        """Map memory, in place of what was mapped there."""
        map_area(self.areas, area)
        self.pairs = {}


@dataclass(slots=True)
class _Counts:
    """The ranges (last, first) and branches (target, source) of an event, as pairs of places."""

    samples: int = 0
    first: int = 0
    last: int = 0
    ranges: Counter[_Pair] = field(default_factory=Counter)
    branches: Counter[_Pair] = field(default_factory=Counter)


class _Reader:
    """Counts the branches in perf's lines: `events` has them by event, and `places` what they refer to."""

    def __init__(self) -> None:
        self.events: dict[str, _Counts] = {}
        self.places: list[tuple[Frame, int]] = []  # with the process that was seen there first
        self._rows: dict[Frame, int] = {}
        self._processes: dict[str, _Process] = {}
        # The same part of a file is one mapping, also at different addresses in different processes.
        self._mappings: dict[tuple[str, str, int, int], Mapping] = {}

    def read(self, lines: Iterable[str]) -> None:
        """Read the lines. Raises ValueError for any that aren't perf's."""
        for line in lines:
            if EVENT.search(line):
                self._apply(line)
            elif sample := SAMPLE.fullmatch(line):
                counts = self.events.setdefault(event_name(sample["event"]), _Counts())
                counts.last = int(sample["time"].replace(".", ""))
                counts.first = counts.first or counts.last
                counts.samples += 1
                self._count(counts, sample["pid"], sample["frame"] or "")
            elif line:
                raise ValueError(f"not a line of perf script: {line[:200]!r}")

    def _apply(self, line: str) -> None:
        if mapped := mapping_in(line):
            pid, mapping = mapped
            # Code that a program makes while it runs is in no file.
            if mapping.file.startswith("/") and not mapping.file.startswith("//"):
                key = mapping.file, mapping.build_id, mapping.size, mapping.offset
                known = self._mappings.setdefault(key, mapping)
                start, end = mapping.start, mapping.start + mapping.size
                self._own(pid).map(Area(start, end, known.start - start, known))
        elif (named := NAMED.search(line)) and named["exec"]:
            self._processes.pop(named["pid"], None)
        elif (
            (forked := FORKED.search(line))
            and forked["pid"] == forked["thread"]
            and (parent := self._processes.get(forked["parent"]))
        ):
            parent.is_shared = True
            self._processes[forked["pid"]] = parent

    def _own(self, pid: str) -> _Process:
        """Return a process whose areas may be changed: a copy, if they were those of others, too."""
        process = self._processes.get(pid)
        if process is None or process.is_shared:
            areas = [] if process is None else [*process.areas]
            process = self._processes[pid] = _Process(int(pid), areas)
        return process

    def _count(self, counts: _Counts, pid: str, printed: str) -> None:
        branches = _BRANCH.findall(printed)
        if len(branches) != len(printed.split()):
            raise ValueError(f"not branches of perf script: {printed[:200]!r}")
        process = self._processes.get(pid)
        if process is None:
            return
        last = _NOWHERE
        for branch in branches:
            pair = process.pairs.get(branch)
            if pair is None:
                source, target = branch.split("/")
                pair = self._place(process, int(source, 16)), self._place(process, int(target, 16))
                process.pairs[branch] = pair
            source_row, target_row = pair
            if target_row != _NOWHERE:
                if last != _NOWHERE:
                    counts.ranges[last, target_row] += 1
                if source_row != _NOWHERE:
                    counts.branches[target_row, source_row] += 1
            last = source_row

    def _place(self, process: _Process, address: int) -> int:
        row = bisect_right(process.areas, address, key=lambda each: each.start) - 1
        if row < 0 or address >= process.areas[row].end:
            return _NOWHERE
        area = process.areas[row]
        frame = Frame(address + area.moved, area.mapping, "")
        place = self._rows.setdefault(frame, len(self.places))
        if place == len(self.places):
            self.places.append((frame, process.pid))
        return place


def read_branches(path: Path, ended: int, perf: str = "perf", event: str = "") -> Recording:
    """Return the branch records of one event of a perf.data file, written at `ended` (ns since 1970).

    The two amounts of each stack are BRANCH_TYPES. `event` may be left out if there is one only. Raises
    NotReadable if there are none, and ToolFailed if perf is missing or can't read the file.
    """
    if not has_branches(path, perf):
        raise NotReadable(
            path, "it has no branch records: record with perf record -b, on a CPU that has them"
        )
    reader = _Reader()
    try:
        reader.read(tool_lines(perf, *SCRIPT, f"{HEAD},brstack", "-i", path))
        samples = Counter({name: counts.samples for name, counts in reader.events.items()})
        counts = reader.events.get(chosen_event(samples, event), _Counts())
    except ValueError as error:
        raise NotReadable(path, str(error)) from error
    recording = _recording(reader, counts, ended)
    if not recording.stacks:
        raise NotReadable(path, "none of its branches is in a file that was mapped while perf recorded")
    return recording


def _recording(reader: _Reader, counts: _Counts, ended: int) -> Recording:
    duration = counts.last - counts.first

    def stack(pair: _Pair) -> Stack:
        (leaf, pid), (caller, _) = (reader.places[row] for row in pair)
        return Stack("", pid, 0, (leaf, caller))

    # A range is straight on in one file. What looks otherwise is where the kernel interrupted.
    ranges = (
        (of, count, 0)
        for pair, count in counts.ranges.items()
        for of in (stack(pair),)
        if of.frames[0].mapping == of.frames[1].mapping and of.frames[1].address <= of.frames[0].address
    )
    branches = ((stack(pair), 0, count) for pair, count in counts.branches.items())
    return Recording.from_samples(ended - duration, duration, 0, [*ranges, *branches], BRANCH_TYPES)
