"""Raw connections: for requests that stay unfinished, and answers that nobody reads."""

from __future__ import annotations

import re
import resource
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.server import COMMAND, Server


class LimitedServer(Server):
    """A server with a limit on its open files and connections."""

    def __init__(self, home: Path, descriptors: int, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(home, environment)
        self._descriptors = descriptors

    def _spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        limited = ("prlimit", f"--nofile={self._descriptors // 2}:{self._descriptors}", COMMAND, *arguments)
        return subprocess.Popen(limited, stderr=subprocess.PIPE, env=self.environment)


def connect(server: Server, receive_buffer: int = 0) -> socket.socket:
    """Open a connection to the server, with a receive buffer of this size in bytes if not 0."""
    address = urlsplit(server.base_url)
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(120)
    connection.connect((address.hostname, address.port))
    return connection


def head(method: str, path: str, key: str, *headers: str) -> bytes:
    """Return a request without its body."""
    lines = (f"{method} {path} HTTP/1.1", "Host: collector", f"Authorization: Bearer {key}", *headers, "", "")
    return "\r\n".join(lines).encode()


def chunk(content: bytes) -> bytes:
    """Return a chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(content), content)


@contextmanager
def crowd(server: Server, size: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Open `size` connections and send these bytes on each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        connections = [stack.enter_context(connect(server)) for _ in range(size)]
        for connection in connections:
            with suppress(OSError):  # the server has closed some already
                connection.sendall(sent)
        yield connections


def flood(connection: socket.socket, what: bytes, size: int) -> None:
    """Send these bytes again and again, up to `size` of them, as long as the server takes them."""
    part = what * (65536 // len(what))
    with suppress(OSError):
        for _ in range(size // len(part)):
            connection.sendall(part)


def exchange(server: Server, *packets: bytes) -> bytes:
    """Send packets that arrive one by one; return all that comes until the server closes the connection."""
    with connect(server) as connection:
        for packet in packets:
            connection.sendall(packet)
            server.client.get("/healthz")  # the server has now read the packet, which came before
        return received(connection)


def received(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    answer = b""
    try:
        while content := connection.recv(1 << 16):
            answer += content
    except ConnectionResetError:
        pass
    return answer


def statuses(answer: bytes) -> list[int]:
    """Return the statuses of the final answers that a connection received, in order."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([2-5]\d\d) ", answer)]
