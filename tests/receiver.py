"""A real receiver of events: an HTTP server whose answers a test decides."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.loopback import QuietHandler, running

_PATIENCE_SECONDS = 120.0


class Received(NamedTuple):
    """A request: its headers by lower-case names, and when it arrived by the monotonic clock."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


class Answer(NamedTuple):
    """An answer of the receiver: its status, its delay after the request, and its body."""

    status: int = 204
    headers: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    body: bytes = b""


class Receiver:
    """A receiver on a loopback port within the block; `answer` answers the last of the requests so far."""

    def __init__(
        self, answer: Callable[[list[Received]], Answer] = lambda _: Answer(), port: int = 0
    ) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self._lock = threading.Lock()
        server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._running = running(server)
        self.port = server.server_port
        self.url = f"http://127.0.0.1:{self.port}/events"

    def __enter__(self) -> Self:
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)

    @property
    def ids(self) -> list[str]:
        """The ids of the events of all requests, in order."""
        return [each.id for each in self.received]

    def wait_for(self, count: int) -> list[Received]:
        """Wait for the first `count` requests, and return them."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(self.received) < count:
            assert time.monotonic() < deadline, f"only {len(self.received)} requests came"
            time.sleep(0.02)
        return self.received[:count]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                body = _body_of(self)
                headers = {name.lower(): value for name, value in self.headers.items()}
                with receiver._lock:
                    receiver.received.append(Received(self.path, headers, body, time.monotonic()))
                    before = [*receiver.received]
                answer = receiver.answer(before)
                time.sleep(answer.seconds)
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                if answer.status != 204:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def do_GET(self) -> None:
                self.do_POST()  # who follows a redirect comes with this

        return Handler


def _body_of(handler: BaseHTTPRequestHandler) -> bytes:
    """Return the body of a request, which may come in chunks."""
    file = handler.rfile
    if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return file.read(int(handler.headers["Content-Length"] or 0))
    body = b""
    while size := int(file.readline().partition(b";")[0], 16):
        body += file.read(size)
        file.readline()
    file.readline()
    return body
