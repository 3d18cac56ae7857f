"""Name the code that a JIT compiler made, by the file that it writes for perf: `/tmp/perf-PID.map`.

Node (`--perf-basic-prof`), the JVM (`jcmd PID Compiler.perfmap`), Python's perf trampolines and others write
one, each in its own mount namespace and by its own number for the process:
https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jit-interface.txt
The folder is opened while the process runs, so that its file can be read when the process is over, and one
that is written at its end, too. The file is anyone's: it is read within bounds, and only if it is the
process's own.
"""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Dict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.native.recording import Mapping

# The most folders that are held open, and so the most containers whose names are known.
_MOST_FOLDERS = 128
# What is read of a file: its end, which has the newest code. That is about 700,000 functions.
_MOST_BYTES = 32 << 20
_PIECE_BYTES = 1 << 20
_MOST_NAME_BYTES = 512
# The JVM writes numbers with 0x.
_LINE = re.compile(rb"^(?:0x)?([0-9a-fA-F]{1,16}) (?:0x)?([0-9a-fA-F]{1,16}) (.+)$", re.MULTILINE)
# The owners of a process, and its numbers, of which the last is the one that it knows itself.
_STATUS = re.compile(r"\nUid:\t(\d+)\t(\d+)\t.*\nNSpid:[\t\d]*\t(\d+)\n", re.DOTALL)
# Memory with code that is no file's, as in /proc/PID/maps: with a name that the program gave it, or without.
_JIT_FILE = re.compile(r"(?:\[anon:.*|/memfd:.*)?")
_JIT_AREA = re.compile(
    r"^[0-9a-f]+-[0-9a-f]+ ..x. [0-9a-f]+ \S+ \d+ *(?:\[anon:.*|/memfd:.*)?$", re.MULTILINE
)
_ROOT = 0


class _Folder:
    """An open folder, which stays open for as long as it is used."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class PerfMap:
    """The file of a process: `file` in a folder that the process sees, of one of its `owners` or of root."""

    folder: _Folder
    file: str
    owners: frozenset[int]

    def names(self, addresses: Iterable[int]) -> Dict[int, str]:
        """Return the functions at these addresses, as far as the file has them.

        Code that was made later stands further below, and takes the place of what was there before.
        """
        wanted, found = sorted({*addresses}), dict[int, str]()
        for line in self._lines():
            start, size = int(line[1], 16), int(line[2], 16)
            at = bisect_left(wanted, start)
            while at < len(wanted) and wanted[at] < start + size:
                found[wanted[at]] = line[3][:_MOST_NAME_BYTES].decode(errors="replace")
                at += 1
        return found

    def _lines(self) -> Iterator[re.Match[bytes]]:
        """Yield the lines of the end of the file; nothing if it isn't there, or is another's."""
        # Whoever owns the folder may have put anything there, such as a link or a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with (
            suppress(OSError),
            os.fdopen(os.open(self.file, flags, dir_fd=self.folder.descriptor), "rb") as opened,
        ):
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid not in {_ROOT, *self.owners}:
                return
            opened.seek(max(0, found.st_size - _MOST_BYTES))
            rest, left = b"", _MOST_BYTES
            while left > 0 and (piece := opened.read(min(_PIECE_BYTES, left))):
                left -= len(piece)
                whole, newline, rest = (rest + piece).rpartition(b"\n")
                if not newline:  # no line is that long
                    return
                yield from _LINE.finditer(whole)


@dataclass(frozen=True, slots=True)
class JitCode(Mapping):
    """Code of a JIT compiler in memory, which only the file of its process has names for, if it is known."""

    names: PerfMap | None

    @classmethod
    def at(cls, start: int, end: int, names: PerfMap | None = None) -> JitCode:
        """Return a range of memory."""
        return cls("", "", start, end - start, 0, names)


class PerfMaps:
    """The files of processes. Call `look` while a process runs, and `of` at any time after."""

    def __init__(self) -> None:
        self._found: dict[int, PerfMap] = {}
        self._folders: dict[tuple[int, int], _Folder] = {}

    def look(self, pid: int) -> None:
        """Find where a process has its file, if it writes one. If it is gone, what was found before stays."""
        process = Path(f"/proc/{pid}")
        with suppress(OSError):
            status = (process / "status").read_text(errors="replace")
            known, folder = _STATUS.search(status), self._opened(process / "root" / "tmp")
            if known and folder:
                owners = frozenset(map(int, known.group(1, 2)))
                self._found[pid] = PerfMap(folder, f"perf-{known[3]}.map", owners)

    def of(self, pid: int) -> PerfMap | None:
        """Return the file of a process; None if it isn't known."""
        return self._found.get(pid)

    def _opened(self, path: Path) -> _Folder | None:
        """Return the folder at a path, which processes of one container share; None if there are too many."""
        # A link would lead to where we see it, and not the process.
        folder = _Folder(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
        found = os.fstat(folder.descriptor)
        if len(self._folders) >= _MOST_FOLDERS and (found.st_dev, found.st_ino) not in self._folders:
            return None
        return self._folders.setdefault((found.st_dev, found.st_ino), folder)


def has_jit_code(maps: str) -> bool:
    """Return whether a memory map, as of /proc/PID/maps, has code that is no file's."""
    return _JIT_AREA.search(maps) is not None


def is_jit_file(file: str) -> bool:
    """Return whether the file of an area in a memory map is none."""
    return _JIT_FILE.fullmatch(file) is not None
