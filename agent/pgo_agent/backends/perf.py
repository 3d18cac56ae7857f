"""Samples by `perf record`, of all processes: to pick some costs more than to record all of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Event

from pgo_agent.backends.backend import Wanted
from pgo_agent.backends.child import Child
from pgo_agent.native.binary import as_seen_by
from pgo_agent.native.perf_script import read_recording
from pgo_agent.native.recording import Frame, Mapping, Recording, Stack

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
# It begins when it is told to, so that its start isn't part of the profile; and answers that on its output.
_RECORD = ("record", "-q", "-e", "cpu-clock", "-g", "-a", "--buildid-mmap", "-D", "-1", "--control", "fd:0,1")


@dataclass(frozen=True, slots=True)
class Perf:
    """`program` is perf."""

    program: str = "perf"
    name: str = "perf"

    def record(self, wanted: Wanted, duration: float, until: Event) -> Recording:
        """See Backend."""
        with tempfile.TemporaryDirectory(prefix="pgo-agent-") as folder:
            file = Path(folder) / "perf.data"
            command = (self.program, *_RECORD, "-F", str(wanted.frequency), "-o", file)
            with Child(self.name, command, hear=lambda _: None) as child:
                began, lasted = child.run(duration, until, start=b"enable\n")
            samples = read_recording(file, self.program)
        seen = cache(as_seen_by)
        kept = ((_in_its_files(of.stack, seen), 1, of.period) for of in samples if of.process in wanted.names)
        return Recording.of(began, lasted, wanted.period, kept)

    def obstacles(self) -> list[str]:
        """See Backend."""
        found = []
        if shutil.which(self.program) is None:
            found.append(f"{self.program} is not installed: apt-get install linux-perf")
        paranoid = int(_PARANOID.read_text())
        if os.geteuid() and paranoid > 0:
            found.append(
                f"kernel.perf_event_paranoid is {paranoid}: run it as root, or with the capability "
                "CAP_PERFMON, or set that to 0 or less with sysctl"
            )
        return found


def _in_its_files(stack: Stack, seen: Callable[[int, Mapping], Mapping]) -> Stack:
    """The stack by the files of its process, which may be in a container: perf looked at their paths here."""
    frames = []
    for frame in stack.frames:
        mapping = frame.mapping and seen(stack.pid, frame.mapping)
        frames.append(frame if mapping == frame.mapping else Frame(frame.address, mapping, ""))
    return replace(stack, frames=tuple(frames))
