"""Sign requests, so that the collector records where the time of each goes.

Each attempt has an id of its own in one trace, and a signature that is good once, around its time. It also
tells what the agent did with the profile before; docs/traces.md has the format.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, Self

import httpx

# What the collector takes: so many steps, and so many µs, some hundred days.
_MOST_STEPS = 32
_MOST_MICROS = 10**13 - 1


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


class Way(Protocol):
    """The way of one profile to the collector, told of each attempt to send it."""

    def begin(self, request: httpx.Request) -> None:
        """Note that an attempt begins; add what it needs to its request."""

    def fail(self) -> None:
        """Note that the attempt has failed."""

    def wait(self) -> None:
        """Note that the wait for the next attempt has ended."""


class UntracedWay:
    """The null implementation, for a client without a trace key."""

    def begin(self, request: httpx.Request) -> None:
        """Do nothing."""

    def fail(self) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Do nothing."""


class TracedWay:
    """The way of a profile whose requests are traced; `steps` are what was done with it so far."""

    def __init__(self, key: bytes, trace_id: str, steps: Sequence[Step]) -> None:
        self._key = key
        self._trace_id = trace_id
        self._id = self._attempt = _new_id()
        self._steps = [*steps]
        self._since = 0

    def begin(self, request: httpx.Request) -> None:
        """Sign an attempt that begins now."""
        self._attempt, self._since = _new_id(), time.time_ns()
        request.headers.update(self._headers(self._since))

    def fail(self) -> None:
        """Add a step for the attempt."""
        now = time.time_ns()
        self._steps.append(Step("send", self._since, now, self._attempt))
        self._since = now

    def wait(self) -> None:
        """Add a step for the time since the attempt failed."""
        self._steps.append(Step.since("wait", self._since))

    def _headers(self, now: int) -> dict[str, str]:
        traceparent, seconds = f"00-{self._trace_id}-{self._attempt}-01", now // 10**9
        told = (_told(step, now) for step in self._steps[-_MOST_STEPS:])
        steps = ",".join([f"agent={self._id}:{now // 1000}", *told])
        digest = hmac.digest(self._key, f"{seconds}.{traceparent}.{steps}".encode(), "sha256")
        return {
            "traceparent": traceparent,
            "PGO-Trace-Steps": steps,
            "PGO-Trace-Signature": f"t={seconds},v1={digest.hex()}",
        }


def new_trace_id() -> str:
    """Return a new trace's id, 32 hex digits."""
    return secrets.token_hex(16)


def _new_id() -> str:
    return secrets.token_hex(8)


def _told(step: Step, now: int) -> str:
    """Return a step as the header has it: when it began, before `now`, and how long it took, in µs."""
    ago, took = (
        min(max(nanos, 0) // 1000, _MOST_MICROS) for nanos in (now - step.start, step.end - step.start)
    )
    return f"{step.name}={step.id}:{ago}:{took}"
