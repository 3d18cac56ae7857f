"""Watch a tracker for as long as it runs: histograms, profiles and single events, for several readers."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Event
from typing import Any

from pgo_agent.errors import AgentError, ToolFailed
from pgo_agent.latency.backend import TrackerBackend
from pgo_agent.latency.histogram import Histogram, Windows
from pgo_agent.latency.recorder import Recorder, StackNamer
from pgo_agent.latency.session import Session
from pgo_agent.latency.settings import TrackerSettings
from pgo_agent.latency.tick import Counts, Happening, Tick
from pgo_agent.latency.trackers import Tracker

_POLL_SECONDS = 0.1
_MOST_UNREAD = 1000  # events of one stream


class EventStream:
    """The single events of a tracker for one reader; what it doesn't read in time is counted as skipped."""

    def __init__(self, namer: StackNamer) -> None:
        self._namer = namer
        self._events: queue.Queue[tuple[str, Happening]] = queue.Queue(_MOST_UNREAD)
        self._skipped = 0

    def put(self, kind: str, happening: Happening, skipped: int) -> None:
        """Add an event, and how many before it weren't told of."""
        self._skipped += skipped
        try:
            self._events.put_nowait((kind, happening))
        except queue.Full:
            self._skipped += 1

    def get(self, patience: float) -> tuple[str, dict[str, Any]] | None:
        """Return the kind ("event" or "late") and JSON of the next event; None if none comes in time (s)."""
        try:
            kind, happening = self._events.get(timeout=patience)
        except queue.Empty:
            return None
        skipped, self._skipped = self._skipped, 0
        return kind, described(self._namer, [happening])[0] | {"skipped": skipped}


class Monitor:
    """A session with its histograms, counts and readers. Safe to use from several threads.

    Raises NotSupported as `Session` does.
    """

    def __init__(
        self, tracker: Tracker, settings: TrackerSettings, backend: TrackerBackend | None = None
    ) -> None:
        self.session = Session(tracker, settings, backend)
        self._namer = StackNamer()
        self._lock = threading.Lock()
        self._counts, self._windows = Counts(), Windows()
        self._streams: list[EventStream] = []
        self.began = 0.0

    def start(self) -> None:
        """Start the tracker. Raises ToolFailed, which says what is missing."""
        self.began = time.time()
        self.session.listen(self)
        self.session.start()

    def add_processes(self, families: Iterable[Sequence[int]]) -> None:
        """Do nothing, as `Listener` allows: stacks are kept by recorders."""

    def add_tick(self, tick: Tick) -> None:
        """Add a tick to the histograms, as `Listener` documents."""
        with self._lock:
            self._counts.add(tick.counters)
            self._windows.add(time.time(), tick.histogram)

    def add_event(self, event: Happening, skipped: int) -> None:
        """Hand an event to the streams, as `Listener` documents."""
        with self._lock:
            for stream in self._streams:
                stream.put("event", event, skipped)

    def add_late(self, waiting: Happening) -> None:
        """Hand what is late to the streams, as `Listener` documents."""
        with self._lock:
            for stream in self._streams:
                stream.put("late", waiting, 0)

    def totals(self) -> tuple[dict[str, int], Histogram]:
        """Return the counts and the histogram since the start."""
        with self._lock:
            together = Histogram()
            together.merge(self._windows.all)
            return self._counts.as_json(), together

    def as_json(self) -> dict[str, Any]:
        """Return the settings, counts and histograms."""
        with self._lock:
            return {
                "tracker": self.session.tracker.name,
                "backend": self.session.backend.name,
                "running": self.session.is_running,
                "failure": str(self.session.failure) if self.session.failure else None,
                "began": self.began,
                "settings": self.session.settings.as_json(),
                "counts": self._counts.as_json(),
                "all": self._windows.all.as_json(),
                **self._windows.as_json(time.time()),
            }

    def in_flight(self) -> list[dict[str, Any]]:
        """Return what is in flight, longest first, with the functions it waits in.

        Raises NotSupported and ToolFailed.
        """
        return described(self._namer, self.session.in_flight())

    def record(self, seconds: float, until: Event) -> Recorder:
        """Return what is counted in the next seconds, ended early when `until` is set.

        Raises ToolFailed if the tracker fails or is stopped meanwhile.
        """
        self.session.flush()
        recorder = Recorder(self.session.tracker.name)
        self.session.listen(recorder)
        try:
            deadline = time.monotonic() + seconds
            while (left := deadline - time.monotonic()) > 0 and not until.wait(min(left, _POLL_SECONDS)):
                if not self.session.is_running:
                    raise self.session.failure or ToolFailed(self.session.tracker.name, "it was stopped")
            self.session.flush()
        finally:
            self.session.unlisten(recorder)
        return recorder

    def open_stream(self) -> EventStream:
        """Return a stream of events from now on."""
        stream = EventStream(self._namer)
        with self._lock:
            self._streams.append(stream)
        return stream

    def close_stream(self, stream: EventStream) -> None:
        """End a stream."""
        with self._lock, suppress(ValueError):
            self._streams.remove(stream)


def described(namer: StackNamer, happenings: list[Happening]) -> list[dict[str, Any]]:
    """Return events as JSON objects, with the functions of their stacks, leaf first.

    The list of functions is empty if the stack isn't known, or names can't be looked up.
    """
    known = [happening.stack.kernel or happening.stack.user for happening in happenings]
    try:
        named = namer.names_of_raw([happening.stack for happening in happenings])
        names = [functions if is_known else [] for functions, is_known in zip(named, known, strict=True)]
    except AgentError:
        names = [[] for _ in happenings]
    return [
        {
            "time": happening.time / 1e9,
            "delay_ns": happening.delay,
            "comm": happening.stack.comm,
            "pid": happening.stack.pid,
            "thread": happening.thread,
            **dict(happening.labels),
            "functions": functions,
        }
        for happening, functions in zip(happenings, names, strict=True)
    ]
