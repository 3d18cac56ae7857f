"""Know the processes that perf's events tell of, also after their end: their names and memory maps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pgo_agent.native.memory_maps import Area, MemoryMaps, map_area
from pgo_agent.native.perf_maps import JitCode, PerfMap
from pgo_agent.native.perf_stream import Forked, Mapped, Named
from pgo_agent.native.recording import Mapping

_NO_PROCESS = 1 << 31  # the kernel's own mappings


@dataclass(slots=True)
class _Memory:
    """Executable memory, by address. Processes share it until one maps more; `key` names this state."""

    areas: list[Area] = field(default_factory=list)
    is_shared: bool = False
    key: str = ""


class PerfProcesses(MemoryMaps):
    """The processes as of the last event. `seen_by` returns a mapping as a process sees it."""

    def __init__(self, seen_by: Callable[[int, Mapping], Mapping]) -> None:
        super().__init__()
        self._seen_by = seen_by
        self._comms: dict[int, str] = {}  # by thread; that of the main one is the name of the process
        self._memory: dict[int, _Memory] = {}
        self._keys = map(str, itertools.count(1))
        self._seen: dict[tuple[str, PerfMap | None], list[Area]] = {}
        self._shared: dict[tuple[str, str, int, int], Mapping] = {}

    def apply(self, event: Mapped | Named | Forked) -> None:
        """Change what is known as the event says."""
        match event:
            case Mapped() if event.pid < _NO_PROCESS:
                self._map(event)
            case Named():
                self._comms[event.thread] = event.comm
                if event.is_exec:
                    self._memory.pop(event.pid, None)
            case Forked():
                self._comms[event.thread] = self._comms.get(event.parent_thread, "")
                if event.pid != event.parent and (memory := self._memory.get(event.parent)):
                    memory.is_shared = True
                    self._memory[event.pid] = memory

    def comm(self, thread: int) -> str:
        """Return the name of a thread, or of a process by its number; "" if it isn't known."""
        return self._comms.get(thread, "")

    def read(self, pid: int, *parents: int) -> None:
        """Do nothing: all there is to know comes by events."""

    def text(self, pid: int) -> str:
        """Return a name of a process's memory map, which others that have the same share."""
        memory = self._memory.get(pid)
        if memory is None:
            return ""
        memory.key = memory.key or next(self._keys)
        return memory.key

    def areas(self, pid: int) -> Sequence[Area]:
        """Return the executable memory of a process, by address; nothing if its map isn't known."""
        key, perf_map = self.text(pid), self.perf_map(pid)
        if key and (key, perf_map) not in self._seen:
            areas = self._memory[pid].areas
            if any(area.mapping is None for area in areas):
                self._perf_maps.look(pid)
                perf_map = self.perf_map(pid)
            self._seen[key, perf_map] = [self._seen_area(pid, area, perf_map) for area in areas]
        return self._seen.get((key, perf_map), ())

    def _map(self, event: Mapped) -> None:
        memory = self._memory.get(event.pid, _Memory())
        if memory.is_shared or memory.key:
            memory = _Memory([*memory.areas])
        self._memory[event.pid] = memory
        start, end = event.start, event.start + event.size
        mapping = None
        if event.file.startswith(("/", "[vdso]")) and not event.file.startswith("//"):
            mapping = Mapping(event.file, event.build_id, start, event.size, event.offset)
        if start < end:
            map_area(memory.areas, Area(start, end, 0, mapping))

    def _seen_area(self, pid: int, area: Area, perf_map: PerfMap | None) -> Area:
        """Return an area with the mapping that all processes share which have mapped the same."""
        if area.mapping is None:
            return area._replace(mapping=JitCode.at(area.start, area.end, perf_map)) if perf_map else area
        mapping = self._seen_by(pid, area.mapping)
        key = mapping.file, mapping.build_id, mapping.size, mapping.offset
        shared = self._shared.setdefault(key, mapping)
        return area._replace(moved=shared.start - mapping.start, mapping=shared)
