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


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and for how long (s) to send again: see `Collector`."""

    attempts: int
    backoff: float
    within: float

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")


class Exchange:
    """The attempts to send one profile. It is told what came of each, and says how to go on."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._attempt = 0
        self._cause, self._asked = "", 0.0
        self._latest = time.monotonic() + retries.within

    def after(self, outcome: httpx.Response | httpx.RequestError) -> float | None:
        """The seconds to wait before the next attempt; None if the profile was taken.

        Raises SubmitRefused, and CollectorUnavailable if there is to be no other attempt.
        """
        self._attempt += 1
        if isinstance(outcome, httpx.RequestError):
            self._cause, self._asked = f"{type(outcome).__name__}: {outcome}", 0.0
        elif outcome.status_code in _TAKEN:
            return None
        elif outcome.status_code not in PASSING_STATUSES:
            raise SubmitRefused(outcome.status_code, _detail(outcome))
        else:
            self._cause = f"{outcome.status_code}: {_detail(outcome)}"
            self._asked = retry_after_seconds(outcome.headers.get("Retry-After"), datetime.now(UTC))
        wait = pause(self._attempt, self._retries.backoff, self._asked)
        if self._attempt == self._retries.attempts or time.monotonic() + wait > self._latest:
            raise self.given_up()
        return wait

    def given_up(self) -> CollectorUnavailable:
        """The error to raise where somebody ends the wait for the next attempt."""
        return CollectorUnavailable(self._attempt, self._cause, self._asked)


def _detail(response: httpx.Response) -> str:
    """The reason in a problem document (RFC 9457); what comes from elsewhere has only its status line."""
    if response.headers.get("Content-Type", "").startswith("application/problem+json"):
        try:
            problem = json.loads(response.content)
            return str(problem.get("detail") or problem["title"])[:_LONGEST_DETAIL]
        except (ValueError, LookupError, AttributeError):
            pass
    return response.reason_phrase
