"""Submit finished profiles to a collector over HTTP, and send again after a passing fault."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any, Self

import httpx

from pgo_agent.endpoint import Endpoint, Upload
from pgo_agent.errors import AgentError, CollectorUnavailable, SubmitRefused
from pgo_agent.retry import Attempts, RetryPolicy, SubmitResponse
from pgo_agent.trace import TracedWay, UntracedWay, Way, new_trace_id

# There is no such program; a collector that can't be asked has no such route.
_NOT_THERE = frozenset({404, 405})


class Collector:
    """A client of one collector. Safe to share between threads and to use after a fork.

    `url` is the collector's base URL ("http://host:8080") or its submit route
    ("http://host:8080/v1/submit"). `service` and `labels` describe the profiles; without `service`, the
    collector chooses one. `timeout` is in seconds, and bounds each step of an attempt: connect, write, read.

    After a passing fault (no connection, a timeout, status 408, 425, 429 or 5xx but 501) the client sends the
    profile again, at most `attempts` times in all. It waits up to `backoff` seconds before the second
    attempt, doubles that bound each time, and never waits less than a Retry-After header asks for. No
    attempt starts later than `within` seconds after the first.

    With a `trace_key`, the collector records where the time of each request goes. When a profile is sent, the
    client reports what the agent did with it and how long all took, which may take another `report` seconds
    and never fails. All that `submit` sends is in one trace, whose id is `trace_id`.

    Sending again is safe even if an earlier attempt arrived: a collector counts the same bytes once, however
    often they are submitted.
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
        trace_key: str | None = None,
        report: float = 5.0,
    ) -> None:
        self._endpoint = Endpoint(url, key, service, labels or {})
        self._trace_key = None if trace_key is None else trace_key.strip().encode()
        self.trace_id = None if trace_key is None else new_trace_id()
        self._retries = RetryPolicy(attempts, backoff, within)
        self._timeout = timeout
        self._report_seconds = report
        self._options: dict[str, Any] = {
            "auth": self._endpoint.auth,
            "headers": {"User-Agent": _user_agent(), "Accept-Encoding": "identity"},
            "timeout": timeout,
            # Loading certificates takes longer than a request over http, so only https loads them.
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
        """Close the connections. A `submit` that waits for its next attempt gives up at once."""
        self._closed.set()
        self._client.close()

    def submit(self, profile: bytes, type_: str | None = None) -> None:
        """Submit a pprof profile, gzipped or bare; return when the collector has stored it.

        `type_` is the profile type ("heap", "mutex", …); a collector takes a missing type for "cpu". Blocks
        for at most `within` seconds plus the time of one attempt. Raises SubmitRefused if the collector
        refuses the profile (KeyRefused, if it is the key), CollectorUnavailable if it couldn't be reached.
        """
        self.send(self.upload(profile, type_))

    def submit_symbols(self, symbols: bytes) -> None:
        """Send the symbols of a Go program like `submit`; return when the collector has stored them.

        `symbols` is a pprof profile with the functions of the program, as the command `pgo-agent symbols`
        makes it. Raises as `submit` does.
        """
        self.send(self._endpoint.symbols(symbols))

    def submit_binary(self, file: Path) -> None:
        """Send a program like `submit`, as it was built; return when the collector has stored it.

        With it, merges in the format llvm are better. Raises as `submit` does, and OSError.
        """
        self.send(self._endpoint.binary(file))

    def has_binary(self, build_id: str) -> bool:
        """Ask whether a program of this build is stored, like `submit`; of an older collector, return False.

        Raises as `submit` does.
        """
        try:
            self.send(self._endpoint.binary_of(build_id))
        except SubmitRefused as error:
            if error.status in _NOT_THERE:
                return False
            raise
        return True

    async def submit_async(self, profile: bytes, type_: str | None = None) -> None:
        """Submit like `submit`, from a program on asyncio or trio. No connection is kept open afterwards."""
        from anyio import sleep  # noqa: PLC0415 - it takes as long to import as httpx

        upload = self.upload(profile, type_)
        request, attempts = self._endpoint.request(upload), Attempts(self._retries)
        way = self._way(upload, self.trace_id)
        async with httpx.AsyncClient(**self._options) as client:
            while True:
                outcome: SubmitResponse | httpx.RequestError
                way.begin(request)
                try:
                    async with aclosing(await client.send(request, stream=True)) as response:
                        way.answered(response.headers)
                        outcome = SubmitResponse(response, self._timeout)
                        async for chunk in response.aiter_raw():
                            if outcome.add(chunk):
                                break
                except httpx.RequestError as error:
                    outcome = error
                way.end()
                try:
                    wait = attempts.wait_after(outcome)
                except AgentError:
                    await self._report_async(client, way)
                    raise
                if wait is None:
                    await self._report_async(client, way)
                    return
                await sleep(wait)
                way.wait()

    def upload(self, profile: bytes, type_: str | None = None) -> Upload:
        """Return a profile as `send` takes it: gzipped, with the service, labels and type."""
        return self._endpoint.upload(profile, type_)

    def send(
        self,
        upload: Upload,
        until: threading.Event | None = None,
        trace_id: str | None = None,
        *,
        patient: bool = False,
    ) -> int:
        """Submit an upload like `submit`; once `until` is set, don't wait for another attempt.

        With `patient`, a refused key is tried again too, as it may be one that was rotated too early.
        If requests are traced, this one is in the trace `trace_id`, or in that of all submits. Returns how
        long that trace's root is, in ns; else 0.
        """
        way = self._way(upload, trace_id or self.trace_id)
        try:
            self._send(upload, way, self._closed if until is None else until, patient=patient)
        except AgentError:
            self._report(way)
            raise
        self._report(way)
        return way.nanos

    def _send(self, upload: Upload, way: Way, ended: threading.Event, *, patient: bool) -> None:
        request, attempts = self._endpoint.request(upload), Attempts(self._retries, patient=patient)
        while True:
            if self._closed.is_set():
                raise CollectorUnavailable(0, "the client is closed")
            outcome: SubmitResponse | httpx.RequestError
            way.begin(request)
            try:
                with closing(self._connected().send(request, stream=True)) as response:
                    way.answered(response.headers)
                    outcome = SubmitResponse(response, self._timeout)
                    for chunk in response.iter_raw():
                        if outcome.add(chunk):
                            break
            except httpx.RequestError as error:
                outcome = error
            way.end()
            if (wait := attempts.wait_after(outcome)) is None:
                return
            if ended.wait(wait):
                raise attempts.given_up()
            way.wait()

    def _way(self, upload: Upload, trace_id: str | None) -> Way:
        if self._trace_key is None or trace_id is None:
            return UntracedWay()
        return TracedWay(self._trace_key, trace_id, upload.steps)

    def _report(self, way: Way) -> None:
        """Report a way to the collector if it has recorded it, and the client isn't closed."""
        if (report := way.report()) is not None and not self._closed.is_set():
            request = self._endpoint.report(report, self._report_seconds)
            with suppress(httpx.HTTPError), closing(self._connected().send(request, stream=True)) as answer:
                next(answer.iter_raw(), None)

    async def _report_async(self, client: httpx.AsyncClient, way: Way) -> None:
        if (report := way.report()) is not None:
            request = self._endpoint.report(report, self._report_seconds)
            with suppress(httpx.HTTPError):
                async with aclosing(await client.send(request, stream=True)) as answer:
                    await anext(answer.aiter_raw(), None)

    def _connected(self) -> httpx.Client:
        """Return the client of this process; a forked child gets its own, with its own connections."""
        if self._pid != os.getpid():
            self._client, self._pid = httpx.Client(**self._options), os.getpid()
        return self._client


def _user_agent() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - a quarter of the whole import time

    return f"pgo-agent/{version('pgo-agent')}"
