"""The common base of the tests' HTTP servers: they log nothing, and end with their block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

Served = TypeVar("Served", bound=ThreadingHTTPServer)


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that keeps connections until their clients close them."""

    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running(server: Served) -> Iterator[Served]:
    """Run a server within the block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
