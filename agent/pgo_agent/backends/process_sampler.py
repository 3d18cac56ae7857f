"""Sample processes by name, with a given backend or the first one that works on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event

from pgo_agent.backends.backend import Backend, SamplingRequest
from pgo_agent.backends.bcc import Bcc
from pgo_agent.backends.bpftrace import Bpftrace
from pgo_agent.backends.perf import Perf
from pgo_agent.errors import AgentError, NoBackend, NoSamples, Stopped, ToolFailed
from pgo_agent.logs import EventLogger
from pgo_agent.native import Recording, native_profile

_log = EventLogger(__name__)
_PROBE_SECONDS = 1.0
_PROBE_NAME = "pgo-agent-probe"
# It ends with the agent, whatever ends that.
_BUSY_PROGRAM = f"""
import os, sys
open('/proc/self/comm', 'w').write('{_PROBE_NAME}')
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000): pass
"""


class ProcessSampler:
    """Take profiles of the processes with these names, `frequency` samples per second of CPU time per thread.

    Raises ValueError if no process can have one of the names, or `frequency` isn't 1 to 1000.
    """

    def __init__(self, backend: Backend, names: tuple[str, ...], frequency: int = 99) -> None:
        self._backend, self._request = backend, SamplingRequest(names, frequency)

    def sample(self, duration: float, until: Event) -> bytes:
        """Return a gzipped pprof profile, as `pgo_agent.Sampler` documents.

        Raises the errors of `record`, and ToolFailed if llvm-symbolizer is missing or fails.
        """
        return native_profile(self.record(duration, until))

    def record(self, duration: float, until: Event) -> Recording:
        """Sample for `duration` s or until `until` is set. Raises NoSamples, ToolFailed, NotReadable."""
        recording = _record(self._backend, self._request, duration, until)
        if not recording.stacks:
            raise NoSamples(self._request.names)
        if recording.lost_stacks:
            samples = sum(count for count, _ in recording.stacks.values())
            _log.warning("stacks lost", count=recording.lost_stacks, samples=samples)
        return recording


def backends() -> dict[str, Backend]:
    """Return all backends by name, in order of preference."""
    return {backend.name: backend for backend in (Bcc(), Perf(), Bpftrace())}


def _record(backend: Backend, request: SamplingRequest, duration: float, until: Event) -> Recording:
    """Return the backend's recording. Raises its errors, or ToolFailed with the known obstacles instead.

    The tools' own messages about missing rights and packages are misleading.
    """
    try:
        return backend.record(request, duration, until)
    except ToolFailed as error:
        obstacles = "; ".join(backend.obstacles())
        if not obstacles:
            raise
        raise ToolFailed(backend.name, obstacles) from error


def probe(backend: Backend, until: Event | None = None) -> Recording:
    """Sample a busy process for one second, or until `until` is set; return the recording.

    Raises ToolFailed or NotReadable unless samples have stacks of the process.
    """
    with _busy_process():
        request = SamplingRequest((_PROBE_NAME,), 99)
        recording = _record(backend, request, _PROBE_SECONDS, until or Event())
    mappings = {frame.mapping for stack in recording.stacks for frame in stack.frames if frame.mapping}
    if not any(mapping.file.startswith("/") for mapping in mappings):
        raise ToolFailed(backend.name, "it gave no stacks of a busy process")
    return recording


def choose(candidates: Iterable[Backend], until: Event | None = None) -> Backend:
    """Return the first backend that works. Raises NoBackend, with the reason for each candidate.

    Raises Stopped if `until` is set meanwhile.
    """
    until = until or Event()
    reasons = {}
    for backend in candidates:
        try:
            probe(backend, until)
        except AgentError as error:
            if until.is_set():
                raise Stopped from error
            reasons[backend.name] = str(error)
        else:
            return backend
    raise NoBackend(reasons)


@contextmanager
def _busy_process() -> Iterator[None]:
    command = [sys.executable, "-I", "-S", "-c", _BUSY_PROGRAM, str(os.getpid())]
    with subprocess.Popen(command) as process:  # noqa: S603 - this same Python
        try:
            yield
        finally:
            process.kill()
