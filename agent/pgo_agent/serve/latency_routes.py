"""Answer /latency and /metrics: start, change and stop trackers, and read what they count."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pgo_agent.errors import AgentError, NotSupported
from pgo_agent.latency import TRACKERS, Counts, Histogram, Monitor, Tracker, TrackerBackend, TrackerSettings
from pgo_agent.logs import EventLogger
from pgo_agent.outbox import Outbox
from pgo_agent.serve.requests import RequestRefused, check_key, json_body, json_object, until_gone
from pgo_agent.spool import Dropped

_LONGEST_PROFILE = 3600
_SECONDS = 10
_MOST_READERS = 16  # streams and profiles of one tracker at a time
_STREAM_POLL_SECONDS = 0.2
_STREAM_SIGN_SECONDS = 10.0  # between two lines, by which a client knows that the stream is alive
_log = EventLogger(__name__)
_Answer = TypeVar("_Answer")
# Up to 2^36 ns, 69 s. Each bucket is twice as wide as the one before, as a native histogram's of schema 0.
_BUCKETS = range(37)
_LATENCY = "pgo_agent_latency_seconds"
_EVENTS = "pgo_agent_latency_events_total"
_PROFILES = "pgo_agent_profiles_total"
_KEY_REFUSED = "pgo_agent_key_refused_total"


class LatencyRoutes:
    """The handlers of /latency and /metrics. `ending` is set when the server ends.

    `key` is required with every request; None means no key, which is only safe on loopback. Without a
    `backend`, the first that works when a tracker starts runs it.
    """

    def __init__(self, key: str | None = None, backend: TrackerBackend | None = None) -> None:
        self.monitors: dict[str, Monitor] = {}
        self.outboxes: list[Outbox] = []
        self.ending = Event()
        self._key, self._backend = key, backend
        self._readers: dict[str, int] = dict.fromkeys(TRACKERS, 0)
        # Apart from the threads of other requests, which would wait until a profile is over.
        self._reading = ThreadPoolExecutor(_MOST_READERS * len(TRACKERS), "pgo-agent-latency-reader")
        self._changing = {name: asyncio.Lock() for name in TRACKERS}

    def routes(self) -> list[Route]:
        """Return the routes."""
        one = "/latency/{tracker}"
        return [
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/latency", self.list, methods=["GET"]),
            Route(one, self.put, methods=["PUT"]),
            Route(one, self.patch, methods=["PATCH"]),
            Route(one, self.get, methods=["GET"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/in-flight", self.in_flight, methods=["GET"]),
            Route(f"{one}/profile", self.profile, methods=["GET"]),
            Route(f"{one}/events", self.events, methods=["GET"]),
        ]

    async def metrics(self, request: Request) -> Response:
        """Answer with the counts of sent profiles and of the running trackers, for Prometheus."""
        check_key(request, self._key)
        text = latency_metrics(self.monitors) + outbox_metrics(self.outboxes)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def list(self, request: Request) -> Response:
        """Answer with all trackers, and which of them run."""
        check_key(request, self._key)
        return JSONResponse(
            [
                {"tracker": name, "measures": tracker.measures, "running": self._is_running(name)}
                for name, tracker in TRACKERS.items()
            ]
        )

    async def put(self, request: Request) -> Response:
        """Start a tracker with the settings in the body."""
        tracker = self._tracker(request)
        settings = await _settings(request, TrackerSettings())
        if self._changing[tracker.name].locked() or self._is_running(tracker.name):
            raise RequestRefused(409, f"The tracker {tracker.name} is already running.")
        async with self._changing[tracker.name]:
            try:
                monitor = await asyncio.to_thread(Monitor, tracker, settings, self._backend)
                await asyncio.to_thread(monitor.start)
            except NotSupported as error:
                raise _not_supported(error) from None
            except (AgentError, OSError) as error:
                _log.warning("tracker not started", tracker=tracker.name, reason=error)
                raise RequestRefused(500, f"Failed to start the tracker: {error}") from error
            self.monitors[tracker.name] = monitor
        return JSONResponse(monitor.as_json(), 201)

    async def patch(self, request: Request) -> Response:
        """Change some settings of a running tracker."""
        monitor = self._monitor(request)
        settings = await _settings(request, monitor.session.settings)
        await _run(lambda: monitor.session.change(settings))
        return JSONResponse(monitor.as_json())

    async def get(self, request: Request) -> Response:
        """Answer with the state of a tracker: settings, counts and histograms, if it ran."""
        tracker = self._tracker(request)
        monitor = self.monitors.get(tracker.name)
        return JSONResponse(monitor.as_json() if monitor else {"tracker": tracker.name, "running": False})

    async def delete(self, request: Request) -> Response:
        """Stop a tracker; answer once its process has ended."""
        monitor = self._monitor(request)
        async with self._changing[monitor.session.tracker.name]:
            await asyncio.to_thread(monitor.session.stop)
            self.monitors.pop(monitor.session.tracker.name, None)
        return JSONResponse(monitor.as_json())

    async def in_flight(self, request: Request) -> Response:
        """Answer with what is in flight, longest first."""
        return JSONResponse(await _run(self._monitor(request).in_flight))

    async def profile(self, request: Request) -> Response:
        """Answer with a profile of the next seconds."""
        monitor = self._monitor(request)
        seconds = _seconds(request.query_params.get("seconds", str(_SECONDS)))
        name = monitor.session.tracker.name
        self._enter(name)
        ended = Event()
        try:
            loop = asyncio.get_running_loop()
            taking = loop.run_in_executor(self._reading, monitor.record, seconds, ended)
            gone = asyncio.create_task(until_gone(request))
            while not taking.done() and not gone.done() and not self.ending.is_set():
                await asyncio.wait(
                    (taking, gone), timeout=_STREAM_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
            ended.set()
            gone.cancel()
            profile = await asyncio.to_thread((await taking).profile)
        except (AgentError, OSError) as error:
            raise RequestRefused(500, f"Failed to generate pprof data: {error}") from error
        finally:
            self._readers[name] -= 1
        headers = {"Content-Disposition": f'attachment; filename="{name}.pb.gz"'}
        return Response(profile, media_type="application/gzip", headers=headers)

    async def events(self, request: Request) -> Response:
        """Stream events over the threshold and over the timeout, as server-sent events."""
        monitor = self._monitor(request)
        self._enter(monitor.session.tracker.name)
        return StreamingResponse(
            self._lines(monitor), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _lines(self, monitor: Monitor) -> AsyncIterator[str]:
        stream = monitor.open_stream()
        loop = asyncio.get_running_loop()
        try:
            yield ": the stream begins\n\n"
            due = loop.time() + _STREAM_SIGN_SECONDS
            while monitor.session.is_running and not self.ending.is_set():
                found = await loop.run_in_executor(self._reading, stream.get, _STREAM_POLL_SECONDS)
                if found:
                    yield f"event: {found[0]}\ndata: {json.dumps(found[1])}\n\n"
                elif loop.time() > due:
                    yield ": nothing\n\n"
                    due = loop.time() + _STREAM_SIGN_SECONDS
        finally:
            monitor.close_stream(stream)
            self._readers[monitor.session.tracker.name] -= 1

    def stop(self) -> None:
        """Stop all trackers."""
        for monitor in self.monitors.values():
            monitor.session.stop()

    def _enter(self, name: str) -> None:
        if self._readers[name] >= _MOST_READERS:
            raise RequestRefused(429, f"{_MOST_READERS} others are reading this tracker; try again later.")
        self._readers[name] += 1

    def _is_running(self, name: str) -> bool:
        return name in self.monitors and self.monitors[name].session.is_running

    def _tracker(self, request: Request) -> Tracker:
        check_key(request, self._key)
        name = request.path_params["tracker"]
        if name not in TRACKERS:
            raise RequestRefused(404, f"No tracker has this name; there are {', '.join(TRACKERS)}.")
        return TRACKERS[name]

    def _monitor(self, request: Request) -> Monitor:
        tracker = self._tracker(request)
        if not self._is_running(tracker.name):
            raise RequestRefused(412, f"The tracker {tracker.name} is not running.")
        return self.monitors[tracker.name]


async def _settings(request: Request, before: TrackerSettings) -> TrackerSettings:
    fields = json_object(await json_body(request))
    try:
        return before.changed(fields)
    except ValueError as error:
        raise RequestRefused(422, f"{error}.") from None


async def _run(function: Callable[[], _Answer]) -> _Answer:
    try:
        return await asyncio.to_thread(function)
    except NotSupported as error:
        raise _not_supported(error) from None
    except (AgentError, OSError) as error:
        raise RequestRefused(500, f"The tracker failed: {error}") from error


def _not_supported(error: NotSupported) -> RequestRefused:
    return RequestRefused(501, f"{error}.")


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:10]) <= _LONGEST_PROFILE:
        raise RequestRefused(422, f"seconds must be a whole number from 1 to {_LONGEST_PROFILE}.")
    return int(text)


def latency_metrics(monitors: Mapping[str, Monitor]) -> str:
    """Return the metrics of trackers by name, in the text format of Prometheus."""
    found = {name: monitor.totals() for name, monitor in [*monitors.items()]}
    lines = [
        f"# HELP {_LATENCY} Latencies of all events.",
        f"# TYPE {_LATENCY} histogram",
        *(line for name, (_, histogram) in found.items() for line in _histogram_lines(name, histogram)),
        f"# HELP {_EVENTS} Events by what became of them.",
        f"# TYPE {_EVENTS} counter",
        *(
            f'{_EVENTS}{{tracker="{name}",outcome="{outcome}"}} {counts[outcome]}'
            for name, (counts, _) in found.items()
            for outcome in Counts.NAMES
        ),
    ]
    return "\n".join(lines) + "\n"


def outbox_metrics(outboxes: Sequence[Outbox]) -> str:
    """Return the metrics of what is submitted, in the text format of Prometheus."""
    dropped = sum((outbox.spool.dropped for outbox in outboxes), Counter[Dropped]())
    lines = [
        f"# HELP {_PROFILES} Profiles that were submitted, or dropped, by what became of them.",
        f"# TYPE {_PROFILES} counter",
        f'{_PROFILES}{{outcome="sent"}} {sum(outbox.sent for outbox in outboxes)}',
        *(f'{_PROFILES}{{outcome="{why}"}} {dropped[why]}' for why in Dropped),
        f"# HELP {_KEY_REFUSED} How often the collector has refused the agent's key.",
        f"# TYPE {_KEY_REFUSED} counter",
        f"{_KEY_REFUSED} {sum(outbox.key_refused for outbox in outboxes)}",
    ]
    return "\n".join(lines) + "\n"


def _histogram_lines(name: str, histogram: Histogram) -> Iterator[str]:
    count = 0
    for bucket in _BUCKETS:
        count += histogram.counts.get(bucket, 0)
        yield f'{_LATENCY}_bucket{{tracker="{name}",le="{(1 << bucket) / 1e9!r}"}} {count}'
    yield f'{_LATENCY}_bucket{{tracker="{name}",le="+Inf"}} {histogram.count}'
    yield f'{_LATENCY}_sum{{tracker="{name}"}} {histogram.total / 1e9!r}'
    yield f'{_LATENCY}_count{{tracker="{name}"}} {histogram.count}'
