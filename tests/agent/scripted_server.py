"""Serve scripted answers over real HTTP on loopback."""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer

from tests.loopback import QuietHandler, running

KEY = "k-7f3a9-secret"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends a reset


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    # Wait `after` seconds and for `until`, then answer; or cut or reset the connection instead.
    after: float = 0.0
    until: threading.Event | None = None
    cut: bool = False
    reset: bool = False
    endless: bool = False  # repeat the body without end


@dataclass(frozen=True)
class Seen:
    path: str
    headers: dict[str, str]
    body: bytes
    client: tuple[str, int]
    at: float
    answer: int  # the status; 0 if the connection was cut

    @property
    def profile(self) -> bytes:
        return gzip.decompress(self.body)


class ScriptedServer(ThreadingHTTPServer):
    """Answer requests with `answers` in turn, then with `then`. `seen` lists the requests."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), ScriptedHandler)
        self.answers: list[Answer] = []
        self.then = Answer(204)
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class ScriptedHandler(QuietHandler):
    server: ScriptedServer

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        script = self.server
        now = time.monotonic()
        answer = script.answers.pop(0) if script.answers else script.then
        cut = answer.cut or answer.reset
        status = 0 if cut else answer.status
        script.seen.append(Seen(self.path, dict(self.headers), body, self.client_address, now, status))
        time.sleep(answer.after)
        if answer.until is not None:
            answer.until.wait(120)
        if answer.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            os.close(self.connection.detach())
        if cut:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204 and not answer.endless:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        while answer.endless:
            self.wfile.write(answer.body)


@contextmanager
def scripted_server(port: int = 0) -> Iterator[ScriptedServer]:
    """Run a server within the block."""
    with running(ScriptedServer(port)) as scripted:
        yield scripted


def problem(status: int, detail: str, **headers: str) -> Answer:
    """Return a refusal in the collector's words."""
    body = json.dumps({"type": "about:blank", "title": "No", "status": status, "detail": detail}).encode()
    return Answer(status, {"Content-Type": "application/problem+json", **headers}, body)
