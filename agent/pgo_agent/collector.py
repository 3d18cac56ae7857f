"""Pushes finished profiles to a collector over HTTP, and doesn't lose one to a passing fault."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import aclosing, closing
from typing import Any, Self

import httpx

from pgo_agent.endpoint import Endpoint, Upload
from pgo_agent.errors import CollectorUnavailable
from pgo_agent.exchange import Answer, Exchange, Retries


class Collector:
    """One collector, and the key to it. Safe to share between threads, and to take across a fork.

    `url` is the collector's ("http://host:8080") or that of its submit route ("http://host:8080/v1/submit").
    `service` and `labels` say whose profiles these are; without them, that is up to the collector.
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
        service: str | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        attempts: int = 6,
        backoff: float = 1.0,
        within: float = 300.0,
    ) -> None:
        self._endpoint = Endpoint(url, key, service, labels or {})
        self._retries = Retries(attempts, backoff, within)
        self._timeout = timeout
        self._options: dict[str, Any] = {
            "auth": self._endpoint.auth,
            "headers": {"User-Agent": _user_agent(), "Accept-Encoding": "identity"},
            "timeout": timeout,
            # To load certificates takes longer than a request that needs none.
            "verify": httpx.create_ssl_context() if self._endpoint.url.scheme == "https" else False,
        }
        self._closed = threading.Event()
        self._pid = 0
        self._client = self._connected()

    def __repr__(self) -> str:
        return f"Collector({self._endpoint.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. A `submit` that waits for its next attempt gives up at once."""
        self._closed.set()
        self._client.close()

    def submit(self, profile: bytes, type_: str | None = None) -> None:
        """Submits a pprof profile, gzipped or bare; returns when the collector has stored it.

        `type_` is what was measured ("heap", "mutex", …), which to a collector is "cpu" unless it is said.
        Blocks for `within` seconds and the time of one attempt at most. Raises SubmitRefused if the
        collector refuses the profile, CollectorUnavailable if it couldn't be reached.
        """
        self.send(self.upload(profile, type_))

    async def submit_async(self, profile: bytes, type_: str | None = None) -> None:
        """`submit`, for programs on asyncio or trio. It holds no connection afterwards."""
        from anyio import sleep  # noqa: PLC0415 - its import takes as long as that of httpx

        request, exchange = self._endpoint.request(self.upload(profile, type_)), Exchange(self._retries)
        async with httpx.AsyncClient(**self._options) as client:
            while True:
                outcome: Answer | httpx.RequestError
                try:
                    async with aclosing(await client.send(request, stream=True)) as response:
                        outcome = Answer(response, self._timeout)
                        async for chunk in response.aiter_raw():
                            if outcome.enough(chunk):
                                break
                except httpx.RequestError as error:
                    outcome = error
                if (wait := exchange.after(outcome)) is None:
                    return
                await sleep(wait)

    def upload(self, profile: bytes, type_: str | None = None) -> Upload:
        """A profile as `send` takes it: with the service, labels and type, gzipped unless it is already."""
        return self._endpoint.upload(profile, type_)

    def send(self, upload: Upload, until: threading.Event | None = None) -> None:
        """`submit`, of what may have been kept since; when `until` is set, it doesn't wait to send again."""
        request, exchange = self._endpoint.request(upload), Exchange(self._retries)
        ended = self._closed if until is None else until
        while True:
            if self._closed.is_set():
                raise CollectorUnavailable(0, "the client is closed")
            outcome: Answer | httpx.RequestError
            try:
                with closing(self._connected().send(request, stream=True)) as response:
                    outcome = Answer(response, self._timeout)
                    for chunk in response.iter_raw():
                        if outcome.enough(chunk):
                            break
            except httpx.RequestError as error:
                outcome = error
            if (wait := exchange.after(outcome)) is None:
                return
            if ended.wait(wait):
                raise exchange.given_up()

    def _connected(self) -> httpx.Client:
        """The client of this process: a connection that two of them wrote to would be garbled."""
        if self._pid != os.getpid():
            self._client, self._pid = httpx.Client(**self._options), os.getpid()
        return self._client


def _user_agent() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - takes a quarter of what all of the library does

    return f"pgo-agent/{version('pgo-agent')}"
