"""Decide whether and when to submit a profile again. No I/O here: `Collector` drives it, sync or async.

Retries are written here rather than taken from a library. The code is shorter than the wiring of a library
would be, and an agent lives in other people's programs, which may pin another version of any dependency.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from pgo_agent.errors import CollectorUnavailable, KeyRefused, SubmitRefused

# The server, or a proxy in front of it, says "not now"; every other status is about the request itself.
# 501 is about what the server never does.
RETRYABLE_STATUSES = frozenset({408, 425, 429, *range(500, 600)} - {501})
# About the key, or a proxy's, and not about the profile.
_KEY_STATUSES = frozenset({401, 403, 407})
LONGEST_BACKOFF = 60.0
# pgo-fleet's own client takes both for success.
_ACCEPTED = frozenset({200, 204})
_LONGEST_DETAIL = 500
_LONGEST_BODY = 1 << 16


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to send a profile and for how many seconds, as `Collector` documents."""

    attempts: int
    backoff: float
    within: float

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")


class SubmitResponse:
    """A response to a submit, with as much of its body as an error message needs.

    Reading stops after 64 KiB or `timeout` seconds, so a slow or endless body can't hold the client.
    """

    def __init__(self, response: httpx.Response, timeout: float) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.phrase = response.reason_phrase
        self.body = b""
        self._deadline = time.monotonic() + timeout

    def add(self, chunk: bytes) -> bool:
        """Append a chunk to the body; return True if no more is to be read."""
        self.body += chunk
        return len(self.body) > _LONGEST_BODY or time.monotonic() > self._deadline


class Attempts:
    """The attempts to send one profile. Give it the outcome of each; it returns how long to wait.

    A refused key is final, unless the attempts are `patient`: then it is tried like any passing fault.
    """

    def __init__(self, policy: RetryPolicy, *, patient: bool = False) -> None:
        self._policy = policy
        self._patient = patient
        self._refused: KeyRefused | None = None
        self._attempt = 0
        self._cause, self._retry_after = "", 0.0
        self._deadline = time.monotonic() + policy.within

    def wait_after(self, outcome: SubmitResponse | httpx.RequestError) -> float | None:
        """Return the seconds to wait before the next attempt, or None if the profile was accepted.

        Raises SubmitRefused if the collector refused the profile or the key, and CollectorUnavailable if the
        policy allows no further attempt.
        """
        self._attempt += 1
        self._refused = None
        if isinstance(outcome, httpx.RequestError):
            self._cause, self._retry_after = f"{type(outcome).__name__}: {outcome}", 0.0
        elif outcome.status in _ACCEPTED:
            return None
        elif outcome.status in _KEY_STATUSES:
            self._refused = KeyRefused(outcome.status, _detail(outcome))
            self._retry_after = 0.0
            if not self._patient:
                raise self._refused
        elif outcome.status not in RETRYABLE_STATUSES:
            raise SubmitRefused(outcome.status, _detail(outcome))
        else:
            self._cause = f"{outcome.status}: {_detail(outcome)}"
            self._retry_after = retry_after_seconds(outcome.headers.get("Retry-After"), datetime.now(UTC))
        wait = retry_delay(self._attempt, self._policy.backoff, self._retry_after)
        if self._attempt == self._policy.attempts or time.monotonic() + wait > self._deadline:
            raise self.given_up()
        return wait

    def given_up(self) -> KeyRefused | CollectorUnavailable:
        """Return the error to raise when the caller ends the wait for the next attempt."""
        return self._refused or CollectorUnavailable(self._attempt, self._cause, self._retry_after)


def retry_delay(attempt: int, backoff: float, retry_after: float) -> float:
    """Return the seconds between failed attempt number `attempt` (from 1) and the next.

    The delay is what the server asked for (`retry_after`) plus exponential backoff with full jitter, at most
    60 s. Full jitter keeps a whole fleet from coming back at the same moment after a collector restarts.
    """
    ceiling = min(backoff * 2.0 ** min(attempt - 1, 30), LONGEST_BACKOFF)
    return retry_after + random.uniform(0, ceiling)  # noqa: S311 - spreads load, guards nothing


def retry_after_seconds(header: str | None, now: datetime) -> float:
    """Return the seconds that a Retry-After header asks for (RFC 9110, 10.2.3); 0 if it isn't valid.

    The header holds a number of seconds or a date.
    """
    if not header:
        return 0.0
    try:
        if header.isdecimal():
            return float(int(header))
        return _seconds_until(parsedate_to_datetime(header), now)
    except (ValueError, OverflowError):
        return 0.0


def _seconds_until(date: datetime, now: datetime) -> float:
    # A date with the zone "-0000" is parsed as naive; the RFC allows only GMT.
    moment = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _detail(response: SubmitResponse) -> str:
    """Return the reason in a problem document (RFC 9457), or the phrase of the status line without one."""
    if response.headers.get("Content-Type", "").startswith("application/problem+json"):
        try:
            problem = json.loads(response.body)
            return str(problem.get("detail") or problem["title"])[:_LONGEST_DETAIL]
        except (ValueError, LookupError, AttributeError):
            pass
    return response.phrase
