"""The endpoint: the receiver's URL, to which signed events are posted, and the outcome of an attempt."""

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
from typing import TYPE_CHECKING, Literal, Self

from pgo_collector.catalog.outbox import WaitingEvent
from pgo_collector.errors import SecretUnusable
from pgo_collector.on_first_use import OnFirstUse
from pgo_collector.traces.spans import span

if TYPE_CHECKING:
    import httpx
else:
    httpx = OnFirstUse("httpx")

# An answer's body is ignored; up to this many bytes of it are read, so that the connection can be used again.
_MOST_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of an attempt to deliver an event.

    If it failed, `reason` says why, and `asked_seconds` how long the receiver asks to wait before the next
    attempt with any event.
    """

    outcome: Literal["delivered", "failed", "gone"]
    reason: str = ""
    asked_seconds: float = 0.0


class Endpoint:
    """The receiver's URL and a client for it, as an async context manager."""

    def __init__(self, url: str, secret_file: Path, seconds: float) -> None:
        """Load secrets and certificates, which blocks. Raises SecretUnusable.

        An attempt may take up to `seconds`.
        """
        self._url = httpx.URL(url)
        self._secret_file = secret_file
        self._seconds = seconds
        read_secrets(secret_file)
        # Plain HTTP needs no certificates, which take long to load.
        self._verify = False if self._url.scheme == "http" else httpx.create_ssl_context()

    async def __aenter__(self) -> Self:
        self._client = httpx.AsyncClient(verify=self._verify, timeout=self._seconds, follow_redirects=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def post(self, event: WaitingEvent) -> Attempt:
        """Try once to deliver an event; return the outcome."""
        try:
            secrets = await asyncio.to_thread(read_secrets, self._secret_file)
        except SecretUnusable as error:
            return Attempt("failed", str(error))
        body = event.body.encode()
        headers = {"Content-Type": "application/json"} | signature_headers(
            event.id, body, int(time.time()), secrets
        )
        attempt = Attempt("failed", f"no answer within {self._seconds:g} seconds")
        try:
            with span("hooks", "post event", size=len(body)):
                async with (
                    asyncio.timeout(self._seconds),
                    self._client.stream("POST", self._url, content=body, headers=headers) as answer,
                ):
                    attempt = _outcome(answer)
                    await _drain(answer)
        except TimeoutError:
            return attempt
        except httpx.HTTPError as error:
            return Attempt("failed", f"{type(error).__name__}: {error}")
        return attempt


def _outcome(answer: httpx.Response) -> Attempt:
    """Return the outcome by the status alone. A redirect is a failure: the operator didn't choose its URL."""
    if answer.is_success:
        return Attempt("delivered")
    reason = f"status {answer.status_code}"
    if answer.status_code == HTTPStatus.GONE:
        return Attempt("gone", reason)
    return Attempt(
        "failed", reason, retry_after_seconds(answer.headers.get("Retry-After"), datetime.now(UTC))
    )


async def _drain(answer: httpx.Response) -> None:
    size = 0
    with suppress(httpx.HTTPError):
        async for chunk in answer.aiter_raw():
            size += len(chunk)
            if size > _MOST_BYTES:
                return


_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 600.0
# The longest pause that a receiver may ask for: its date may be wrong by years.
_LONGEST_ASKED_SECONDS = 86_400.0


def pause_seconds(failures: int, chance: float) -> float:
    """Return the pause, in seconds, after a number of failures in a row.

    It doubles with each failure, up to a bound, and is then shortened to between half and all of that, by
    `chance` from 0 to 1, so that events which failed together aren't tried again together.
    """
    longest = min(_FIRST_SECONDS * 2.0 ** min(failures - 1, 30), _LONGEST_SECONDS)
    return longest * (1 + chance) / 2


def retry_after_seconds(header: str | None, now: datetime) -> float:
    """Return the seconds that a Retry-After header asks for, as a number or a date (RFC 9110, 10.2.3).

    Returns 0 if there is none or it is invalid.
    """
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
_SIZES = range(24, 65)  # bytes of a secret in the Standard Webhooks specification


def read_secrets(path: Path) -> list[bytes]:
    """Return the secrets of a file, one a line. Raises SecretUnusable, whose message quotes no line."""
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it isn't ASCII"
        raise SecretUnusable(f"webhook secrets {path}: {reason}") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise SecretUnusable(f"webhook secrets {path}: the file is empty; write one secret a line")
    return [_secret(line, f"webhook secrets {path}, line {number}") for number, line in lines]


def _secret(line: str, where: str) -> bytes:
    try:
        secret = base64.b64decode(line.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        secret = b""
    if not line.startswith(_PREFIX) or len(secret) not in _SIZES:
        raise SecretUnusable(f"{where}: not a secret, which is {_PREFIX} and the base64 of 24 to 64 bytes")
    return secret


def signature_headers(id_: str, body: bytes, seconds: int, secrets: Sequence[bytes]) -> dict[str, str]:
    """Return the headers of an attempt at a time in seconds since 1970, with a signature by each secret."""
    content = f"{id_}.{seconds}.".encode() + body
    digests = [hmac.digest(secret, content, hashlib.sha256) for secret in secrets]
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }
