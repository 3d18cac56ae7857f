"""The endpoint: where events are posted, and what became of an attempt."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Literal, Self

import httpx

from pgo_collector.errors import SecretUnusable
from pgo_collector.hooks.backoff import asked_seconds
from pgo_collector.hooks.signing import read_secrets, signed
from pgo_collector.store.outbox import Waiting

# Of an answer's body, of which nothing is wanted, so much is read to keep the connection.
_MOST_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of an attempt; of one that failed, why, and after how many seconds the receiver wants the
    next one, or any other.
    """

    outcome: Literal["delivered", "failed", "gone"]
    reason: str = ""
    asked_seconds: float = 0.0


class Endpoint:
    """A URL, as an async context manager."""

    def __init__(self, url: str, secret_file: Path, seconds: float) -> None:
        """An attempt may take so many seconds. Raises SecretUnusable. Blocks, to load certificates."""
        self._url = httpx.URL(url)
        self._secret_file = secret_file
        self._seconds = seconds
        read_secrets(secret_file)
        # Plain HTTP needs no certificates, and they take long to load.
        self._verify = False if self._url.scheme == "http" else httpx.create_ssl_context()

    async def __aenter__(self) -> Self:
        self._client = httpx.AsyncClient(verify=self._verify, timeout=self._seconds, follow_redirects=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def post(self, event: Waiting) -> Attempt:
        """Tries once to deliver an event."""
        try:
            secrets = await asyncio.to_thread(read_secrets, self._secret_file)
        except SecretUnusable as error:
            return Attempt("failed", str(error))
        body = event.body.encode()
        headers = {"Content-Type": "application/json"} | signed(event.id, body, int(time.time()), secrets)
        attempt = Attempt("failed", f"no answer within {self._seconds:g} seconds")
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._client.stream("POST", self._url, content=body, headers=headers) as answer,
            ):
                attempt = _judged(answer)
                await _skim(answer)
        except TimeoutError:
            return attempt
        except httpx.HTTPError as error:
            return Attempt("failed", f"{type(error).__name__}: {error}")
        return attempt


def _judged(answer: httpx.Response) -> Attempt:
    """By the status alone; a redirect is no success, since nobody has signed where it leads."""
    if answer.is_success:
        return Attempt("delivered")
    reason = f"status {answer.status_code}"
    if answer.status_code == HTTPStatus.GONE:
        return Attempt("gone", reason)
    return Attempt("failed", reason, asked_seconds(answer.headers.get("Retry-After"), datetime.now(UTC)))


async def _skim(answer: httpx.Response) -> None:
    size = 0
    with suppress(httpx.HTTPError):
        async for chunk in answer.aiter_raw():
            size += len(chunk)
            if size > _MOST_BYTES:
                return
