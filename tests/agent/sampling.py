"""Use only profilers that work here, and wait until one samples: it has opened perf's events then."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from pgo_agent.backends import Backend, backends, probe
from pgo_agent.errors import AgentError

from tests.cpu_meter import CpuMeter, children_of

_PATIENCE_SECONDS = 120.0


def working(backend: Backend) -> Backend:
    """Return a profiler that works here. Skips the test, with the reason, if it doesn't."""
    if reason := _obstacle(backend.name):
        pytest.skip(reason)
    return backend


@cache  # bcc compiles for seconds
def _obstacle(name: str) -> str:
    try:
        probe(backends()[name])
    except AgentError as error:
        return str(error)
    return ""


def wait_until_begun(agent: int) -> None:
    """Return when a profiler that `agent` runs begins to sample."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not any(map(has_events, children_of(agent))):
        assert time.monotonic() < deadline, "no profiler samples"
        time.sleep(0.05)


def wait_until_sampled(agent: int, program: int) -> None:
    """Return when a profiler that `agent` runs has had a second of CPU time of `program` to sample."""
    wait_until_begun(agent)
    wait_for_cpu_time(program, 1)


def wait_for_cpu_time(program: int, seconds: float) -> None:
    """Return when `program` has taken so much CPU time from now on."""
    meter = CpuMeter(program)
    enough = meter.taken() + seconds
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while meter.taken() < enough:
        assert time.monotonic() < deadline, "the program isn't busy"
        time.sleep(0.05)


def is_bcc(pid: int) -> bool:
    """Return whether a process samples with bcc, or could."""
    with suppress(OSError):
        return b"/bcc_program.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def reads_call_frames(pid: int) -> bool:
    """Return whether a process reads call frame information for the agent."""
    with suppress(OSError):
        return b"/cfi_program.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def has_events(pid: int) -> bool:
    """Return whether a process has opened perf's events."""
    with suppress(OSError):  # the process has ended, or closed the file
        return any(
            str(file.readlink()) == "anon_inode:[perf_event]" for file in Path(f"/proc/{pid}/fd").iterdir()
        )
    return False
