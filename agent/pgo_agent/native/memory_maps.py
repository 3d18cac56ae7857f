"""Turn raw addresses of processes and the kernel into frames with mappings.

`MemoryMaps` reads /proc/PID/maps while processes run, and resolves their stacks afterwards. `KernelSymbols`
resolves addresses in the kernel.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pgo_agent.errors import NotReadable
from pgo_agent.native.elf import Elf, build_id_of_notes, candidate_paths
from pgo_agent.native.perf_maps import JitCode, PerfMap, PerfMaps, has_jit_code, is_jit_file
from pgo_agent.native.recording import Frame, Mapping

# Matched against whole lines only: a file name may look like a line of its own.
EXECUTABLE_LINE = re.compile(
    r"^(?P<range>(?P<start>[0-9a-f]{1,16})-(?P<end>[0-9a-f]{1,16})) ..x. (?P<offset>[0-9a-f]{1,16}) \S+ "
    r"(?P<inode>\d{1,20}) *(?P<file>.*)$",
    re.MULTILINE,
)
_DELETED = " (deleted)"
# Kernel code, by perf's name for it; the symbol types that are code.
_KERNEL_FILE = "[kernel.kallsyms]"
_CODE_TYPES = frozenset("tTwW")


class Area(NamedTuple):
    """Executable memory of a process from `start` to `end`.

    Its addresses in `mapping`, which several processes can share, are `moved` more; without a mapping, as for
    code that a program has compiled, they are as they are.
    """

    start: int
    end: int
    moved: int
    mapping: Mapping | None

    def offset(self, address: int) -> int:
        """Return the place of an address in the mapped file."""
        assert self.mapping  # noqa: S101 - the caller has looked
        return address + self.moved - self.mapping.start + self.mapping.offset


def map_area(areas: list[Area], new: Area) -> None:
    """Map memory, in place of what was mapped there. The areas are in the order of their addresses."""
    first = bisect_right(areas, new.start, key=lambda each: each.end)
    last = bisect_left(areas, new.end, key=lambda each: each.start)
    old = areas[first:last]
    left = [old[0]._replace(end=new.start)] if old and old[0].start < new.start else []
    right = [old[-1]._replace(start=new.end)] if old and old[-1].end > new.end else []
    areas[first:last] = [*left, new, *right]


class MemoryMaps:
    """The executable mappings of processes. Call `read` while a process runs, `frames` at any time after."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}  # /proc/PID/maps by pid
        self._forked: dict[int, int] = {}  # parents by pid, of processes that have the parent's map
        self._perf_maps = PerfMaps()
        # Forked processes have the same text, but code of JIT compilers is each one's own.
        self._areas: dict[tuple[str, PerfMap | None], list[Area]] = {}
        # The same part of a file is one mapping, even at different addresses in different processes.
        self._mappings: dict[tuple[str, str, int, int], Mapping] = {}

    def read(self, pid: int, *parents: int) -> None:
        """Read the memory map of a process; if the process is gone, keep the map read before.

        `parents` are the processes that it was forked from, nearest first, without having run another program
        since: if its own map can't be read any more, it has the map of the first whose can.
        """
        self._forked.update(pairwise((pid, *parents)))
        if not self._read_one(pid):
            any(parent in self._texts or self._read_one(parent) for parent in parents)

    def _read_one(self, pid: int) -> bool:
        try:
            text = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
        except OSError:
            return False
        if text:  # the map of a process that is exiting is empty
            self._texts[pid] = text
            if has_jit_code(text):
                self._perf_maps.look(pid)
        return bool(text)

    def is_lost(self, pid: int, kernel: Sized, user: Sized) -> bool:
        """Return whether a stack is empty, or is of a process whose map isn't known."""
        return self._source(pid) not in self._texts if user else not kernel

    def _source(self, pid: int) -> int:
        """Return the process whose map this one has."""
        passed = set[int]()  # the number of a process may come back as that of its own parent's parent
        while pid not in self._texts and pid in self._forked and pid not in passed:
            passed.add(pid)
            pid = self._forked[pid]
        return pid

    def read_again(self) -> None:
        """Read all maps once more: the processes may have loaded libraries since."""
        for pid in [*self._texts]:
            self.read(pid)

    def frames(self, pid: int, kernel: Sequence[int], user: Sequence[int | Frame]) -> tuple[Frame, ...]:
        """Return the frames of a stack, leaf first, from its addresses in the kernel and in the process.

        Among the latter may be frames that are known already.
        """
        # Some profilers report the leaf in the kernel twice.
        kernel = kernel[1:] if kernel[:1] == kernel[1:2] else kernel
        # A caller's address is its return address; pprof's tools expect the call, which is before it. Code
        # that the kernel interrupted, by a fault or the clock, made no call.
        frames = [self._kernel.frame(max(address - (place > 0), 0)) for place, address in enumerate(kernel)]
        areas = self.areas(pid)
        for place, at in enumerate(user):
            if isinstance(at, Frame):
                frames.append(at)
            else:
                frames.extend(self._frame(areas, at - (place > 0), leaf=not frames))
        return tuple(frames)

    @cached_property
    def _kernel(self) -> KernelSymbols:
        return KernelSymbols()

    def text(self, pid: int) -> str:
        """Return the memory map of a process as it was read; "" if it isn't known."""
        return self._texts.get(self._source(pid), "")

    def perf_map(self, pid: int) -> PerfMap | None:
        """Return the names of what a process has compiled while it ran, if they are known."""
        return self._perf_maps.of(pid)

    def area(self, pid: int, address: int) -> Area | None:
        """Return the executable memory of a process that an address is in."""
        return _at(self.areas(pid), address)

    def _frame(self, areas: Sequence[Area], address: int, *, leaf: bool) -> Iterator[Frame]:
        """Yield the frame at an address, or nothing for a caller outside of code: the stack is lost there."""
        area = _at(areas, address)
        if area is not None:
            yield Frame(address + area.moved, area.mapping, "")
        elif leaf:
            yield Frame(address, None, "")

    def areas(self, pid: int) -> Sequence[Area]:
        """Return the executable memory of a process, by address; nothing if its map isn't known."""
        pid = self._source(pid)
        text, perf_map = self._texts.get(pid, ""), self.perf_map(pid)
        if (text, perf_map) not in self._areas:
            self._areas[text, perf_map] = [
                self._area(pid, found, perf_map)
                for found in EXECUTABLE_LINE.finditer(text)
                if int(found["start"], 16) < int(found["end"], 16)
            ]
        return self._areas[text, perf_map]

    def _area(self, pid: int, found: re.Match[str], perf_map: PerfMap | None) -> Area:
        start, end, offset = (int(found[name], 16) for name in ("start", "end", "offset"))
        file = found["file"]
        if perf_map and is_jit_file(file):
            return Area(start, end, 0, JitCode.at(start, end, perf_map))
        if not file.startswith(("/", "[vdso]")):
            return Area(start, end, 0, None)
        path = file.removesuffix(_DELETED)
        mapped = Path(f"/proc/{pid}/map_files/{found['range']}")
        build_id = _build_id(candidate_paths(path, [pid]), int(found["inode"]), mapped)
        if build_id:  # without one, a new file at the path couldn't be told from the mapped one
            file = path
        mapping = Mapping(file, build_id, start, end - start, offset)
        mapping = self._mappings.setdefault((file, build_id, end - start, offset), mapping)
        return Area(start, end, mapping.start - start, mapping)


