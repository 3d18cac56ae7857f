"""Sample with `perf record`. It records all processes, which costs less than selecting some."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Event

from pgo_agent.backends.backend import SamplingRequest
from pgo_agent.backends.profiler_process import ProfilerProcess
from pgo_agent.backends.rights import missing_rights
from pgo_agent.errors import NotReadable
from pgo_agent.native import Elf, Frame, Mapping, Recording, Stack, candidate_paths, read_samples

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
# perf starts sampling on a command, so that its own start isn't in the profile, and prints an answer to it.
# It doesn't record which BPF programs come and go: perf 6.1 can't read some of these events.
_RECORD = (
    *("record", "-q", "-e", "cpu-clock", "-g", "-a", "--buildid-mmap", "--no-bpf-event"),
    *("-D", "-1", "--control", "fd:0,1"),
)


@dataclass(frozen=True, slots=True)
class Perf:
    """The perf backend; `program` is the path or name of perf."""

    program: str = "perf"
    name: str = "perf"

    @property
    def is_shared(self) -> bool:
        """Return False: each capture runs a process of its own."""
        return False

    def record(self, request: SamplingRequest, duration: float, until: Event) -> Recording:
        """Sample as `Backend` documents."""
        with tempfile.TemporaryDirectory(prefix="pgo-agent-") as folder:
            file = Path(folder) / "perf.data"
            command = (self.program, *_RECORD, "-F", str(request.frequency), "-o", file)
            with ProfilerProcess(self.name, command, on_line=lambda _: None) as process:
                began, lasted = process.run(duration, until, start=b"enable\n")
            samples = read_samples(file, self.program)
        seen_by = cache(_mapping_seen_by)
        kept = (
            (_stack_seen_by_process(sample.stack, seen_by), 1, sample.period)
            for sample in samples
            if sample.process in request.names
        )
        recording = Recording.from_samples(began, lasted, request.period, kept)
        lost = sum(count for stack, (count, _) in recording.stacks.items() if not stack.frames)
        return replace(recording, lost_stacks=lost)

    def obstacles(self) -> list[str]:
        """Return the obstacles, as `Backend` documents."""
        found = []
        if shutil.which(self.program) is None:
            found.append(f"{self.program} is not installed: apt-get install linux-perf")
        paranoid = int(_PARANOID.read_text())
        if paranoid > 0 and (missing := missing_rights("CAP_PERFMON")):
            instead = f"set kernel.perf_event_paranoid, which is {paranoid}, to 0 or less with sysctl"
            found.append(f"{missing[0]}, or {instead}")
        return found


def _stack_seen_by_process(stack: Stack, seen_by: Callable[[int, Mapping], Mapping]) -> Stack:
    """Return the stack with the files that its process sees, which may be in a container; perf isn't."""
    frames = []
    for frame in stack.frames:
        mapping = frame.mapping and seen_by(stack.pid, frame.mapping)
        frames.append(frame if mapping == frame.mapping else Frame(frame.address, mapping, ""))
    return replace(stack, frames=tuple(frames))


def _mapping_seen_by(pid: int, mapping: Mapping) -> Mapping:
    """Return the mapping, with the build id of the file that the process sees if that is another file."""
    here, there = candidate_paths(mapping.file, [pid])
    with suppress(NotReadable, OSError):
        if not (here.exists() and here.samefile(there)):
            return replace(mapping, build_id=Elf.read(there).build_id)
    return mapping
