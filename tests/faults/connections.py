"""Connections below HTTP clients: requests that stay unfinished, and answers that nobody reads."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from tests.server import Server


def connect(server: Server, receive_buffer: int = 0) -> socket.socket:
    """A connection to the server; with a receive buffer of that many bytes, if it isn't 0."""
    address = urlsplit(server.base_url)
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(120)
    connection.connect((address.hostname, address.port))
    return connection


def head(method: str, path: str, key: str, *headers: str) -> bytes:
    """A request without its body."""
    lines = (f"{method} {path} HTTP/1.1", "Host: collector", f"Authorization: Bearer {key}", *headers, "", "")
    return "\r\n".join(lines).encode()


def chunk(content: bytes) -> bytes:
    """A part of a body that comes in chunks."""
    return b"%x\r\n%b\r\n" % (len(content), content)
