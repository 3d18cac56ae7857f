"""Find scrape targets in a catalog of services, Nomad's or Consul's: read it again whenever it changes."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from pathlib import Path
from typing import Any

import httpx

from pgo_agent.errors import CatalogUnavailable, TargetInvalid
from pgo_agent.logs import EventLogger
from pgo_agent.retry import retry_delay
from pgo_agent.scrape.nomad_consul import CatalogApi, Instance, Question
from pgo_agent.scrape.schedule import ScrapeSchedule
from pgo_agent.scrape.target import Target, TargetDefaults

# A question waits for a change of the list of services for so long. Then all is read again, since the list
# may stay the same when an instance comes or goes.
_WAIT_SECONDS = 30
# The catalog adds up to a sixteenth to the wait.
_ANSWER_SECONDS = _WAIT_SECONDS * 17 / 16 + 15
_CONNECT_SECONDS = 5.0
# Between two readings, however often the catalog changes.
_PAUSE_SECONDS = 2.0
# All answers of a reading together.
_MOST_BYTES = 16 << 20
_LONGEST_DETAIL = 200
_MOST_DIGITS = 20
_MOST_REPORTED = 1000
_CHUNK = 1 << 16
_log = EventLogger(__name__)


class CatalogTargets:
    """The instances of services that have autopgo's mark in a catalog at `url`.

    The token in `token_file` and the certificates in `ca_file` are read for each reading of the catalog.
    Raises ValueError if `url` isn't an http or https URL.
    """

    def __init__(
        self,
        api: CatalogApi,
        url: str,
        defaults: TargetDefaults,
        token_file: Path | None = None,
        ca_file: Path | None = None,
    ) -> None:
        self._api = api
        self._url = _base_url(url)
        self._defaults = defaults
        self._token_file = token_file
        self._ca_file = ca_file
        self._reported: dict[str, str] = {}
        self.unreadable = False

    async def targets(self) -> list[Target]:
        """Return the targets that exist now. Raises CatalogUnavailable."""
        try:
            return (await self._read(0))[0]
        except Exception as error:
            raise CatalogUnavailable(self._api.name, _reason(error)) from error

    async def follow(self, schedule: ScrapeSchedule) -> None:
        """Keep the schedule up to date until cancelled. In an outage the last known targets stay."""
        index = failures = 0
        known: list[Target] | None = None
        while True:
            began = time.monotonic()
            try:
                targets, now = await self._read(index)
            except Exception as error:  # noqa: BLE001 - no error may stop the known targets
                index, failures = 0, failures + 1
                _log.warning("services unreadable", catalog=self._api.name, reason=_reason(error))
                await asyncio.sleep(retry_delay(failures, 1.0, 0.0))
                continue
            failures = 0
            if targets != known:
                schedule.replace(self._api.name, targets)
                _log.info("services listed", catalog=self._api.name, targets=len(targets))
                known = targets
            # An index that goes back is one of a catalog that begins again. Without one no question waits.
            pause = _PAUSE_SECONDS if now else _WAIT_SECONDS
            index = now if now >= index else 0
            await asyncio.sleep(max(0.0, began + pause - time.monotonic()))

    async def _read(self, index: int) -> tuple[list[Target], int]:
        """Return the targets, and the index of the list of services, 0 if it has none.

        With the index of an earlier list, wait until the list changes, but not for long.
        """
        async with self._client() as client:
            answers = _Answers(client, self._url)
            listed = await answers.ask(self._api.listing(), index)
            now = answers.headers.get(self._api.index_header, "")
            marked = [*self._api.marked(listed)]
            targets = [
                target
                for question in marked
                for instance in self._api.instances(await answers.ask(question, may_be_gone=True))
                if (target := self._target(instance)) is not None
            ]
        if not (index or marked or self._token_file):
            _log.warning("no services", catalog=self._api.name)
        return targets, int(now) if now.isascii() and now.isdecimal() and len(now) < _MOST_DIGITS else 0

    def _client(self) -> httpx.AsyncClient:
        """Return a client, which follows no redirects and uses no proxy. Raises OSError or ValueError."""
        headers = {"Accept-Encoding": "identity"}
        if self._token_file is not None:
            token = self._token_file.read_text().strip()
            # Checked here, without quoting the token: the HTTP library's own error would quote it.
            if not token or not token.isascii() or not token.isprintable() or " " in token:
                raise ValueError(f"{self._token_file}: the token must be one word of printable ASCII")
            headers[self._api.token_header] = token
        context = ssl.create_default_context(cafile=self._ca_file) if self._ca_file else True
        timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)  # _Reading bounds the whole answer
        return httpx.AsyncClient(headers=headers, verify=context, trust_env=False, timeout=timeout)

    def _target(self, instance: Instance) -> Target | None:
        """Return an instance as a target; None if it has no mark, or a wrong one, which is logged once."""
        try:
            return instance.target(self._defaults)
        except TargetInvalid as error:
            if len(self._reported) >= _MOST_REPORTED:
                self._reported.clear()
            if self._reported.get(error.name) != error.reason:
                self._reported[error.name] = error.reason
                _log.warning("service not scraped", service=error.name, reason=error.reason)
            return None


class _Answers:
    """Answers of a catalog, together bounded in bytes. `headers` are the headers of the last answer."""

    def __init__(self, client: httpx.AsyncClient, url: httpx.URL) -> None:
        self._client = client
        self._url = url
        self._left = _MOST_BYTES
        self.headers = httpx.Headers()

    async def ask(self, question: Question, index: int = 0, *, may_be_gone: bool = False) -> Any:
        """Return the JSON of an answer; an empty list for what is gone, if it may be.

        Raises TimeoutError, httpx.HTTPError or ValueError.
        """
        wait = {"index": str(index), "wait": f"{_WAIT_SECONDS}s"} if index else {}
        url = self._url.copy_with(
            raw_path=self._url.raw_path.rstrip(b"/") + question.path.encode(), query=None
        ).copy_merge_params({**question.query, **wait})
        body = bytearray()
        async with asyncio.timeout(_ANSWER_SECONDS), self._client.stream("GET", url) as response:
            self.headers, status = response.headers, response.status_code
            async for chunk in response.aiter_raw(_CHUNK):
                body += chunk
                if status != httpx.codes.OK and len(body) > _LONGEST_DETAIL:
                    break
                if len(body) > self._left:
                    raise ValueError(f"it answers with more than {_MOST_BYTES:,} bytes")
        self._left -= len(body)
        if status == httpx.codes.NOT_FOUND and may_be_gone:
            return []
        if status != httpx.codes.OK:
            text = " ".join(body[:_LONGEST_DETAIL].decode(errors="replace").split())
            raise ValueError(f"status {status}: {text}")
        return json.loads(body)


def _base_url(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"not a URL ({error}): {url!r}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f"not an http or https URL: {url!r}")
    return parsed


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_ANSWER_SECONDS:.0f} seconds"
    return f"{type(error).__name__}: {error}"
