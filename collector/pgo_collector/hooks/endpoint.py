"""The endpoint: where events are posted, and what became of an attempt."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Literal, Self

import httpx

from pgo_collector.catalog.outbox import Waiting
from pgo_collector.errors import SecretUnusable

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


_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 600.0
# What a receiver may ask for; it could also be wrong about the year.
_LONGEST_ASKED_SECONDS = 86_400.0


def pause_seconds(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row, of which the last is just over.

    Twice as long each time, and then between half and all of it, as `chance` says, from 0 to 1: what failed
    together is not to come back together.
    """
    longest = min(_FIRST_SECONDS * 2.0 ** min(failures - 1, 30), _LONGEST_SECONDS)
    return longest * (1 + chance) / 2


def asked_seconds(header: str | None, now: datetime) -> float:
    """What a Retry-After header asks for (RFC 9110, 10.2.3: seconds or a date); 0 if that isn't clear."""
    text = (header or "").strip()
    try:
        seconds = float(int(text)) if text.isdecimal() else _seconds_until(text, now)
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_ASKED_SECONDS)


def _seconds_until(date: str, now: datetime) -> float:
    moment = parsedate_to_datetime(date)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()


_PREFIX = "whsec_"
_SIZES = range(24, 65)  # bytes, as the specification has them


def read_secrets(path: Path) -> list[bytes]:
    """The secrets of a file, one a line. Raises SecretUnusable, which quotes nothing of a line."""
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it isn't ASCII"
        raise SecretUnusable(f"webhook secrets {path}: {reason}") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise SecretUnusable(f"webhook secrets {path}: there is none")
    return [_secret(line, f"webhook secrets {path}, line {number}") for number, line in lines]


def _secret(line: str, where: str) -> bytes:
    try:
        secret = base64.b64decode(line.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        secret = b""
    if not line.startswith(_PREFIX) or len(secret) not in _SIZES:
        raise SecretUnusable(f"{where}: a secret is {_PREFIX} and the base64 of 24 to 64 bytes")
    return secret


def signed(id_: str, body: bytes, seconds: int, secrets: Sequence[bytes]) -> dict[str, str]:
    """The headers of an attempt at that time, in s since 1970; with one signature by each secret."""
    content = f"{id_}.{seconds}.".encode() + body
    digests = [hmac.digest(secret, content, hashlib.sha256) for secret in secrets]
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }
