"""Tracing: what a server traces and where that goes, and its null implementation."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, get_args

from starlette.types import ASGIApp, Scope

from pgo_collector.errors import NoSuchTrace, ReportInvalid, ReportRefused
from pgo_collector.traces.gate import Description, Gate
from pgo_collector.traces.keys import TraceKeys
from pgo_collector.traces.outlets import Outlet, RequestTrace
from pgo_collector.traces.reports import Report, ReportBounds
from pgo_collector.traces.signing import STEPS, Answered, Origin, Refusal, Verifier, new_trace_id
from pgo_collector.traces.spans import Part, Place, Recording, Span, at, new_id, wall_offset

Describe = Callable[[Scope], Description]


class Tracing(Protocol):
    """A switch for traces as a whole."""

    @property
    def outlets(self) -> Sequence[Outlet]:
        """Where traces go."""

    @property
    def requests(self) -> Counter[str]:
        """The number of requests that were traced, and of those that weren't though they asked for it."""

    def around(self, app: ASGIApp, describer: Callable[[], Describe]) -> ASGIApp:
        """Return an application whose requests are traced, and named by what `describer` returns."""

    def background(self, part: Part, name: str) -> AbstractContextManager[None]:
        """Trace what the server does on its own within the block, as a share of requests is traced."""

    async def run(self) -> None:
        """Follow changes of the keys until cancelled: a background task."""

    def report(self, trace: str, headers: Mapping[bytes, bytes]) -> None:
        """Take the steps of the client that has made the requests of a trace.

        Raises ReportInvalid, ReportRefused, and NoSuchTrace.
        """

    def close(self) -> None:
        """Write what waits."""


class NoTracing:
    """The null implementation: no request is traced, and none pays for it."""

    outlets: Sequence[Outlet] = ()

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    def around(self, app: ASGIApp, describer: Callable[[], Describe]) -> ASGIApp:  # noqa: ARG002 - see Tracing
        """Return the application as it is."""
        return app

    def background(self, part: Part, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - see Tracing
        """Trace nothing."""
        return nullcontext()

    async def run(self) -> None:
        """Do nothing."""

    def report(self, trace: str, headers: Mapping[bytes, bytes]) -> None:  # noqa: ARG002 - see Tracing
        """Refuse it."""
        raise NoSuchTrace("no request is traced here (PGOF_TRACE_KEYS_FILE)")

    def close(self) -> None:
        """Do nothing."""


NO_TRACING = NoTracing()


@dataclass(frozen=True, slots=True)
class Choice:
    """Bounds of tracing: the most spans of a request, and the share of unsigned requests.

    `reported` is what clients may report.
    """

    most_spans: int
    reported: ReportBounds
    rate: float = 0.0


class SignedTracing:
    """Traces signed requests, and a share of the others."""

    def __init__(
        self, choice: Choice, keys: TraceKeys | None, verifier: Verifier, outlets: Sequence[Outlet]
    ) -> None:
        self.choice = choice
        self.outlets = outlets
        counted = ("signed", "sampled", "reported", *get_args(Refusal))
        self.requests: Counter[str] = Counter(dict.fromkeys(counted, 0))
        self._keys = keys
        self._verifier = verifier

    def around(self, app: ASGIApp, describer: Callable[[], Describe]) -> ASGIApp:
        """Return the application behind a gate that traces requests."""
        return Gate(app, self, describer())

    @contextmanager
    def background(self, part: Part, name: str) -> Iterator[None]:
        """Trace a background task as a request is traced."""
        origin = self.origin_of_unsigned()
        if origin is None:
            yield
            return
        root = Place(Recording(self.choice.most_spans), new_id())
        offset, start, error = wall_offset(), time.monotonic_ns(), ""
        try:
            with at(root):
                yield
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            whole = Span(root.span, "", part, name, start, time.monotonic_ns(), {}, error)
            self.keep(RequestTrace.of(origin.trace, root.recording, (whole,), offset))

    async def run(self) -> None:
        """Read the trace keys again whenever their file changes, until cancelled."""
        if self._keys is not None:
            await self._keys.run()

    def close(self) -> None:
        """Write the traces that wait, and stop."""
        for outlet in self.outlets:
            outlet.close()

    def report(self, trace: str, headers: Mapping[bytes, bytes]) -> None:
        """Add what a client measured around a traced request. Raises ReportRefused."""
        found = self._verifier.check(headers, self._keys.keys if self._keys else ())
        if not isinstance(found, Origin):
            self.requests[found] += 1
            raise ReportRefused(f"the signature is not accepted: {found.replace('_', ' ')}")
        if found.trace != trace:
            raise ReportInvalid("the traceparent is of another trace than the path")
        bounds = self.choice.reported
        report = Report.of(found, headers.get(STEPS.lower().encode(), b""), bounds)
        requests = self._verifier.requests_of(found, (span.id for span in report.spans))
        if not requests:
            raise NoSuchTrace(
                "none of its steps is a request that this server has traced for this key lately"
            )
        moved = report.by_our_clock(requests, bounds)
        self.requests["reported"] += 1
        self.keep(moved)

    def origin_of_signed(self, scope: Scope) -> Origin | None:
        """Return the trace that a request with a signature is part of; None if it doesn't verify."""
        found = self._verifier.check(dict(scope["headers"]), self._keys.keys if self._keys else ())
        if isinstance(found, Origin):
            self.requests["signed"] += 1
            return found
        self.requests[found] += 1
        return None

    def origin_of_unsigned(self) -> Origin | None:
        """Return a new trace for the sampled share of requests; None for the others."""
        if not self.choice.rate or random.random() >= self.choice.rate:  # noqa: S311 - a sample, no secret
            return None
        self.requests["sampled"] += 1
        return Origin(new_trace_id(), "")

    def note_answer(self, origin: Origin, request: Answered) -> None:
        """Remember a request that is being answered, in case that its client reports."""
        self._verifier.note(origin, request)

    def keep(self, trace: RequestTrace) -> None:
        """Hand a trace to all outlets. Doesn't block."""
        for outlet in self.outlets:
            outlet.put(trace)
