"""Run a tracker: a child process with bcc or bpftrace, which tells what it counted."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from threading import Event
from typing import Any, Protocol

from pgo_agent.backends import ProfilerProcess, unwinding
from pgo_agent.errors import AgentError, ToolFailed
from pgo_agent.latency.backend import TrackerBackend, choose_tracker_backend
from pgo_agent.latency.copied_stacks import CopiedStacks
from pgo_agent.latency.settings import TrackerSettings
from pgo_agent.latency.tick import Happening, Tick
from pgo_agent.latency.trackers import Tracker

_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.1


class Listener(Protocol):
    """A reader of what a tracker counts. A thread of the session makes one call at a time."""

    def add_processes(self, families: Iterable[Sequence[int]]) -> None:
        """Hear of processes that have just had events, while they probably still run.

        Each comes first in a list, before those that it was forked from, if they are known.
        """

    def add_tick(self, tick: Tick) -> None:
        """Hear of a tick."""

    def add_event(self, event: Happening, skipped: int) -> None:
        """Hear of one event over the threshold, and how many before it weren't told of."""

    def add_late(self, waiting: Happening) -> None:
        """Hear of something that has been in flight for longer than the timeout."""


class Session:
    """A tracker that runs from `start` to `stop`. Safe to use from several threads.

    Without a `backend`, the first that works here runs it. Raises NotSupported if the backend can't do what
    is asked. If the tracker fails while it runs, `failure` says why.
    """

    def __init__(
        self, tracker: Tracker, settings: TrackerSettings, backend: TrackerBackend | None = None
    ) -> None:
        self.tracker, self.settings = tracker, settings
        self.backend = backend or choose_tracker_backend()
        self.failure: AgentError | None = None
        self._feed = self.backend.feed(tracker, settings)
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._copied = CopiedStacks()
        self._stopping, self._started, self._over = Event(), Event(), Event()
        self._answers: list[list[Happening]] = []
        self._answered = threading.Condition()
        self._process = ProfilerProcess(
            tracker.name, self._feed.command, self._add_line, self._feed.environment
        )
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
        """Use other settings from now on, without an interruption. Raises NotSupported."""
        command = self._feed.change(settings)
        self.settings = settings
        self._send(command)

    def in_flight(self) -> list[Happening]:
        """Return what is in flight, longest first, 1000 at most.

        Raises NotSupported, and ToolFailed if there is no answer.
        """
        return self._ask(self._feed.ask_in_flight())

    def flush(self) -> None:
        """Return when the listeners were told of all that was counted until now.

        With bpftrace, which can't be asked, up to a second is told of later. Raises ToolFailed if there is no
        answer.
        """
        if command := self._feed.ask_tick():
            self._ask(command)

    def _ask(self, command: bytes) -> list[Happening]:
        with self._answered:
            self._answers.clear()
            self._send(command)
            if not self._answered.wait_for(lambda: self._answers or self._over.is_set(), _ANSWER_SECONDS):
                raise ToolFailed(self.tracker.name, f"it did not answer within {_ANSWER_SECONDS:.0f} s")
            if not self._answers:
                raise self.failure or ToolFailed(self.tracker.name, "it was stopped")
            return self._answers[0]

    def _run(self) -> None:
        try:
            with unwinding(), self._process as process:
                process.begin(self._stopping, self._feed.setup)
                self._started.set()
                while not self._stopping.wait(_POLL_SECONDS):
                    process.check_alive()
                process.end()
            for kind, told in self._feed.last_messages():
                self._tell(kind, told)
        except AgentError as error:
            obstacles = "; ".join(self.backend.obstacles())
            self.failure = ToolFailed(self.tracker.name, obstacles) if obstacles else error
        finally:
            self._over.set()
            with self._answered:
                self._answered.notify_all()

    def _send(self, command: bytes) -> None:
        with self._lock:
            self._process.send(command)

    def _add_line(self, line: bytes) -> None:
        for kind, told in self._feed.messages(line):
            self._tell(kind, told)

    def _happening(self, told: dict[str, Any]) -> Happening:
        return Happening.parse(self.tracker, told, self._copied.whole)

    def _tell(self, kind: str, told: Any) -> None:
        if kind in {"in_flight", "flushed"}:
            with self._answered:
                self._answers.append([self._happening(waiting) for waiting in told])
                self._answered.notify_all()
            return
        if kind == "copy":
            self._copied.add(*told)
            return
        with self._lock:
            listeners = [*self._listeners]
        if kind == "tick":
            tick = Tick.parse(self.tracker, told, self._copied.whole, self.backend.how_followed())
            for listener in listeners:
                listener.add_tick(tick)
        elif kind == "processes":
            self._copied.read(told)
            for listener in listeners:
                listener.add_processes(told)
        else:
            happening = self._happening(told)
            for listener in listeners:
                if kind == "event":
                    listener.add_event(happening, told["skipped"])
                else:
                    listener.add_late(happening)


def probe(tracker: Tracker, backend: TrackerBackend | None = None) -> TrackerBackend:
    """Run a tracker for a moment, and return its backend.

    Raises NotSupported, and ToolFailed, which says what is missing.
    """
    session = Session(tracker, TrackerSettings(), backend)
    session.start()
    session.stop()
    if session.failure:
        raise session.failure
    return session.backend
