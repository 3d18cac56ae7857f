"""A debuginfod server whose answers a test decides; the real one is in `debuginfod/test_real`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from tests.loopback import QuietHandler, running

# Content of a file, or a function that answers in another way.
File = bytes | Callable[[BaseHTTPRequestHandler], None]


class DebuginfodServer:
    """A server on a loopback port within the block, of files by path, such as `ab12…/debuginfo`."""

    def __init__(self, files: Mapping[str, File] | None = None) -> None:
        self.files = dict(files or {})
        # The paths that were asked for, and the headers.
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._running = running(server)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def __enter__(self) -> Self:
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        here = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                here.headers.append({name.lower(): value for name, value in self.headers.items()})
                path = self.path.removeprefix("/buildid/")
                here.asked.append(path)
                file = here.files.get(path)
                if callable(file):
                    file(self)
                    return
                self.send_response(404 if file is None else 200)
                self.send_header("Content-Length", str(len(file or b"")))
                self.end_headers()
                self.wfile.write(file or b"")

        return Handler


def status(code: int, *headers: tuple[str, str]) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return an answer with a status and headers, without a body."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in (*headers, ("Content-Length", "0")):
            handler.send_header(name, value)
        handler.end_headers()

    return answer


def endless(handler: BaseHTTPRequestHandler, code: int = 200, *headers: tuple[str, str]) -> None:
    """Answer with a body that has no length and no end."""
    handler.close_connection = True
    handler.send_response(code)
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 16))
