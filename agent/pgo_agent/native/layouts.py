"""Where files lie in the memory of processes: their addresses → frames with mappings."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pgo_agent.errors import NotReadable
from pgo_agent.native.binary import places_of
from pgo_agent.native.elf import Elf
from pgo_agent.native.kernel import Kernel
from pgo_agent.native.recording import Frame, Mapping

# A file may be called as a line looks, so that only whole lines count.
_EXECUTABLE = re.compile(
    r"^(?P<range>(?P<start>[0-9a-f]{1,16})-(?P<end>[0-9a-f]{1,16})) ..x. (?P<offset>[0-9a-f]{1,16}) \S+ "
    r"(?P<inode>\d{1,20}) *(?P<file>.*)$",
    re.MULTILINE,
)
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class _Area:
    """Executable memory; `mapping` is None where it is of no file, as what a just-in-time compiler made."""

    start: int
    end: int
    mapping: Mapping | None


class Layouts:
    """What lay where in each process that it was told of while that ran."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._forked: dict[int, int] = {}
        self._areas: dict[str, list[_Area]] = {}
        # The same part of one file is one mapping, wherever it lies in each process.
        self._mappings: dict[tuple[str, str, int, int], Mapping] = {}

    def look(self, pid: int) -> None:
        """Reads the layout of a process; if it is gone, that which was read before stays.

        Of one that was forked, those before it are read too, as far as they weren't: any number of them.
        """
        unread: int | None = pid
        while unread is not None:
            unread = self._look_at(unread)

    def _look_at(self, pid: int) -> int | None:
        """Read the layout of one process; return the one it was forked from if that is to be read next."""
        try:
            text = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
            parent = _parent(pid)
            forked = _executable(pid) == _executable(parent)
        except OSError:
            return None
        if text:  # a process that is ending has none any more
            self._texts[pid] = text
            if forked:
                self._forked[pid] = parent
                return None if parent in self._texts else parent
        return None

    def look_again(self) -> None:
        """Reads all of them once more: they may have loaded libraries since."""
        for pid in [*self._texts]:
            self.look(pid)

    def frames(self, pid: int, kernel: Sequence[int], user: Sequence[int]) -> tuple[Frame, ...]:
        """The frames of a stack: addresses in the kernel, then in the process, each from the leaf on."""
        # Some profilers have the leaf in the kernel twice.
        kernel = kernel[1:] if kernel[:1] == kernel[1:2] else kernel
        # A caller's address is where it goes on; the call is before that. pprof's tools expect the call.
        # What the kernel interrupted, by a fault or the clock, made no call.
        frames = [self._kernel.frame(max(address - (place > 0), 0)) for place, address in enumerate(kernel)]
        areas = self._areas_of(pid)
        for place, address in enumerate(user):
            frames.extend(self._frame(areas, address - (place > 0), leaf=not frames))
        return tuple(frames)

    @cached_property
    def _kernel(self) -> Kernel:
        return Kernel()

    def _frame(self, areas: Sequence[_Area], address: int, *, leaf: bool) -> Iterator[Frame]:
        """The frame at an address; none for a caller that is in no code: the stack was lost track of."""
        at = bisect_right(areas, address, key=lambda area: area.start) - 1
        if at < 0 or address >= areas[at].end:
            if leaf:
                yield Frame(address, None, "")
            return
        area = areas[at]
        start = area.mapping.start if area.mapping else area.start
        yield Frame(address - area.start + start, area.mapping, "")

    def _areas_of(self, pid: int) -> Sequence[_Area]:
        """The executable memory of a process, in order.

        One that ended before it was looked at has that of the server it was forked from, if that is known:
        if all others were forked from one.
        """
        text = self._texts.get(pid)
        if text is None:
            servers = {self._forked.get(known, known) for known in self._texts}
            text = self._texts.get(servers.pop(), "") if self._forked and len(servers) == 1 else ""
        if text not in self._areas:
            self._areas[text] = [
                self._area(pid, found)
                for found in _EXECUTABLE.finditer(text)
                if int(found["start"], 16) < int(found["end"], 16)
            ]
        return self._areas[text]

    def _area(self, pid: int, found: re.Match[str]) -> _Area:
        start, end, offset = (int(found[name], 16) for name in ("start", "end", "offset"))
        file = found["file"]
        if not file.startswith(("/", "[vdso]")):
            return _Area(start, end, None)
        path = file.removesuffix(_DELETED)
        mapped = Path(f"/proc/{pid}/map_files/{found['range']}")
        build_id = _build_id(places_of(path, [pid]), int(found["inode"]), mapped)
        if build_id:  # without it, nobody could tell whether what is at the path by now is the same
            file = path
        mapping = Mapping(file, build_id, start, end - start, offset)
        return _Area(start, end, self._mappings.setdefault((file, build_id, end - start, offset), mapping))


def _executable(pid: int) -> Path:
    return Path(f"/proc/{pid}/exe").readlink()


def _parent(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(errors="surrogateescape").splitlines():
        if line.startswith("PPid:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)


def _build_id(places: Iterable[Path], inode: int, mapped: Path) -> str:
    """That of the file of this inode; `mapped` is a way to it where another is at its path by now."""
    for place in places:
        with suppress(NotReadable, OSError):
            if place.stat().st_ino == inode:
                return Elf.read(place).build_id
    try:
        return Elf.read(mapped).build_id
    except NotReadable:
        return ""
