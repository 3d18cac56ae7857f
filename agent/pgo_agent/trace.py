"""Sign requests, so that the collector records where the time of each goes, and report what is around it.

Each attempt has an id of its own in one trace, and a signature that is good once, around its time. When all
is over, the agent tells what it did with the profile, and how long all took by its clock; docs/traces.md has
the format.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, Self

import httpx

# The collector takes twice as many.
_MOST_STEPS = 32


class Step(NamedTuple):
    """Something that the agent did with a profile: its times in ns since 1970, and an id of 16 hex digits."""

    name: Literal["sample", "scrape", "spool", "send", "wait"]
    start: int
    end: int
    id: str

    @classmethod
    def since(cls, name: Literal["sample", "scrape", "spool", "wait"], start: int) -> Self:
        """Return a step that began at a time, in ns since 1970, and ends now."""
        return cls(name, start, time.time_ns(), _new_id())


class Report(NamedTuple):
    """A message to the collector about a way: its trace, and the headers with its steps."""

    trace_id: str
    headers: Mapping[str, str]


class Way(Protocol):
    """The way of one profile to the collector, told of each attempt to send it."""

    @property
    def nanos(self) -> int:
        """Return how long it took from the first step to the end of the last attempt, in whole µs, as ns."""

    def begin(self, request: httpx.Request) -> None:
        """Note that an attempt begins; add what it needs to its request."""

    def answered(self, headers: httpx.Headers) -> None:
        """Note that the headers of an answer are here."""

    def end(self) -> None:
        """Note that the attempt has ended."""

    def wait(self) -> None:
        """Note that the wait for the next attempt has ended."""

    def report(self) -> Report | None:
        """Return what to tell the collector; None if it recorded no attempt."""


class UntracedWay:
    """The null implementation, for a client without a trace key."""

    nanos = 0

    def begin(self, request: httpx.Request) -> None:
        """Do nothing."""

    def answered(self, headers: httpx.Headers) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Do nothing."""

    def report(self) -> None:
        """Tell nothing."""


class TracedWay:
    """The way of a profile whose requests are traced; `steps` are what was done with it so far."""

    def __init__(self, key: bytes, trace_id: str, steps: Sequence[Step]) -> None:
        self._key = key
        self._trace_id = trace_id
        self._attempt = ""
        self._steps = [*steps]
        # A clock that shows the time of day, and isn't set while it is looked at.
        self._offset = _wall_offset()
        self._since = self._now()
        self._is_recorded = False

    @property
    def nanos(self) -> int:
        """Return how long it took from the first step to the end of the last attempt, in whole µs, as ns."""
        start, end = self._bounds()
        return (end - start) * 1000

    def begin(self, request: httpx.Request) -> None:
        """Sign an attempt that begins now."""
        self._attempt, self._since = _new_id(), self._now()
        request.headers.update(self._signature(self._attempt))

    def answered(self, headers: httpx.Headers) -> None:
        """Look whether the collector has recorded the attempt."""
        self._is_recorded |= headers.get("PGO-Trace") == self._trace_id

    def end(self) -> None:
        """Add a step for the attempt."""
        now = self._now()
        self._steps.append(Step("send", self._since, now, self._attempt))
        self._since = now

    def wait(self) -> None:
        """Add a step for the time since the attempt ended."""
        self._steps.append(Step("wait", self._since, self._now(), _new_id()))

    def report(self) -> Report | None:
        """Return what to tell the collector; None if it recorded no attempt."""
        if not self._is_recorded:
            return None
        start, end = self._bounds()
        told = [f"agent={start}:{end - start}"]
        for step in self._steps[-_MOST_STEPS:]:
            begun, ended = max(step.start // 1000, start), _micros_up(step.end)
            told.append(f"{step.name}={step.id}:{begun - start}:{max(ended - begun, 0)}")
        return Report(self._trace_id, self._signature(_new_id(), ",".join(told)))

    def _now(self) -> int:
        return time.monotonic_ns() + self._offset

    def _bounds(self) -> tuple[int, int]:
        """Return when the first step began and the last one ended, in µs since 1970."""
        steps = self._steps[-_MOST_STEPS:]
        return min(step.start for step in steps) // 1000, _micros_up(max(step.end for step in steps))

    def _signature(self, span_id: str, steps: str | None = None) -> dict[str, str]:
        """Return the headers that sign a request, and what is reported with it, if anything."""
        traceparent, seconds = f"00-{self._trace_id}-{span_id}-01", int(time.time())
        told = {} if steps is None else {"PGO-Trace-Steps": steps}
        what = ".".join([str(seconds), traceparent, *told.values()])
        digest = hmac.digest(self._key, what.encode(), "sha256")
        return {"traceparent": traceparent, "PGO-Trace-Signature": f"t={seconds},v1={digest.hex()}", **told}


def _wall_offset() -> int:
    """Return the time of day less that of CLOCK_MONOTONIC, in ns.

    Other processes may have their turn between two readings: of a few pairs, the closest counts.
    """
    pairs = []
    for _ in range(3):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        pairs.append((after - before, wall - after))
    return min(pairs)[1]


def new_trace_id() -> str:
    """Return a new trace's id, 32 hex digits."""
    return secrets.token_hex(16)


def _new_id() -> str:
    return secrets.token_hex(8)


def _micros_up(nanos: int) -> int:
    return -(-nanos // 1000)
