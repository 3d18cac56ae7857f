"""Test how a profiler's process is stopped: cleanly, however long it takes."""

from __future__ import annotations

import sys
from threading import Event

from pgo_agent.backends.profiler_process import ProfilerProcess

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
