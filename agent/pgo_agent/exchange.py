"""What to do after an attempt to send: a state without sockets, for whatever drives it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx

from pgo_agent.errors import CollectorUnavailable, SubmitRefused
from pgo_agent.retry import PASSING_STATUSES, pause, retry_after_seconds

# pgo-fleet's own client took both for success.
_TAKEN = frozenset({200, 204})
_LONGEST_DETAIL = 500
_LONGEST_BODY = 1 << 16


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and for how long (s) to send again: see `Collector`."""

    attempts: int
    backoff: float
    within: float

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")


class Answer:
    """A response as far as it is read: more than a reason needs isn't, nor what doesn't come in time (s)."""

    def __init__(self, response: httpx.Response, timeout: float) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.phrase = response.reason_phrase
        self.body = b""
        self._latest = time.monotonic() + timeout

    def enough(self, chunk: bytes) -> bool:
        """Takes more of the body; whether to stop reading."""
        self.body += chunk
        return len(self.body) > _LONGEST_BODY or time.monotonic() > self._latest


class Exchange:
    """The attempts to send one profile. It is told what came of each, and says how to go on."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._attempt = 0
        self._cause, self._asked = "", 0.0
        self._latest = time.monotonic() + retries.within

    def after(self, outcome: Answer | httpx.RequestError) -> float | None:
        """The seconds to wait before the next attempt; None if the profile was taken.

        Raises SubmitRefused, and CollectorUnavailable if there is to be no other attempt.
        """
        self._attempt += 1
        if isinstance(outcome, httpx.RequestError):
            self._cause, self._asked = f"{type(outcome).__name__}: {outcome}", 0.0
        elif outcome.status in _TAKEN:
            return None
        elif outcome.status not in PASSING_STATUSES:
            raise SubmitRefused(outcome.status, _detail(outcome))
        else:
            self._cause = f"{outcome.status}: {_detail(outcome)}"
            self._asked = retry_after_seconds(outcome.headers.get("Retry-After"), datetime.now(UTC))
        wait = pause(self._attempt, self._retries.backoff, self._asked)
        if self._attempt == self._retries.attempts or time.monotonic() + wait > self._latest:
            raise self.given_up()
        return wait

    def given_up(self) -> CollectorUnavailable:
        """The error to raise where somebody ends the wait for the next attempt."""
        return CollectorUnavailable(self._attempt, self._cause, self._asked)


def _detail(answer: Answer) -> str:
    """The reason in a problem document (RFC 9457); what comes from elsewhere has only its status line."""
    if answer.headers.get("Content-Type", "").startswith("application/problem+json"):
        try:
            problem = json.loads(answer.body)
            return str(problem.get("detail") or problem["title"])[:_LONGEST_DETAIL]
        except (ValueError, LookupError, AttributeError):
            pass
    return answer.phrase
