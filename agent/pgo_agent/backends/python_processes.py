"""Know which of the sampled processes run CPython, and what its frames are, for one capture with bcc."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pgo_agent.native import (
    FrameLayout,
    Interpreter,
    MemoryMaps,
    PythonCodes,
    Segment,
    find_interpreter,
)

_FIRST_PAUSE = 0.5  # seconds from a look at a process that doesn't run Python to the next; then twice as long
_MOST_REASONS = 3


class PythonProcesses:
    """The processes of a capture that run CPython.

    `read_frames` makes the kernel's side read the Python frames of a process from then on.
    """

    def __init__(self, maps: MemoryMaps, read_frames: Callable[[int, FrameLayout], None]) -> None:
        self._maps, self._read_frames = maps, read_frames
        self._found: dict[int, Interpreter] = {}
        self._codes = PythonCodes()
        self._looks: dict[int, tuple[float, float]] = {}  # when to look again, and the pause after that
        self._reasons: dict[str, int] = {}  # why a process can't be read
        self._samples: Counter[bool] = Counter()
        self._versions = set[tuple[int, int]]()

    def look_for(self, names: Sequence[str]) -> None:
        """Look at the processes that have one of the names, before they are sampled."""
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if (
                    folder.name.isdecimal()
                    and (folder / "comm").read_text(errors="surrogateescape").rstrip("\n") in names
                ):
                    self._maps.read(int(folder.name))
                    self._look(int(folder.name))

    def segments(self, pid: int, chain: bytes) -> Sequence[Segment]:
        """Return the Python frames of a thread that was sampled, by what the kernel's side read, if any."""
        interpreter = self._found.get(pid)
        if interpreter is None:
            now = time.monotonic()
            when, pause = self._looks.get(pid, (now, _FIRST_PAUSE))
            if when <= now:  # it may have just begun
                if pid in self._looks:
                    self._maps.read(pid)
                self._looks[pid] = now + pause, 2 * pause
                self._look(pid)
        elif chain:
            return self._codes.segments(interpreter, chain) or ()
        return ()

    def count(self, pid: int, samples: int, *, has_python: bool) -> None:
        """Count samples of a process, which have Python frames or none."""
        if pid in self._found:
            self._samples[has_python] += samples

    def comment(self) -> str:
        """Return how many samples have Python frames, and whose have none; "" if no process runs Python."""
        parts = []
        if count := self._samples.total():
            versions = " and ".join(f"{major}.{minor}" for major, minor in sorted(self._versions))
            parts.append(f"in {self._samples[True]} of {count} samples of CPython {versions}")
        reasons = [*self._reasons.items()]
        parts += [f"none of process {pid}: {reason}" for reason, pid in reasons[:_MOST_REASONS]]
        return f"Python frames: {'; '.join(parts)}" if parts else ""

    def _look(self, pid: int) -> None:
        found = find_interpreter(pid, self._maps)
        if isinstance(found, Interpreter):
            self._found[pid] = found
            self._versions.add(found.version)
            self._read_frames(pid, found.frames)
        elif found:
            self._reasons.setdefault(found, pid)
