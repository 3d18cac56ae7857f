"""The socket that the server listens on: its own, or one that systemd holds over restarts."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from pgo_collector.errors import AddressUnusable
from pgo_collector.settings import split_address

BACKLOG = 2048
# As sd_listen_fds(3) has it.
_FIRST_INHERITED = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def listen(address: str) -> socket.socket:
    """The socket that systemd hands over, if it does, else one at the address. Raises AddressUnusable."""
    inherited = _inherited()
    return _bound(address) if inherited is None else inherited


def _inherited() -> socket.socket | None:
    """Connections wait in it while no process has it, so that a restart refuses none."""
    pid, count, _ = (os.environ.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()):
        return None
    if count != "1":
        raise AddressUnusable(f"{count} sockets were handed over (LISTEN_FDS); it has to be one")
    os.set_inheritable(_FIRST_INHERITED, False)
    inherited = socket.socket(fileno=_FIRST_INHERITED)
    listens = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if not listens or inherited.family not in {socket.AF_INET, socket.AF_INET6}:
        raise AddressUnusable("the socket that was handed over (LISTEN_FDS) doesn't listen for TCP")
    return inherited


def _bound(address: str) -> socket.socket:
    """Every interface, of IPv6 too where there is any, if the host is empty."""
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
        raise AddressUnusable(f"address {address}: {error.strerror}") from error
