"""Answer /profile/cpu, and serve it with the latency trackers' routes on an address until a signal.

POST takes a profile, GET tells whether one is running, DELETE stops it; the interface is the compute
profiler's. `listen` and `serve` run the application of `create_app`.
"""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import signal
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pgo_agent.backends import KeptBcc, ProcessSampler
from pgo_agent.errors import AddressUnusable, AgentError
from pgo_agent.logs import EventLogger
from pgo_agent.native import native_profile
from pgo_agent.serve.captures import Capture, CaptureLock, CaptureRequest
from pgo_agent.serve.latency_routes import LatencyRoutes
from pgo_agent.serve.requests import KnownHosts, RequestRefused, check_key, json_body, refused, until_gone

_log = EventLogger(__name__)
PATH = "/profile/cpu"
_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class CaptureRoutes:
    """The handlers of /profile/cpu, and their settings.

    `names` are the processes to sample, `allowed_programs` the profilers that requests may name by path.
    bcc is `kept` from one to the next. `key` is required with every request; None means no key, which is only
    safe on loopback.
    """

    lock: CaptureLock
    names: tuple[str, ...]
    allowed_programs: Collection[str] = ()
    key: str | None = field(default=None, repr=False)
    kept: KeptBcc = field(default_factory=KeptBcc)

    async def post(self, request: Request) -> Response:
        """Take a profile and answer with it; 204 if it was stopped early and a partial one isn't wanted."""
        check_key(request, self.key)
        asked = CaptureRequest.parse(await json_body(request), self.allowed_programs)
        capture = self.lock.start(partial=_wants_partial(request))
        if capture is None:
            raise RequestRefused(409, "Profiling is already in progress.")
        taking = asyncio.create_task(asyncio.to_thread(self._take, asked, capture))
        gone = asyncio.create_task(until_gone(request))
        await asyncio.wait((taking, gone), return_when=asyncio.FIRST_COMPLETED)
        if not gone.cancel():
            capture.stop()
        try:
            profile = await taking
        except (AgentError, OSError) as error:
            _log.warning("capture failed", profiler=asked.backend.name, reason=error)
            raise RequestRefused(500, f"Failed to generate pprof data: {error}") from error
        return Response(status_code=204) if profile is None else _download(profile, archive=asked.archive)

    async def get(self, request: Request) -> Response:
        """Answer 200 if a profile is being taken, 204 if not."""
        check_key(request, self.key)
        if self.lock.running is None:
            return Response(status_code=204)
        return JSONResponse("Profiling is currently in progress.")

    async def delete(self, request: Request) -> Response:
        """Stop the running capture; answer once it is over and its profiler's process has ended."""
        check_key(request, self.key)
        capture = self.lock.running
        if capture is None:
            raise RequestRefused(412, "Profiling is not in progress, there is nothing to stop.")
        capture.stop(partial=_wants_partial(request))
        await asyncio.to_thread(capture.finished.wait)
        return JSONResponse("Profiling stopped successfully.")

    def _take(self, asked: CaptureRequest, capture: Capture) -> bytes | None:
        """Return the gzipped profile; None if it was stopped and no partial profile is wanted or possible."""
        sampler = ProcessSampler(self.kept.keeping(asked.backend), self.names, asked.frequency)
        try:
            recording = sampler.record(asked.duration, capture.ended)
            unwanted = capture.stopped and not capture.partial
            return None if unwanted else native_profile(recording)
        except AgentError:
            if capture.stopped:  # perhaps before it gave a sample
                return None
            raise
        finally:
            self.lock.finish(capture)


def create_app(routes: CaptureRoutes, latency: LatencyRoutes) -> Starlette:
    """Return the ASGI application of `pgo-agent serve`."""
    return Starlette(
        routes=[
            Route(PATH, routes.post, methods=["POST"]),
            Route(PATH, routes.get, methods=["GET"]),
            Route(PATH, routes.delete, methods=["DELETE"]),
            *latency.routes(),
        ],
        exception_handlers={RequestRefused: refused, HTTPException: refused},
    )


def _wants_partial(request: Request) -> bool:
    return request.query_params.get("partial") == "true"


def _download(profile: bytes, *, archive: bool) -> Response:
    if archive:
        content, kind, name = profile, "application/gzip", "profile.pb.gz"
    else:
        content, kind, name = gzip.decompress(profile), "application/octet-stream", "profile.pb"
    return Response(
        content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def listen(address: str, *, has_key: bool) -> socket.socket:
    """Return a socket that listens at "host:port", or ":port" for every interface; port 0 picks a free one.

    Raises AddressUnusable if that fails, or if other machines can reach the address and there is no key.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "0.0.0.0"  # noqa: S104 - an empty host asks for every interface
    try:
        family, _, _, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        if not has_key and not ipaddress.ip_address(place[0]).is_loopback:
            raise AddressUnusable(address, "other machines can reach it, so it needs a key: --key-file")
        return socket.create_server((str(place[0]), int(port)), family=family)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not host:port"
        raise AddressUnusable(address, reason) from error


def serve(
    routes: CaptureRoutes, latency: LatencyRoutes, listener: socket.socket, hosts: Collection[str]
) -> None:
    """Serve until SIGTERM or SIGINT, which also stop a running capture and what waits for a tracker.

    `hosts` are the names by which requests may address this agent, besides localhost and IP addresses.
    """
    config = uvicorn.Config(
        KnownHosts(create_app(routes, latency), hosts),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    asyncio.run(_Server(config, routes.lock, latency).serve([listener]))


class _Server(uvicorn.Server):
    """uvicorn's server, which also logs its address, and stops a running capture on a signal."""

    def __init__(self, config: uvicorn.Config, lock: CaptureLock, latency: LatencyRoutes) -> None:
        super().__init__(config)
        self._lock, self._latency = lock, latency

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port, *_ = listener.getsockname()
            _log.info("listening", url=f"http://{f'[{host}]' if ':' in host else host}:{port}")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without uvicorn's raising them again, so that the schedule can stop cleanly."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop, name)
        yield

    def _stop(self, name: int) -> None:
        if self._lock.running is not None:
            self._lock.running.stop()
        self._latency.ending.set()
        self.handle_exit(name, None)