def _at(areas: Sequence[Area], address: int) -> Area | None:
    at = bisect_right(areas, address, key=lambda area: area.start) - 1
    return areas[at] if at >= 0 and address < areas[at].end else None


def _build_id(paths: Iterable[Path], inode: int, mapped: Path) -> str:
    """Return the build id of the file with this inode; read `mapped` if no path leads to it any more."""
    for path in paths:
        with suppress(NotReadable, OSError):
            if path.stat().st_ino == inode:
                return Elf.read(path).build_id
    try:
        return Elf.read(mapped).build_id
    except NotReadable:
        return ""


class KernelSymbols:
    """The running kernel's functions. Without root, /proc/kallsyms hides them, and frames have no names."""

    def __init__(
        self, symbols: Path = Path("/proc/kallsyms"), notes: Path = Path("/sys/kernel/notes")
    ) -> None:
        named = sorted(
            (int(address, 16), name.split("\t", 1)[0])
            for address, kind, name in (line.split(" ", 2) for line in symbols.read_text().splitlines())
            if kind in _CODE_TYPES
        )
        self._starts = [address for address, _ in named]
        self._names = [name for _, name in named]
        ends = {name: address for address, name in named if name in {"_text", "_etext"}}
        start, end = ends.get("_text", 0), ends.get("_etext", 0)
        build_id = build_id_of_notes(notes.read_bytes()) if notes.exists() else ""
        self._mapping = Mapping(_KERNEL_FILE, build_id, start, end - start, start)

    def frame(self, address: int) -> Frame:
        """Return the frame at an address in the kernel. Frames in modules have a symbol but no mapping."""
        at = bisect_right(self._starts, address) - 1
        # Hidden addresses are all 0.
        symbol = self._names[at] if at >= 0 and self._starts[at] else ""
        mapping = self._mapping
        inside = mapping.start <= address < mapping.start + mapping.size
        return Frame(address, mapping if inside else None, symbol)
