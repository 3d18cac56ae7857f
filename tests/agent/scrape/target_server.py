"""Serve scrape targets over real HTTP; each path is a target that behaves well or badly."""

from __future__ import annotations

import gzip
import os
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pprof_proto.profile_pb2 import Profile

from tests.loopback import QuietHandler, running

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends a reset
_SILENCE = 60.0
TARGET_KEY = "t-5e0c7"
SECONDS = 0.05  # how long a target here takes for each second that it is asked for


def profile(began: int, value: int = 1, padding: int = 0) -> bytes:
    """Return a gzipped CPU profile of one sample, with `padding` bytes that compress to almost nothing."""
    strings = [b"", b"samples", b"count", b"cpu", b"nanoseconds", b"main.work", b"x" * padding]
    made = Profile(string_table=strings)
    made.sample_type.add(type=1, unit=2)
    made.sample_type.add(type=3, unit=4)
    made.period_type.type, made.period_type.unit, made.period = 3, 4, 10_000_000
    made.function.add(id=1, name=5, system_name=5)
    made.location.add(id=1).line.add(function_id=1, line=7)
    made.sample.add(location_id=[1], value=[value, value * 10_000_000])
    made.time_nanos, made.duration_nanos = began, 1_000_000_000
    return gzip.compress(made.SerializeToString(), mtime=0)


class TargetServer(ThreadingHTTPServer):
    """Serve targets at `/NAME/debug/pprof`, where NAME is a behaviour below, or `BEHAVIOUR-SUFFIX`.

    `asked` counts requests by NAME and type; `most` is how many requests of a NAME ran at once.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), TargetHandler)
        self.asked: Counter[tuple[str, str]] = Counter()
        self.queries: dict[tuple[str, str], dict[str, list[str]]] = {}
        self.headers: list[dict[str, str]] = []
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.elsewhere = ""
        self.lock = threading.Lock()
        self.number = time.time_ns()

    @property
    def url(self) -> str:
        scheme = "https" if isinstance(self.socket, ssl.SSLSocket) else "http"
        return f"{scheme}://127.0.0.1:{self.server_port}"

    def target(self, name: str) -> str:
        """Return the URL of a target."""
        return f"{self.url}/{name}/debug/pprof"


class TargetHandler(QuietHandler):
    server: TargetServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        _, name, *_, type_ = parts.path.split("/")
        served, self.query = self.server, parse_qs(parts.query)
        with served.lock:
            served.asked[name, type_] += 1
            served.queries[name, type_] = self.query
            served.headers.append(dict(self.headers))
            served.under_way[name] += 1
            served.most[name] = max(served.most[name], served.under_way[name])
            served.number += 1
            self.began = served.number
        try:
            BEHAVIOURS[name.partition("-")[0]](self)
        finally:
            with served.lock:
                served.under_way[name] -= 1

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        given = {header.replace("_", "-"): value for header, value in headers.items()}
        for header, value in ({"Content-Length": str(len(body))} | given).items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)


def _good(handler: TargetHandler) -> None:
    time.sleep(SECONDS * int(handler.query.get("seconds", ["0"])[0]))
    handler.answer(200, profile(handler.began))


def _bare(handler: TargetHandler) -> None:
    handler.answer(200, gzip.decompress(profile(handler.began)))


def _slow(handler: TargetHandler) -> None:
    """Take as long as asked, like a real target."""
    time.sleep(int(handler.query["seconds"][0]))
    handler.answer(200, profile(handler.began))


def _secret(handler: TargetHandler) -> None:
    if handler.headers["Authorization"] == f"Bearer {TARGET_KEY}":
        _good(handler)
    else:
        handler.answer(401, b"who is this?\n")


def _hang(handler: TargetHandler) -> None:  # noqa: ARG001 - all have it
    time.sleep(_SILENCE)


def _drip(handler: TargetHandler) -> None:
    """Send a body without end."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    for _ in range(int(_SILENCE / 0.1)):
        handler.wfile.write(b"\x1f\x8b")
        time.sleep(0.1)


def _reset(handler: TargetHandler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    os.close(handler.connection.detach())


def _cut(handler: TargetHandler) -> None:
    """Send half of the announced length."""
    body = profile(handler.began)
    handler.answer(200, body, Content_Length=str(len(body) + 100))
    handler.close_connection = True


def _half(handler: TargetHandler) -> None:
    """Send half of a gzip stream, without a Content-Length."""
    handler.answer(200, profile(handler.began)[:-20])


def _html(handler: TargetHandler) -> None:
    handler.answer(200, b"<html><body>Please log in</body></html>", Content_Type="text/html")


def _text(handler: TargetHandler) -> None:
    """Send what Go does if asked with debug=1."""
    handler.answer(200, b"heap profile: 2: 96 [3: 160] @ heap/2\n1: 64 [2: 128] @ 0x401000\n")


def _page(handler: TargetHandler) -> None:
    """Send the page of a proxy that doesn't reach the program."""
    handler.answer(
        502, b"<html>\n<head><title>502 Bad Gateway</title></head></html>", Content_Type="text/html"
    )


def _error(handler: TargetHandler) -> None:
    handler.answer(500, b'{"error": "profiling is off"}', Content_Type="application/json")


def _empty(handler: TargetHandler) -> None:
    handler.answer(200, b"")


def _missing(handler: TargetHandler) -> None:
    handler.answer(404, b"404 page not found\n")


def _redirect(handler: TargetHandler) -> None:
    handler.answer(302, b"", Location=f"{handler.server.elsewhere}/good/debug/pprof/profile")


def _endless(handler: TargetHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(1 << 20))


def _bomb(handler: TargetHandler) -> None:
    """Send 64 MiB, which gzip compresses to 64 KiB."""
    handler.answer(200, profile(handler.began, padding=64 << 20))


def _garbage(handler: TargetHandler) -> None:
    handler.wfile.write(b"\x00\xff not HTTP\r\n\r\n")
    handler.close_connection = True


BEHAVIOURS: dict[str, Callable[[TargetHandler], None]] = {
    "good": _good,
    "bare": _bare,
    "slow": _slow,
    "secret": _secret,
    "hang": _hang,
    "drip": _drip,
    "reset": _reset,
    "cut": _cut,
    "half": _half,
    "html": _html,
    "text": _text,
    "page": _page,
    "error": _error,
    "empty": _empty,
    "missing": _missing,
    "redirect": _redirect,
    "endless": _endless,
    "bomb": _bomb,
    "garbage": _garbage,
}


@contextmanager
def target_server(certificate: Path | None = None) -> Iterator[TargetServer]:
    """Run a server within the block; over TLS if given a file with a certificate and its key."""
    server = TargetServer()
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server) as served:
        yield served
