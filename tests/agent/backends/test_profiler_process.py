"""Test how a profiler's process is stopped: cleanly, however long it takes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Event

import pytest
from pgo_agent.backends import profiler_process
from pgo_agent.backends.profiler_process import ProfilerProcess
from pgo_agent.errors import ToolFailed

from tests.cpu_meter import children_of

# Both end like bpftrace, which catches no signals while it prints its results.
TAKES_LONG = """
import signal, time
def end(*_):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    time.sleep(3)
    print("the rest", flush=True)
    raise SystemExit
signal.signal(signal.SIGINT, end)
print("started", flush=True)
while True:
    signal.pause()
"""
MISSES_THE_FIRST = """
import signal
signal.signal(signal.SIGINT, lambda *_: None)
print("started", flush=True)
signal.pause()
signal.pause()
print("the rest", flush=True)
"""


IGNORES_SIGNALS = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("started", flush=True)
signal.pause()
"""


def heard(program: str) -> list[bytes]:
    """Run the program and stop it; return the lines that it printed after the first."""
    said: list[bytes] = []
    with ProfilerProcess("tool", (sys.executable, "-c", program), said.append) as child:
        child.run(0.1, Event())
    return said


def test_who_takes_long_to_end_is_not_interrupted_again() -> None:
    assert heard(TAKES_LONG) == [b"the rest\n"]


def test_who_missed_a_signal_gets_another() -> None:
    assert heard(MISSES_THE_FIRST) == [b"the rest\n"]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import time; time.sleep(600)", "tool: it did not start within 0 s"),
        (
            IGNORES_SIGNALS,
            "tool: it did not end within 0 s",
        ),
        ("print('started', flush=True); raise SystemExit('no rights')", "tool: no rights"),
        ("raise SystemExit(3)", "tool: it ended with status 3"),
    ],
)
def test_who_does_not_start_run_or_end_is_told_of_and_killed(
    monkeypatch: pytest.MonkeyPatch, program: str, reason: str
) -> None:
    monkeypatch.setattr(profiler_process, "_END_SECONDS", 0.2)
    if "did not start" in reason:
        monkeypatch.setattr(profiler_process, "_START_SECONDS", 0.2)
    child = ProfilerProcess("tool", (sys.executable, "-c", program), lambda _: None)
    before = children_of(os.getpid())
    with pytest.raises(ToolFailed, match=reason), child:
        child.run(0.5, Event())
    assert children_of(os.getpid()) == before


def test_the_package_of_what_starts_profilers_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolFailed, match=r"setpriv: it is not installed .*util-linux"):
        heard(TAKES_LONG)
