"""Sample with bcc: run bcc_program.py with the Python that has bcc, and read what it prints."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import NamedTuple

from pgo_agent.backends.backend import SamplingRequest
from pgo_agent.backends.profiler_process import ProfilerProcess
from pgo_agent.backends.rights import missing_rights
from pgo_agent.logs import EventLogger
from pgo_agent.native import MemoryMaps, Recording, Stack

_log = EventLogger(__name__)
_PROGRAM = Path(__file__).with_name("bcc_program.py")


@dataclass(frozen=True, slots=True)
class Bcc:
    """The bcc backend; `program` is a Python that has the module bcc, by default the distribution's."""

    program: str = "/usr/bin/python3"
    name: str = "bcc"

    def record(self, request: SamplingRequest, duration: float, until: Event) -> Recording:
        """Sample as `Backend` documents."""
        output = _Output()
        command: tuple[str | Path, ...] = (
            self.program,
            "-I",
            _PROGRAM,
            str(request.frequency),
            *request.names,
        )
        with ProfilerProcess(self.name, command, output.add_line) as process:
            began, lasted = process.run(duration, until, before_end=output.maps.read_again)
        samples = ((stack, count, count * request.period) for stack, count in output.stacks())
        recording = Recording.from_samples(began, lasted, request.period, samples)
        return replace(recording, lost_stacks=output.lost_stacks)

    def obstacles(self) -> list[str]:
        """Return the obstacles, as `Backend` documents."""
        found = []
        if not _has_bcc(self.program):
            found.append(f"{self.program} has no module bcc: apt-get install python3-bpfcc")
        found += missing_rights("CAP_BPF", "CAP_PERFMON")
        release = platform.release()
        missing = [
            str(folder)
            for folder in (Path(f"/lib/modules/{release}/{name}") for name in ("build", "source"))
            if not folder.is_dir()
        ]
        if missing:
            found.append(
                f"the headers of kernel {release} are missing: apt-get install linux-headers-{release}, "
                f"or link {' and '.join(missing)} to the headers of a similar kernel"
            )
        return found


class _StackCount(NamedTuple):
    pid: int
    thread: int
    comm: str
    samples: int
    kernel: list[int]
    user: list[int]


class _Output:
    """The output of bcc_program.py: a JSON list on each line, its kind first."""

    def __init__(self) -> None:
        self.maps = MemoryMaps()
        self.lost_stacks = 0
        self._counts: list[_StackCount] = []

    def add_line(self, line: bytes) -> None:
        kind, *fields = json.loads(line)
        if kind == "process":
            self.maps.read(*fields)
        elif kind == "stack":
            self._counts.append(_StackCount(*fields))
        else:
            _log.warning("samples lost", count=fields[0])

    def stacks(self) -> Iterator[tuple[Stack, int]]:
        """Yield each stack with its number of samples."""
        for seen in self._counts:
            frames = self.maps.frames(seen.pid, seen.kernel, seen.user)
            if self.maps.is_lost(seen.pid, seen.kernel, seen.user):
                self.lost_stacks += seen.samples
            yield Stack(seen.comm, seen.pid, seen.thread, frames), seen.samples


def _has_bcc(python: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the program is the operator's choice
            [python, "-I", "-c", "import importlib.util as u; raise SystemExit(u.find_spec('bcc') is None)"],
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0
