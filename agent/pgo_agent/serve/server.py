"""Listen on an address, and serve the HTTP interface there until a signal."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from pgo_agent.errors import AddressUnusable
from pgo_agent.serve.app import CaptureRoutes, create_app
from pgo_agent.serve.captures import CaptureLock
from pgo_agent.serve.latency_routes import LatencyRoutes

_GRACE_SECONDS = 30
_log = logging.getLogger(__name__)


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


def serve(routes: CaptureRoutes, latency: LatencyRoutes, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, which also stop a running capture and what waits for a tracker."""
    config = uvicorn.Config(
        create_app(routes, latency),
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
            _log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)

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
