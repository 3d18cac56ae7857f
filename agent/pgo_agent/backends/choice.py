"""Which of the backends works on this machine: each is tried, for a second, on a process that is busy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from pgo_agent.backends.backend import Backend, Wanted
from pgo_agent.backends.bcc import Bcc
from pgo_agent.backends.bpftrace import Bpftrace
from pgo_agent.backends.perf import Perf
from pgo_agent.errors import AgentError, NoBackend, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgo_agent.native.recording import Recording

_PROBE_SECONDS = 1.0
_PROBED = "pgo-agent-probe"
_BUSY = f"open('/proc/self/comm', 'w').write('{_PROBED}')\nwhile True: pass"


def backends() -> dict[str, Backend]:
    """All that there are, by their names, those that are preferred first."""
    return {backend.name: backend for backend in (Bcc(), Perf(), Bpftrace())}


def recorded(backend: Backend, wanted: Wanted, duration: float, until: Event) -> Recording:
    """What the backend recorded. Raises as that; if it fails, with what is known to be in its way here.

    What the tools themselves say of missing rights and packages leads people astray.
    """
    try:
        return backend.record(wanted, duration, until)
    except ToolFailed as error:
        obstacles = "; ".join(backend.obstacles())
        if not obstacles:
            raise
        raise ToolFailed(backend.name, obstacles) from error


def probe(backend: Backend) -> None:
    """Returns if the backend gives samples, with stacks in them. Raises ToolFailed and NotReadable."""
    with _busy_process():
        recording = recorded(backend, Wanted((_PROBED,), 99), _PROBE_SECONDS, Event())
    if not any(frame.mapping for stack in recording.stacks for frame in stack.frames):
        raise ToolFailed(backend.name, "it saw nothing of a process that was busy")


def choose(candidates: Iterable[Backend]) -> Backend:
    """The first of them that works. Raises NoBackend, with the reason for each."""
    reasons = {}
    for backend in candidates:
        try:
            probe(backend)
        except AgentError as error:
            reasons[backend.name] = str(error)
        else:
            return backend
    raise NoBackend(reasons)


@contextmanager
def _busy_process() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", _BUSY]) as process:  # noqa: S603 - this Python
        try:
            yield
        finally:
            process.kill()
