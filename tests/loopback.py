"""What the HTTP servers of tests have in common: they say nothing, and end with their block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

Served = TypeVar("Served", bound=ThreadingHTTPServer)


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections, until their clients are gone."""

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
    """Within the block it answers."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
