"""Programs that listen on loopback: a port for them, and the wait until they answer."""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from pathlib import Path

START_SECONDS = 30.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the process answers HTTP; fails with its log if it ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
        try:
            connection.request("GET", "/healthz")
            connection.getresponse()
        except OSError:
            waiting = process.poll() is None and time.monotonic() < deadline
            assert waiting, f"nothing answers on port {port}:\n{log.read_text()}"
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()


def wait_until_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the process takes connections; fails as `wait_until_answers` does."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), START_SECONDS).close()
        except OSError:
            waiting = process.poll() is None and time.monotonic() < deadline
            assert waiting, f"nothing listens on port {port}:\n{log.read_text()}"
            time.sleep(0.05)
        else:
            return
