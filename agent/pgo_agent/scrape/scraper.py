"""Get the profiles of one target over HTTP, hand them to the submit queue, and count what happened."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import httpx
from pprof_proto.other_formats import other_format

from pgo_agent.endpoint import Bearer, series_query
from pgo_agent.errors import ScrapeFailed
from pgo_agent.logs import EventLogger
from pgo_agent.scrape.submit_queue import SubmitQueue
from pgo_agent.scrape.target import Profile, Target
from pgo_agent.trace import Step

_CONNECT_SECONDS = 5.0
_EXTRA_SECONDS = 15.0
_CHUNK = 1 << 16
_LONGEST_DETAIL = 200
_log = EventLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """A profile that a target didn't give, and why."""

    target: str
    type: str
    error: ScrapeFailed

    def __str__(self) -> str:
        return f"{self.target}: {self.type}: {self.error}"

    def as_json(self) -> dict[str, str]:
        """Return the failure as a JSON object."""
        error = self.error
        return {"target": self.target, "type": self.type, "reason": error.reason, "detail": error.detail}


@dataclass(slots=True)
class RoundResults:
    """The results of one round.

    `scraped` counts profiles. `late` counts scrapes that were skipped because an earlier one took too long.
    """

    scraped: int = 0
    late: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, scraped: int, failures: Sequence[Failure]) -> None:
        """Add the results of scraping one target: the number of profiles, and the failures."""
        self.scraped += scraped
        self.failures += failures

    def summary(self, targets: int, queue: SubmitQueue) -> dict[str, Any]:
        """Return this round's counts, with the number of targets and the queue's counts since the start."""
        return {
            "targets": targets,
            "scraped": self.scraped,
            "failed": dict(Counter(failure.error.reason for failure in self.failures)),
            "late": self.late,
            "sent": queue.sent,
            "waiting": queue.waiting,
            "key_refused": queue.key_refused,
            "dropped": {str(why): count for why, count in queue.dropped.items()},
        }


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return a summary as one line of text."""
    return "; ".join(
        f"{name}: {counts_text(value) if isinstance(value, dict) else value}"
        for name, value in summary.items()
    )


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts by reason as text, such as "9 no connection, 4 status 404"; "0" for none."""
    return ", ".join(f"{count} {why}" for why, count in counts.items()) or "0"


class Scraper:
    """Scrape targets, at most `slots` at once. The caller of `scrape` holds one of the `slots`.

    `limit` is the largest size of a profile in bytes, both as it comes and inflated. `labels` are put on
    every profile, and override a target's own labels of the same name.
    """

    def __init__(self, queue: SubmitQueue, *, slots: int, limit: int, labels: Mapping[str, str]) -> None:
        self._queue = queue
        self._limit = limit
        self._labels = labels
        self.slots = asyncio.Semaphore(slots)

    async def scrape(self, target: Target) -> list[Failure]:
        """Get all profiles of a target at the same time, and return the ones that failed.

        All of them cover the same seconds. Nothing is raised, whatever the target does.
        """
        try:
            async with _client(target) as client:
                attempts = (self._attempt(client, target, profile) for profile in target.profiles)
                outcomes = await asyncio.gather(*attempts)
        except ScrapeFailed as error:
            return [Failure(target.name, profile.type, error) for profile in target.profiles]
        return [failure for failure in outcomes if failure is not None]

    async def _attempt(self, client: httpx.AsyncClient, target: Target, profile: Profile) -> Failure | None:
        began = time.time_ns()
        try:
            with self._queue.buffer() as body:
                await _fetch(client, profile, target.seconds, self._limit, body)
                query = (
                    *series_query(target.service, {**dict(target.labels), **self._labels}),
                    ("type", profile.type),
                )
                await self._queue.put(body, query, self._limit, Step.since("scrape", began))
        except ScrapeFailed as error:
            return Failure(target.name, profile.type, error)
        except Exception as error:  # noqa: BLE001 - no error of one target may stop the others
            _log.exception("unexpected error", target=target.name, type=profile.type)
            return Failure(target.name, profile.type, ScrapeFailed(type(error).__name__, str(error)))
        return None


def _client(target: Target) -> httpx.AsyncClient:
    """Return a client for one scrape, so that no state of a target, such as a cookie, reaches the next.

    The client follows no redirects, which could lead to a host that nobody configured, and uses no proxy.
    Raises ScrapeFailed if the token or the certificates can't be read.
    """
    try:
        return httpx.AsyncClient(
            auth=None if target.token_file is None else Bearer(target.token_file.read_text()),
            headers={"Accept-Encoding": "identity"},
            verify=_certificates(target.ca_file),
            trust_env=False,
            timeout=None,  # noqa: S113 - _fetch bounds the whole request
        )
    except (OSError, ValueError) as error:
        raise ScrapeFailed("no token or certificates", str(error)) from error


async def _fetch(
    client: httpx.AsyncClient, profile: Profile, seconds: int, limit: int, body: IO[bytes]
) -> None:
    """Write a target's answer to `body`: at most `limit` bytes, within `seconds` plus 15 s.

    Raises ScrapeFailed.
    """
    try:
        async with asyncio.timeout(seconds + _EXTRA_SECONDS):
            await _get(client, profile.url, limit, body)
    except TimeoutError:
        raise ScrapeFailed(
            "timeout", f"not done {_EXTRA_SECONDS:.0f} s after the profile should be"
        ) from None
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise ScrapeFailed("no connection", str(error) or f"not within {_CONNECT_SECONDS:.0f} s") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ScrapeFailed("no HTTP answer", str(error) or "the connection was closed") from error


async def _get(client: httpx.AsyncClient, url: str, limit: int, body: IO[bytes]) -> None:
    request = client.build_request("GET", url, timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS))
    async with aclosing(await client.send(request, stream=True)) as response:
        succeeded = response.status_code == httpx.codes.OK
        # Raw bytes: a server that compresses although asked not to sends a gzipped profile, or none.
        try:
            async for chunk in response.aiter_raw(_CHUNK):
                body.write(chunk)
                if body.tell() > (limit if succeeded else _LONGEST_DETAIL):
                    break
        except httpx.TransportError as error:
            came = response.num_bytes_downloaded
            raise ScrapeFailed("the answer is cut off", f"{came:,} bytes came, and not all of it") from error
    if not succeeded:
        body.seek(0)
        begin = body.read(_LONGEST_DETAIL)
        page = other_format(begin) if begin.lstrip().startswith(b"<") else None
        text = page or begin.decode(errors="replace")
        raise ScrapeFailed(f"status {response.status_code}", " ".join(text.split()))
    if body.tell() > limit:
        raise ScrapeFailed("too large", f"more than {limit} bytes")


@lru_cache(maxsize=64)
def _certificates(ca_file: Path | None) -> ssl.SSLContext:
    """Return a TLS context. Cached, since loading the system's certificates takes longer than a request."""
    return httpx.create_ssl_context() if ca_file is None else ssl.create_default_context(cafile=ca_file)
