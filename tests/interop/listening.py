"""Programs that listen on loopback: a port for them, and the wait until they answer."""

from __future__ import annotations

import http.client
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# Below what Linux has in net.ipv4.ip_local_port_range.
_NEVER_GIVEN = range(20_000, 32_768)
START_SECONDS = 120.0


def free_port() -> int:
    """A port that nobody listens on now, and that the kernel gives to nobody who asks for any."""
    while True:
        port = secrets.choice(_NEVER_GIVEN)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until_answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the process answers HTTP; fails with its log if it ends or takes too long."""

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
        try:
            connection.request("GET", "/healthz")
            connection.getresponse()
        finally:
            connection.close()

    _wait_until_works(ask, f"nothing answers on port {port}", process, log)


def wait_until_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the process takes connections; fails as `wait_until_answers` does."""

    def connect() -> None:
        socket.create_connection(("127.0.0.1", port), START_SECONDS).close()

    _wait_until_works(connect, f"nothing listens on port {port}", process, log)


def _wait_until_works(
    attempt: Callable[[], None], problem: str, process: subprocess.Popen[bytes], log: Path
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            attempt()
        except OSError:
            waiting = process.poll() is None and time.monotonic() < deadline
            assert waiting, f"{problem}:\n{log.read_text()}"
            time.sleep(0.05)
        else:
            return
