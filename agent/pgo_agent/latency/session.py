"""Run a tracker: a child process with bcc, which is told the settings and tells what it counted."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from threading import Event
from typing import Protocol

from pgo_agent.backends import Bcc
from pgo_agent.backends.profiler_process import ProfilerProcess
from pgo_agent.errors import AgentError, ToolFailed
from pgo_agent.latency.settings import TrackerSettings
from pgo_agent.latency.tick import Happening, Tick
from pgo_agent.latency.trackers import KERNEL_DEPTH, USER_DEPTH, Tracker

_PROGRAM = Path(__file__).with_name("latency_program.py")
_PYTHON = Bcc().program
_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.1


class Listener(Protocol):
    """Whoever wants to hear what a tracker counts. A thread of the session makes one call at a time."""

    def add_processes(self, pids: Iterable[int]) -> None:
        """Hear of processes that have just had events, while they probably still run."""

    def add_tick(self, tick: Tick) -> None:
        """Hear of a tick."""

    def add_event(self, event: Happening, skipped: int) -> None:
        """Hear of one event over the threshold, and how many before it weren't told of."""

    def add_late(self, waiting: Happening) -> None:
        """Hear of something that has been in flight for longer than the timeout."""


class Session:
    """A tracker that runs from `start` to `stop`. Safe to use from several threads.

    `python` is a Python that has the module bcc. If the tracker fails while it runs, `failure` says why.
    """

    def __init__(self, tracker: Tracker, settings: TrackerSettings, python: str = _PYTHON) -> None:
        self.tracker, self.settings = tracker, settings
        self.failure: AgentError | None = None
        self._python = python
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._stopping, self._started, self._over = Event(), Event(), Event()
        self._answers: list[list[Happening]] = []
        self._answered = threading.Condition()
        self._process = ProfilerProcess(tracker.name, (python, "-I", _PROGRAM), self._add_line)
        # The kernel kills the child process with the thread that started it.
        self._thread = threading.Thread(target=self._run, name=f"pgo-agent-{tracker.name}", daemon=True)

    def start(self) -> None:
        """Start the tracker, and return once it counts. Raises ToolFailed, which says what is missing."""
        self._thread.start()
        while not (self._started.wait(_POLL_SECONDS) or self._over.is_set()):
            pass
        if self.failure:
            raise self.failure

    def stop(self) -> None:
        """Stop the tracker, and return once its process has ended and all was told that it counted."""
        self._stopping.set()
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Return whether the tracker still counts."""
        return not self._over.is_set()

    def listen(self, listener: Listener) -> None:
        """Tell a listener what is counted from now on."""
        with self._lock:
            self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Tell a listener nothing more."""
        with self._lock:
            self._listeners.remove(listener)

    def change(self, settings: TrackerSettings) -> None:
        """Use other settings from now on, without an interruption."""
        self.settings = settings
        self._send("set", settings.for_program())

    def in_flight(self) -> list[Happening]:
        """Return what is in flight, longest first, 1000 at most. Raises ToolFailed if there is no answer."""
        with self._answered:
            self._answers.clear()
            self._send("in_flight")
            if not self._answered.wait_for(lambda: self._answers or self._over.is_set(), _ANSWER_SECONDS):
                raise ToolFailed(self.tracker.name, f"it did not answer within {_ANSWER_SECONDS:.0f} s")
            if not self._answers:
                raise self.failure or ToolFailed(self.tracker.name, "it was stopped")
            return self._answers[0]

    def _run(self) -> None:
        try:
            with self._process as process:
                process.begin(self._stopping, self._setup())
                self._started.set()
                while not self._stopping.wait(_POLL_SECONDS):
                    process.check_alive()
                process.end()
        except AgentError as error:
            obstacles = "; ".join(Bcc(self._python).obstacles())
            self.failure = ToolFailed(self.tracker.name, obstacles) if obstacles else error
        finally:
            self._over.set()
            with self._answered:
                self._answered.notify_all()

    def _setup(self) -> bytes:
        setup = {
            "text": self.tracker.source(),
            "tracepoints": self.tracker.tracepoints,
            "own": os.getpid(),
            "depths": [KERNEL_DEPTH, USER_DEPTH],
            "interrupts": self.tracker.uses_interrupts,
            "names_syscalls": self.tracker.name == "syscall",
            "is_network": self.tracker.name == "network",
            "settings": self.settings.for_program(),
        }
        return json.dumps(setup).encode() + b"\n"

    def _send(self, *command: object) -> None:
        with self._lock:
            self._process.send(json.dumps(command).encode() + b"\n")

    def _add_line(self, line: bytes) -> None:
        kind, told = json.loads(line)
        if kind == "in_flight":
            with self._answered:
                self._answers.append([Happening.parse(self.tracker, waiting) for waiting in told])
                self._answered.notify_all()
            return
        with self._lock:
            listeners = [*self._listeners]
        if kind == "tick":
            tick = Tick.parse(self.tracker, told)
            for listener in listeners:
                listener.add_tick(tick)
        elif kind == "processes":
            for listener in listeners:
                listener.add_processes(told)
        else:
            happening = Happening.parse(self.tracker, told)
            for listener in listeners:
                if kind == "event":
                    listener.add_event(happening, told["skipped"])
                else:
                    listener.add_late(happening)


def probe(tracker: Tracker) -> None:
    """Run a tracker for a moment. Raises ToolFailed, which says what is missing."""
    session = Session(tracker, TrackerSettings())
    session.start()
    session.stop()
    if session.failure:
        raise session.failure
