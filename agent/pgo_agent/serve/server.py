"""The process of `pgo-agent serve`: the routes on a socket, and the schedule beside them."""

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
from pgo_agent.serve.app import Profiling, create_app

_GRACE_SECONDS = 30
_log = logging.getLogger(__name__)


def listen(address: str, *, has_key: bool) -> socket.socket:
    """A socket that listens at "host:port", or ":port" for every interface; port 0 is any free one.

    Raises AddressUnusable, also for one that other machines can reach while no key is asked for.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "0.0.0.0"  # noqa: S104 - every interface is what an empty host asks for
    try:
        family, _, _, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        if not has_key and not ipaddress.ip_address(place[0]).is_loopback:
            raise AddressUnusable(address, "others can reach it, so it needs a key: --key-file")
        return socket.create_server((str(place[0]), int(port)), family=family)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not host:port"
        raise AddressUnusable(address, reason) from error


def serve(profiling: Profiling, listener: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT; what is being sampled then is ended."""
    config = uvicorn.Config(
        create_app(profiling),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    asyncio.run(_Server(config, profiling).serve([listener]))


class _Server(uvicorn.Server):
    """uvicorn's, which says where it listens, and on a signal ends what runs and leaves it at that."""

    def __init__(self, config: uvicorn.Config, profiling: Profiling) -> None:
        super().__init__(config)
        self._turn = profiling.turn

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port, *_ = listener.getsockname()
            _log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's raises the signal again at the end; the schedule would not be ended in good order."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop, name)
        yield

    def _stop(self, name: int) -> None:
        if self._turn.running is not None:
            self._turn.running.stop()
        self.handle_exit(name, None)
