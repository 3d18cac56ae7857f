"""The ports: the socket of HTTP, its own or one that systemd keeps open over restarts, and gRPC."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Protocol

from starlette.types import ASGIApp

from pgo_collector.connections.turns import Turns
from pgo_collector.errors import AddressUnusable
from pgo_collector.settings import Settings, split_address

BACKLOG = 2048
# The first file descriptor that systemd passes: see sd_listen_fds(3).
_FIRST_INHERITED = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class Listener(Protocol):
    """A port besides that of HTTP."""

    async def start(self) -> None:
        """Listen. Raises AddressUnusable."""

    async def stop(self, grace_seconds: float) -> None:
        """Take no more calls; cancel those that take longer than the grace."""


class NoListener:
    """The listener of a server without a gRPC port."""

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self, grace_seconds: float) -> None:
        """Do nothing."""


def grpc_listener(app: ASGIApp, settings: Settings, turns: Turns) -> Listener:
    """Return the gRPC port that the settings ask for, which passes calls on to `app`.

    It parses in the `turns` of all connections.
    """
    if not settings.grpc_address:
        return NoListener()
    from pgo_collector.serve.grpc_listener import GrpcListener  # noqa: PLC0415 - most have no such port

    return GrpcListener(app, settings, turns)


def listen(address: str) -> socket.socket:
    """Return the socket that systemd passes, else a new one at the address. Raises AddressUnusable."""
    inherited = _inherited()
    return bind(address) if inherited is None else inherited


def address_of(listener: socket.socket) -> str:
    """Return the host and the port that a socket listens on, as in a URL."""
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _inherited() -> socket.socket | None:
    """Return the socket that systemd passes, None if it passes none. Raises AddressUnusable.

    Connections wait in it while no server runs, so a restart refuses none.
    """
    pid, count, _ = (os.environ.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()):
        return None
    if count != "1":
        raise AddressUnusable(f"systemd passed {count} sockets (LISTEN_FDS); pass exactly one")
    os.set_inheritable(_FIRST_INHERITED, False)
    inherited = socket.socket(fileno=_FIRST_INHERITED)
    listens = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if not listens or inherited.family not in {socket.AF_INET, socket.AF_INET6}:
        raise AddressUnusable(
            "the socket that systemd passed (LISTEN_FDS) doesn't listen for TCP; set ListenStream to a port"
        )
    return inherited


def bind(address: str, setting: str = "PGOF_BIND_ADDRESS") -> socket.socket:
    """Return a new socket at the address, which a setting gives. Raises AddressUnusable.

    An empty host means every interface, IPv6 too if there is any.
    """
    host, port = split_address(address)
    if not host:
        with suppress(OSError, ValueError):
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        host = "0.0.0.0"  # noqa: S104 - every interface is what was asked for
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, place = found[0]
        return socket.create_server((str(place[0]), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise AddressUnusable(f"address {address} ({setting}): {error.strerror}") from error
