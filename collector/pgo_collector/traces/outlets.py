"""Outlets: the queue and the thread between requests and what keeps their traces.

A write costs more than a trace in it, so the thread gathers traces for a moment before it writes them.
Whatever becomes of a trace, the request that it is of doesn't wait and doesn't fail: a trace that finds the
queue full, or that can't be written, is dropped and counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Full, SimpleQueue
from typing import Self

import structlog

from pgo_collector.traces.spans import Recording, Span

# Traces that are written together, and how long the first of them waits for others.
_BATCH = 64
_GATHER_SECONDS = 0.25
# How long a stop waits for traces that were not written yet.
_CLOSE_SECONDS = 5.0
_new = tuple.__new__
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """The spans of one request, in ns since 1970; the first is that of the request as a whole.

    `trace` has 32 hex digits, `status` is the HTTP status, and `dropped` counts the spans beyond the bound.
    `service` is empty for a request that is about none.
    """

    trace: str
    service: str
    status: int
    spans: Sequence[Span]
    dropped: int = 0

    @classmethod
    def of(
        cls,
        trace: str,
        recording: Recording,
        above: Sequence[Span],
        offset: int,
        *,
        service: str = "",
        status: int = 0,
    ) -> Self:
        """Close a recording; return its trace, by the wall clock. The spans `above` come first.

        The first of them is the whole, and what goes on after its end, such as that of a thread which has
        handed over its result, is cut there.
        """
        last = above[0].end
        # Unpacked, and made by the tuple's own constructor, which takes a quarter of the time of `_replace`.
        moved = [
            _new(
                Span,
                (
                    id_,
                    parent,
                    part,
                    name,
                    (start if start < last else last) + offset,  # noqa: FURB136 - a third of the time of min
                    (end if end < last else last) + offset,  # noqa: FURB136 - see above
                    attributes,
                    error,
                ),
            )
            for id_, parent, part, name, start, end, attributes, error in (*above, *recording.close())
        ]
        return cls(trace, service, status, moved, recording.dropped)

    @property
    def is_report(self) -> bool:
        """Whether it has what a client reported, in place of a request."""
        return self.spans[0].part == "agent"

    @property
    def has_error(self) -> bool:
        """Whether it was answered with an error, or a step of it ended with one."""
        return self.status >= 400 or any(span.error for span in self.spans)


Write = Callable[[Sequence[RequestTrace]], None]


class Outlet:
    """A thread that writes traces; at most `most` wait for it. `kept` and `dropped` count traces.

    It writes when a batch is full or the first trace has waited `gather` seconds. `write` may raise any
    error; its traces are dropped then.
    """

    def __init__(self, name: str, write: Write, most: int, gather: float = _GATHER_SECONDS) -> None:
        self.name = name
        self.kept = self.dropped = 0
        self._write = write
        self._most = most
        self._gather = gather
        self._batch = min(_BATCH, most)
        self._queue: SimpleQueue[RequestTrace | None] = SimpleQueue()
        self._is_failing = False
        # Set when a batch is full, or is the last one.
        self._is_due = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traces {name}", daemon=True)
        self._thread.start()

    def put(self, trace: RequestTrace) -> None:
        """Have a trace written, unless too many wait. Doesn't block."""
        waiting = self._queue.qsize()
        if waiting >= self._most:
            self.dropped += 1
            self._fail(Full(f"{self._most} traces wait, the limit"))
            return
        self._queue.put(trace)
        if waiting + 1 >= self._batch:
            self._is_due.set()

    def close(self) -> None:
        """Write what waits, for a few seconds at most, and end the thread."""
        self._queue.put(None)
        self._is_due.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            if self._queue.qsize() < self._batch:
                self._is_due.wait(self._gather)
            self._is_due.clear()
            batch, is_last = [first], False
            while len(batch) < _BATCH and not self._queue.empty() and not is_last:
                following = self._queue.get()
                if following is None:
                    is_last = True
                else:
                    batch.append(following)
            self._write_batch(batch)
            if is_last:
                return

    def _write_batch(self, batch: Sequence[RequestTrace]) -> None:
        try:
            self._write(batch)
        except Exception as error:  # noqa: BLE001 - no trace is worth a failing server
            self.dropped += len(batch)
            self._fail(error)
        else:
            self.kept += len(batch)
            self._is_failing = False

    def _fail(self, error: Exception) -> None:
        """Log why traces are dropped, once until some are kept again."""
        if not self._is_failing:
            self._is_failing = True
            _log.warning("traces dropped", outlet=self.name, reason=str(error) or type(error).__name__)
