"""Sample with `perf record`. It records all processes, which costs less than selecting some."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Event
from typing import BinaryIO

from pgo_agent.backends.backend import SamplingRequest, tell_lost
from pgo_agent.backends.profiler_process import ProfilerProcess
from pgo_agent.backends.rights import lacking, missing_rights
from pgo_agent.backends.whole_stacks import can_unwind, how_unwound, unwind, unwinding
from pgo_agent.errors import NotReadable, ToolFailed
from pgo_agent.native import (
    Elf,
    Frame,
    Mapping,
    PerfProcesses,
    Recording,
    Stack,
    candidate_paths,
)
from pgo_agent.native.perf_stream import Lost, Sampled, events

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
# perf starts sampling on a command, so that its own start isn't in the profile, and prints an answer to it.
# The stream that it records has another descriptor. It doesn't record which BPF programs come and go.
_RECORD = (
    *("record", "-q", "-a", "--buildid-mmap", "--no-bpf-event"),
    *("-D", "-1", "--control", "fd:0,3", "-o", "-"),
)
_SWAPPED = 'exec "$@" 3>&1 >/dev/fd/{stream}'  # sh itself knows descriptors of one digit only
# Of the stack of each sample, this much is copied; and there is room for the samples of a second and more of
# each CPU, since the agent may have to wait for one.
_COPIED_BYTES = 16 << 10
_SMALLEST_BUFFER, _LARGEST_BUFFER = 2 << 20, 8 << 20
# While the agent learns what files say of an address, which is new with each program, it doesn't read.
_PIPE_BYTES, _PIPE_BYTES_OF_ROOT = 1 << 20, 32 << 20


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
        reading, writing = os.pipe()
        for size in (_PIPE_BYTES, _PIPE_BYTES_OF_ROOT):
            with suppress(OSError):
                fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, size)
        with unwinding(), ThreadPoolExecutor(1) as pool, os.fdopen(writing, "wb") as stream:
            is_copied = can_unwind()
            stacks = _copied(request.frequency) if is_copied else ("-e", "cpu-clock", "-g")
            recording = pool.submit(_read, reading, request)
            sampling = (self.program, *_RECORD, *stacks, "-F", str(request.frequency))
            command = ("sh", "-c", _SWAPPED.format(stream=writing), "sh", *sampling)
            with ProfilerProcess(self.name, command, on_line=lambda _: None, inherited=(writing,)) as process:
                stream.close()
                began, lasted = process.run(duration, until, start=b"enable\n")
            read = replace(recording.result(), began=began, duration=lasted, followed=how_unwound())
            return read if is_copied else replace(read, cut_short=None)

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


def _copied(frequency: int) -> tuple[str, ...]:
    """Return the options by which perf copies the top of stacks."""
    # With --call-graph, perf would also record all memory that any process maps for data.
    copied = ("-e", f"cpu-clock/call-graph=dwarf,stack-size={_COPIED_BYTES}/")
    if lacking("CAP_IPC_LOCK"):  # perf takes as much memory as it may
        return copied
    wanted = min(max(frequency * _COPIED_BYTES, _SMALLEST_BUFFER), _LARGEST_BUFFER)
    return (*copied, "-m", f"{1 << (wanted - 1).bit_length() >> 20}M")


def _read(stream: int, request: SamplingRequest) -> Recording:
    """Return the samples of a stream of perf until its end. Raises ToolFailed if it isn't one."""
    reader = _Reader(request.names)
    with os.fdopen(stream, "rb", buffering=_PIPE_BYTES) as opened:
        try:
            recording = Recording.from_samples(0, 0, request.period, reader.samples(opened))
        except ValueError as error:
            raise ToolFailed("perf", str(error)) from error
    tell_lost(reader.lost)
    lost = sum(count for stack, (count, _) in recording.stacks.items() if not stack.frames)
    return replace(recording, lost_stacks=lost, cut_short=reader.cut_short)


class _Reader:
    """Read the samples of processes with these names; count those that were lost or are cut short."""

    def __init__(self, names: Sequence[str]) -> None:
        self.lost = self.cut_short = 0
        self._names = frozenset(names)
        self._processes = PerfProcesses(cache(_mapping_seen_by))
        self._frames: dict[tuple[object, ...], tuple[Frame, ...]] = {}

    def samples(self, stream: BinaryIO) -> Iterator[tuple[Stack, int, int]]:
        """Yield the stack of each sample, 1, and its CPU time (ns). Raises ValueError."""
        for event in events(stream):
            match event:
                case Sampled():
                    if self._processes.comm(event.pid) in self._names:
                        yield self._stack(event), 1, event.period
                case Lost():
                    self.lost += event.count
                case _:
                    self._processes.apply(event)

    def _stack(self, sample: Sampled) -> Stack:
        user = sample.user
        if sample.registers:
            user, is_whole = unwind(sample.pid, self._processes, sample.registers, sample.stack)
            self.cut_short += not is_whole
        maps = self._processes
        key = maps.text(sample.pid), maps.perf_map(sample.pid), sample.kernel, user
        if key not in self._frames:
            self._frames[key] = maps.frames(sample.pid, sample.kernel, user)
        return Stack(maps.comm(sample.thread), sample.pid, sample.thread, self._frames[key])


def _mapping_seen_by(pid: int, mapping: Mapping) -> Mapping:
    """Return the mapping, with the build id of the file that the process sees if that is another file."""
    here, there = candidate_paths(mapping.file, [pid])
    with suppress(NotReadable, OSError):
        if not (here.exists() and here.samefile(there)):
            return replace(mapping, build_id=Elf.read(there).build_id)
    return mapping
