"""Captures: a profile that is taken now, by a request to one of the targets in the settings, and stored."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from starlette.requests import Request

from pgo_collector.errors import (
    CannotStart,
    CaptureFailed,
    CapturesBusy,
    KeyMalformed,
    KeysUnreadable,
    NoSuchTarget,
    SettingsInvalid,
)
from pgo_collector.model.capture_targets import CaptureTarget
from pgo_collector.on_first_use import OnFirstUse
from pgo_collector.settings import Settings
from pgo_collector.submits.submits import Submits
from pgo_collector.traces.spans import span

if TYPE_CHECKING:
    import httpx
else:
    httpx = OnFirstUse("httpx")

# This many bytes of an answer that isn't a profile are shown: agents say there what is wrong.
_MOST_SHOWN = 400
# Each may take as much memory as the largest submit.
_MOST_AT_ONCE = 2


class Captures(Protocol):
    """Takes profiles now, of the services that have a target."""

    def targets(self, service: str, type_: str) -> Sequence[CaptureTarget]:
        """Return the targets of a service for one type of profile."""

    async def take(self, request: Request, service: str, type_: str, instance: str) -> None:
        """Take a profile from a target, and store it.

        Raises NoSuchTarget, CapturesBusy, CaptureFailed, and what `Submits.keep` raises.
        """


class NoCaptures:
    """The captures of a collector without targets."""

    def targets(self, service: str, type_: str) -> Sequence[CaptureTarget]:  # noqa: ARG002
        """Return no targets."""
        return ()

    async def take(self, request: Request, service: str, type_: str, instance: str) -> None:  # noqa: ARG002
        """Raise NoSuchTarget."""
        raise NoSuchTarget(f"no profile can be taken of {service}: PGOF_CAPTURE_TARGETS has no target")


class CapturesOfTargets:
    """Takes profiles from targets, within bounds on their number and time. A stop of the server ends them."""

    def __init__(
        self, targets: Sequence[CaptureTarget], settings: Settings, submits: Submits, stopping: asyncio.Event
    ) -> None:
        """Read the keys, and load certificates if a target needs them, which blocks.

        Raises SettingsInvalid, KeysUnreadable or KeyMalformed.
        """
        self._targets = targets
        self._seconds = settings.capture_seconds
        self._most_bytes = settings.largest_body
        self._submits = submits
        self._stopping = stopping
        self._running = 0
        self._keys_file = settings.capture_keys_file
        _keys_in(self._keys_file)
        # Plain HTTP needs no certificates, which take long to load.
        is_tls = any(target.url.startswith("https:") for target in targets)
        self._verify = _certificates(settings.capture_ca_file) if is_tls else False

    def targets(self, service: str, type_: str) -> Sequence[CaptureTarget]:
        """Return the targets of a service for one type of profile."""
        return [target for target in self._targets if (target.service, target.type) == (service, type_)]

    async def take(self, request: Request, service: str, type_: str, instance: str) -> None:
        """Take a profile from a target, and store it."""
        found = (target for target in self.targets(service, type_) if target.instance == instance)
        target = next(found, None)
        if target is None:
            raise NoSuchTarget(f"PGOF_CAPTURE_TARGETS has no target {instance[:80]!r} of {service}")
        if self._running >= _MOST_AT_ONCE:
            raise CapturesBusy(f"{_MOST_AT_ONCE} profiles are being taken, the limit; try again later")
        self._running += 1
        try:
            content = await self._until_stop(target)
            await self._submits.keep(request, target.series, content)
        finally:
            self._running -= 1

    async def _until_stop(self, target: CaptureTarget) -> bytes:
        """Return the target's answer. Raises CaptureFailed, also when the server stops."""
        fetching = asyncio.create_task(self._fetch(target))
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({fetching, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done():
                raise CaptureFailed(f"{target.instance}: the server stops")
            return fetching.result()
        finally:
            for task in (fetching, stop):
                task.cancel()
            await asyncio.wait({fetching, stop})

    async def _fetch(self, target: CaptureTarget) -> bytes:
        """Return the target's answer, which may not be a redirect. Raises CaptureFailed."""
        content, headers = bytearray(), {"Accept-Encoding": "identity"}
        if target.body is not None:
            headers["Content-Type"] = "application/json"
        method = "GET" if target.body is None else "POST"
        try:
            keys = await asyncio.to_thread(_keys_in, self._keys_file)
        except CannotStart as error:
            raise CaptureFailed(f"{target.instance}: {error}") from None
        if key := keys.get(target.instance):
            headers["Authorization"] = f"Bearer {key}"
        try:
            with span("http", "take profile"):
                async with (
                    asyncio.timeout(self._seconds),
                    httpx.AsyncClient(
                        verify=self._verify, timeout=self._seconds, follow_redirects=False, trust_env=False
                    ) as client,
                    client.stream(method, target.url, headers=headers, content=target.body) as answer,
                ):
                    if answer.status_code != HTTPStatus.OK:
                        raise CaptureFailed(
                            f"{target.instance} answered with {answer.status_code}{await _said(answer)}"
                        )
                    async for chunk in answer.aiter_raw():
                        content += chunk
                        if len(content) > self._most_bytes:
                            raise CaptureFailed(
                                f"{target.instance}: its profile is larger than {self._most_bytes:,}"
                                " bytes, the limit of a submit"
                            )
        except TimeoutError:
            raise CaptureFailed(
                f"{target.instance}: no profile within {self._seconds:g} seconds"
                " (PGOF_BODY_TIMEOUT or PGOF_CAPTURE_SECONDS)"
            ) from None
        except httpx.HTTPError as error:
            raise CaptureFailed(f"{target.instance}: {type(error).__name__}: {error}") from None
        return bytes(content)


async def _said(answer: httpx.Response) -> str:
    """Return how an answer's text begins, after a colon; "" if it is no text."""
    if not answer.headers.get("Content-Type", "").startswith(("text/plain", "application/json")):
        return ""
    text = bytearray()
    async for chunk in answer.aiter_raw():
        text += chunk
        if len(text) >= _MOST_SHOWN:
            break
    shown = text[:_MOST_SHOWN].decode(errors="replace").strip()
    return f": {shown}" if shown else ""


def _certificates(ca_file: Path | None) -> ssl.SSLContext:
    """Return the authorities to trust: those of a file, or the public ones. Raises SettingsInvalid."""
    if ca_file is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise SettingsInvalid(f"PGOF_CAPTURE_CA_FILE: {ca_file}: {error.strerror or error}") from error


def _keys_in(file: Path | None) -> Mapping[str, str]:
    """Return the key of each target, by its host and port; none without a file.

    Raises KeysUnreadable, and KeyMalformed, which doesn't quote a line.
    """
    keys: dict[str, str] = {}
    try:
        lines = file.read_text("ascii").splitlines() if file else []
    except OSError as error:
        raise KeysUnreadable(f"keys file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KeyMalformed(f"keys file {file}: not ASCII") from error
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words and (len(words) != 2 or not words[1].isprintable() or words[0] in keys):
            raise KeyMalformed(
                f"keys file {file}: line {number}: write the host and port of a target, once, and its key"
            )
        if words:
            keys[words[0]] = words[1]
    return keys
