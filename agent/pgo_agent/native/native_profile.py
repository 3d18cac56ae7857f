"""A recording of native programs → a pprof profile with mappings, addresses, and the lines that are known."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pgo_agent.cpu_profile import CpuProfile
from pgo_agent.errors import NotReadable
from pgo_agent.native.binary import places_of
from pgo_agent.native.elf import Elf
from pgo_agent.native.recording import Frame, Mapping, Recording, Stack
from pgo_agent.native.symbols import Line, demangled, symbolize

_Lines = dict[Frame, tuple[Line, ...]]


def native_profile(recording: Recording) -> bytes:
    """The gzipped pprof of a recording.

    Its values are samples/count and cpu/nanoseconds, its labels pid, comm and thread. A binary that isn't
    at its path any more, here or where its processes see it, or is of another build there, leaves addresses
    and the symbols that are in frames.
    Raises ToolFailed if llvm-symbolizer is missing or fails.
    """
    tables = _Tables(_lines_of(recording.stacks))
    tables.set_times(recording.began, recording.duration, recording.period)
    tables.set_main_binary(recording.stacks)
    for stack, values in recording.stacks.items():
        added = tables.profile.sample.add(value=values, location_id=map(tables.location, stack.frames))
        added.label.add(key=tables.text("pid"), num=stack.pid)
        added.label.add(key=tables.text("comm"), str=tables.text(stack.comm))
        added.label.add(key=tables.text("thread"), num=stack.thread)
    return tables.gzipped()


def _lines_of(stacks: Iterable[Stack]) -> _Lines:
    """The lines of frames, innermost first, of those of which something is known."""
    frames: dict[tuple[str, str], set[Frame]] = defaultdict(set)
    pids: dict[tuple[str, str], set[int]] = defaultdict(set)
    lines: _Lines = {}
    for stack in stacks:
        for frame in stack.frames:
            if frame.symbol:
                lines[frame] = (Line(frame.symbol, "", 0, 0),)
            if frame.mapping:
                build = frame.mapping.file, frame.mapping.build_id
                frames[build].add(frame)
                pids[build].add(stack.pid)
    for (file, build_id), of_file in frames.items():
        for place in places_of(file, pids[file, build_id]):
            with suppress(NotReadable):
                elf = Elf.read(place)
                if build_id in {"", elf.build_id}:
                    lines.update(_lines_in_binary(place, elf, of_file))
                    break
    return lines


def _lines_in_binary(path: Path, elf: Elf, frames: Iterable[Frame]) -> _Lines:
    addresses = {frame: elf.address_of(_file_offset(frame)) for frame in frames}
    asked = {frame: address for frame, address in addresses.items() if address is not None}
    answers = zip(asked, symbolize(path, list(asked.values())), strict=True)
    return {frame: lines for frame, lines in answers if lines}


def _file_offset(frame: Frame) -> int:
    assert frame.mapping  # noqa: S101 - frames are grouped by the files of their mappings
    return frame.address - frame.mapping.start + frame.mapping.offset


class _Tables(CpuProfile):
    """A profile in the making: what its messages refer to is added when it is first referred to."""

    def __init__(self, lines: _Lines) -> None:
        super().__init__()
        self._lines = lines
        self._readable = demangled({line.function for of_frame in lines.values() for line in of_frame})

    def set_main_binary(self, stacks: dict[Stack, tuple[int, int]]) -> None:
        """Puts the binary that most samples are in first, where pprof's tools look for the program."""
        binaries: Counter[Mapping] = Counter()
        for stack, (count, _) in stacks.items():
            leaf = stack.frames[0].mapping if stack.frames else None
            if leaf and leaf.file.startswith("/"):
                binaries[leaf] += count
        for mapping, _ in binaries.most_common(1):
            self._mapping(mapping)

    def location(self, frame: Frame) -> int:
        if frame not in self._ids:
            id_ = self._ids[frame] = len(self.profile.location) + 1
            mapping = self._mapping(frame.mapping) if frame.mapping else 0
            location = self.profile.location.add(id=id_, address=frame.address, mapping_id=mapping)
            for line in self._lines.get(frame, ()):
                name = self._readable[line.function]
                function = self.function(name, line.function, line.file, line.start_line)
                location.line.add(function_id=function, line=line.line)
                if mapping and line.line:
                    self._says_lines(mapping)
        return self._ids[frame]

    def _mapping(self, mapping: Mapping) -> int:
        if mapping not in self._ids:
            id_ = self._ids[mapping] = len(self.profile.mapping) + 1
            self.profile.mapping.add(
                id=id_,
                memory_start=mapping.start,
                memory_limit=mapping.start + mapping.size,
                file_offset=mapping.offset,
                filename=self.text(mapping.file),
                build_id=self.text(mapping.build_id),
            )
        return self._ids[mapping]

    def _says_lines(self, mapping: int) -> None:
        added = self.profile.mapping[mapping - 1]
        added.has_functions = added.has_filenames = added.has_line_numbers = added.has_inline_frames = True
