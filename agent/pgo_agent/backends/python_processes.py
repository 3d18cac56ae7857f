"""Know which of the sampled processes run CPython, and what its frames are, for one capture with bcc."""

from __future__ import annotations

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

_MOST_REASONS = 3


class PythonProcesses:
    """The processes of a capture that run CPython.

    `read_frames` makes the kernel's side read the Python frames of a process from then on.
    """

    def __init__(self, maps: MemoryMaps, read_frames: Callable[[int, FrameLayout], None]) -> None:
        self._maps, self._read_frames = maps, read_frames
        self._found: dict[int, Interpreter] = {}
        self._codes = PythonCodes()
        self._without = {"": ""}  # by memory map: why the interpreter can't be read, or that there is none
        self._reasons: dict[str, int] = {}  # each with a process that was sampled
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
            self._look(pid)
        elif chain:
            return self._codes.segments(interpreter, chain) or ()
        return ()

    def count(self, pid: int, samples: int, *, has_python: bool) -> None:
        """Count samples of a process, which have Python frames or none."""
        if interpreter := self._found.get(pid):
            self._samples[has_python] += samples
            self._versions.add(interpreter.version)
        elif reason := self._without.get(self._maps.text(pid)):
            self._reasons.setdefault(reason, pid)

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
        """Find the interpreter of a process; if it has none, not again until it has other libraries."""
        text = self._maps.text(pid)
        if text in self._without:
            return
        found = find_interpreter(pid, self._maps)
        if isinstance(found, Interpreter):
            self._found[pid] = found
            self._read_frames(pid, found.frames)
        elif found is not None:  # else another with the same map, such as its parent, may still be there
            self._without[text] = found
