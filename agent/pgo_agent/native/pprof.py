"""Turn a recording of native programs into a pprof profile, with mappings, addresses and source lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pgo_agent.errors import NotReadable
from pgo_agent.native.elf import Elf, candidate_paths
from pgo_agent.native.external_tools import Line, demangle, symbolize
from pgo_agent.native.perf_maps import JitCode, PerfMap
from pgo_agent.native.python_stacks import PythonFrame
from pgo_agent.native.recording import Frame, Mapping, Recording, Stack
from pgo_agent.profile_builder import BRANCH_TYPES, ProfileBuilder

_Lines = dict[Frame, tuple[Line, ...]]


def native_profile(recording: Recording) -> bytes:
    """Return a recording as a gzipped pprof profile.

    The sample types are the recording's; a comment says how its stacks were found. Samples have the labels
    pid, comm and thread; branch records have none, since compilers don't care who ran it. Source lines come
    from the binary at the path of its mapping, here or as its processes see it. If that file is gone or of
    another build, the profile has only addresses and the symbols that the frames have already.
    Raises ToolFailed if llvm-symbolizer or llvm-cxxfilt is missing or fails.
    """
    builder = NativeProfileBuilder(recording.stacks, recording.types)
    builder.set_times(recording.began, recording.duration, recording.period)
    builder.set_main_binary((stack, count) for stack, (count, _) in recording.stacks.items())
    builder.profile.comment.extend(map(builder.text, recording.comments()))
    for stack, values in recording.stacks.items():
        sample = builder.profile.sample.add(
            value=values[-len(recording.types) :], location_id=map(builder.location, stack.frames)
        )
        if recording.types == BRANCH_TYPES:
            continue
        sample.label.add(key=builder.text("pid"), num=stack.pid)
        sample.label.add(key=builder.text("comm"), str=builder.text(stack.comm))
        sample.label.add(key=builder.text("thread"), num=stack.thread)
    return builder.gzipped()


def function_names(stacks: Iterable[Stack]) -> dict[Frame, tuple[str, ...]]:
    """Return the functions at each frame that is known, innermost inlined call first. Raises ToolFailed."""
    lines = _source_lines(stacks)
    names = demangle({line.function for frame in lines.values() for line in frame})
    return {frame: tuple(names[line.function] for line in found) for frame, found in lines.items()}


def _source_lines(stacks: Iterable[Stack]) -> _Lines:
    """Return the source lines of each frame, innermost first; frames without any are missing."""
    frames: dict[tuple[str, str], set[Frame]] = defaultdict(set)
    pids: dict[tuple[str, str], set[int]] = defaultdict(set)
    lines: _Lines = {}
    compiled: dict[PerfMap | None, set[Frame]] = defaultdict(set)
    for stack in stacks:
        for frame in stack.frames:
            if isinstance(frame, PythonFrame):
                lines[frame] = (Line(frame.symbol, frame.file, frame.line, frame.first_line),)
            elif frame.symbol:
                lines[frame] = (Line(frame.symbol, "", 0, 0),)
            if isinstance(frame.mapping, JitCode):
                compiled[frame.mapping.names].add(frame)
            elif frame.mapping:
                build = frame.mapping.file, frame.mapping.build_id
                frames[build].add(frame)
                pids[build].add(stack.pid)
    lines.update(_lines_of_compiled(compiled))
    for (file, build_id), file_frames in frames.items():
        for path in candidate_paths(file, pids[file, build_id]):
            with suppress(NotReadable):
                elf = Elf.read(path)
                if build_id in {"", elf.build_id}:
                    lines.update(_lines_in_binary(path, elf, file_frames))
                    break
    return lines


def _lines_of_compiled(
    frames: dict[PerfMap | None, set[Frame]],
) -> Iterator[tuple[Frame, tuple[Line, ...]]]:
    """Yield the functions of what JIT compilers made, by the files that name it."""
    for perf_map, its_frames in frames.items():
        names = perf_map.names(frame.address for frame in its_frames) if perf_map else {}
        for frame in its_frames:
            if frame.address in names:
                yield frame, (Line(names[frame.address], "", 0, 0),)


def _lines_in_binary(path: Path, elf: Elf, frames: Iterable[Frame]) -> _Lines:
    addresses = {frame: elf.address_of(_file_offset(frame)) for frame in frames}
    known = {frame: address for frame, address in addresses.items() if address is not None}
    answers = zip(known, symbolize(path, list(known.values())), strict=True)
    return {frame: lines for frame, lines in answers if lines}


def _file_offset(frame: Frame) -> int:
    assert frame.mapping  # noqa: S101 - frames are grouped by the files of their mappings
    return frame.address - frame.mapping.start + frame.mapping.offset


class NativeProfileBuilder(ProfileBuilder):
    """Add locations and mappings of these stacks to a profile on first use. Raises ToolFailed."""

    def __init__(self, stacks: Iterable[Stack], types: Sequence[tuple[str, str]]) -> None:
        super().__init__(types)
        self._lines = _source_lines(stacks)
        self._demangled = demangle({line.function for frame in self._lines.values() for line in frame})

    def set_main_binary(self, stacks: Iterable[tuple[Stack, int]]) -> None:
        """Add the binary with the most leaf samples first; pprof's tools take it for the program."""
        binaries: Counter[Mapping] = Counter()
        for stack, count in stacks:
            leaf = stack.frames[0].mapping if stack.frames else None
            if leaf and leaf.file.startswith("/"):
                binaries[leaf] += count
        for mapping, _ in binaries.most_common(1):
            self._mapping(mapping)

    def location(self, frame: Frame) -> int:
        """Return the id of a frame.

        Code of JIT compilers is somewhere else in each process: its function is all that profiles share.
        """
        address, mapping, lines = frame.address, frame.mapping, self._lines.get(frame, ())
        if isinstance(mapping, JitCode):
            address, mapping = (0 if lines else address), None
        if (key := (address, mapping, lines)) not in self._ids:
            id_ = self._ids[key] = len(self.profile.location) + 1
            mapped = self._mapping(mapping) if mapping else 0
            location = self.profile.location.add(id=id_, address=address, mapping_id=mapped)
            for line in lines:
                name = self._demangled[line.function]
                function = self.function(name, line.function, line.file, line.start_line)
                location.line.add(function_id=function, line=line.line)
                if mapped and line.line:
                    self._set_has_lines(mapped)
        return self._ids[key]

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

    def _set_has_lines(self, mapping: int) -> None:
        added = self.profile.mapping[mapping - 1]
        added.has_functions = added.has_filenames = added.has_line_numbers = added.has_inline_frames = True
