"""Pushes finished profiles to a collector over HTTP, and doesn't lose one to a passing fault."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from typing import Self

import httpx

from pgo_agent.errors import CollectorUnavailable, SubmitRefused
from pgo_agent.retry import PASSING_STATUSES, pause, retry_after_seconds

SUBMIT_PATH = "/v1/submit"
# pgo-fleet's own client took both for success.
_TAKEN = frozenset({200, 204})
_LONGEST_DETAIL = 500


class Collector:
    """One collector, and the key to it. Safe to share between threads; connections are reused.

    `url` is the collector's ("http://host:8080") or that of its submit route ("http://host:8080/v1/submit").
    `timeout` bounds, in seconds, each step of an attempt: to connect, to write, to read. After a passing
    fault (no connection, a timeout, 408, 425, 429, 5xx) the profile is sent again, at most `attempts` times
    in all: first after up to `backoff` seconds, then up to twice as long each time, and never earlier than
    a Retry-After asks for. No attempt starts later than `within` seconds after the first.

    It is safe to send again where nobody knows whether an attempt arrived: a collector counts the same
    bytes once, however often they are submitted.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 30.0,
        attempts: int = 6,
        backoff: float = 1.0,
        within: float = 300.0,
    ) -> None:
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        self._url = _submit_url(url)
        self._attempts = attempts
        self._backoff = backoff
        self._within = within
        self._closed = threading.Event()
        self._client = httpx.Client(
            auth=_Bearer(key),
            headers={"User-Agent": f"pgo-agent/{version('pgo-agent')}"},
            timeout=timeout,
        )

    def __repr__(self) -> str:
        return f"Collector({self._url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. A `submit` that waits for its next attempt gives up at once."""
        self._closed.set()
        self._client.close()

    def submit(self, profile: bytes) -> None:
        """Submits a pprof profile, gzipped or bare; returns when the collector has stored it.

        Blocks for `within` seconds and the time of one attempt at most. Raises SubmitRefused if the
        collector refuses the profile, CollectorUnavailable if it couldn't be reached.
        """
        latest = time.monotonic() + self._within
        for attempt in count(1):
            try:
                self._attempt(profile)
            except _PassingFault as fault:
                wait = pause(attempt, self._backoff, fault.retry_after)
                last = attempt == self._attempts or time.monotonic() + wait > latest
                if last or self._closed.wait(wait):
                    raise CollectorUnavailable(attempt, str(fault)) from fault
            else:
                return

    def _attempt(self, profile: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        try:
            response = self._client.post(self._url, content=profile, headers=headers)
        except httpx.RequestError as error:
            raise _PassingFault(f"{type(error).__name__}: {error}") from error
        if response.status_code in _TAKEN:
            return
        detail = _detail(response)
        if response.status_code not in PASSING_STATUSES:
            raise SubmitRefused(response.status_code, detail)
        asked = retry_after_seconds(response.headers.get("Retry-After"), datetime.now(UTC))
        raise _PassingFault(f"{response.status_code}: {detail}", asked)


class _PassingFault(Exception):
    """An attempt failed for a reason that may be gone in `retry_after` seconds."""

    def __init__(self, cause: str, retry_after: float = 0.0) -> None:
        super().__init__(cause)
        self.retry_after = retry_after


class _Bearer(httpx.Auth):
    """Puts the key on each request; as httpx's Auth it comes before a name and password in the URL."""

    def __init__(self, key: str) -> None:
        key = key.strip()
        # Said here, without the key: the HTTP library's own complaint would quote it.
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("the key must be one word of printable ASCII")
        self._header = f"Bearer {key}"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        request.headers["Authorization"] = self._header
        yield request


def _submit_url(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"not a URL ({error}): {url!r}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f"not an http or https URL: {url!r}")
    path = parsed.path.rstrip("/")
    return parsed.copy_with(path=path if path.endswith(SUBMIT_PATH) else path + SUBMIT_PATH)


def _detail(response: httpx.Response) -> str:
    """The reason in a problem document (RFC 9457); what comes from elsewhere has only its status line."""
    if response.headers.get("Content-Type", "").startswith("application/problem+json"):
        try:
            problem = json.loads(response.content)
            return str(problem.get("detail") or problem["title"])[:_LONGEST_DETAIL]
        except (ValueError, LookupError, AttributeError):
            pass
    return response.reason_phrase
