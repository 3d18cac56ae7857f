"""One capture at a time on a machine: whose turn it is, and how others end it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from pgo_agent.errors import Stopped

_LOOK_SECONDS = 0.1


class Running:
    """A capture that is running, or has been: `ended` is set when it is to end, and when it has.

    `stopped` says that somebody ended it early, `partial` that what was sampled until then is wanted.
    """

    def __init__(self, *, partial: bool = False) -> None:
        self.ended = Event()
        self.over = Event()
        self.stopped = False
        self.partial = partial

    def stop(self, *, partial: bool = False) -> None:
        """Ends it early."""
        self.stopped, self.partial = True, self.partial or partial
        self.ended.set()


class Turn:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: Running | None = None

    def begin(self, *, partial: bool = False) -> Running | None:
        """Begins a capture; None while another runs."""
        with self._lock:
            if self.running is not None:
                return None
            self.running = Running(partial=partial)
            return self.running

    def end(self, running: Running) -> None:
        """It is over: another may begin."""
        with self._lock:
            self.running = None
        running.ended.set()
        running.over.set()

    @contextmanager
    def waited_for(self, until: Event) -> Iterator[Running]:
        """A capture that begins when no other runs, and ends when `until` is set. Raises Stopped."""
        while (running := self.begin(partial=True)) is None:
            if until.wait(_LOOK_SECONDS):
                raise Stopped
        threading.Thread(target=_follow, args=(until, running), name="pgo-agent-until", daemon=True).start()
        try:
            yield running
        finally:
            self.end(running)


def _follow(until: Event, running: Running) -> None:
    while not running.ended.is_set():
        if until.wait(_LOOK_SECONDS):
            running.stop()
