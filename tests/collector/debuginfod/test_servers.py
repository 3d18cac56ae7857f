"""A client of debuginfod servers, and what it makes of answers that aren't a file."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
from pgo_collector.debuginfod import servers
from pgo_collector.debuginfod.servers import Servers
from pgo_collector.errors import DebugFileTooLarge, DebuginfodFails
from pgo_collector.model.debuginfod_servers import is_build_id, parse_servers

from tests.collector.debuginfod_server import DebuginfodServer, endless, status

pytestmark = pytest.mark.any_store

BUILD = "0123456789abcdef"
ASKED = f"{BUILD}/debuginfo"
ELSEWHERE = f"{BUILD}/elsewhere"
Answer = bytes | Callable[[BaseHTTPRequestHandler], None]


def downloaded(url: str, part: Path, most_bytes: int = 1 << 20, free_bytes: int = 0) -> tuple[bool, bool]:
    """Download from a server; return whether it had the file, and whether it rests now."""

    async def play() -> tuple[bool, bool]:
        async with Servers(parse_servers(url), most_bytes, free_bytes) as client:
            (server,) = client.all
            try:
                return await client.download(server, BUILD, "debuginfo", part), server.rests
            except DebuginfodFails:
                assert server.rests
                raise

    return asyncio.run(play())


def moved(to: str, code: int = 302) -> Callable[[BaseHTTPRequestHandler], None]:
    return status(code, ("Location", to))


def slow_head(handler: BaseHTTPRequestHandler) -> None:
    """Send a head without an end, and close the connection when the client has."""
    handler.close_connection = True
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    handler.connection.recv(1)


def not_http(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.wfile.write(b"\x7fELF" * 1000)


def cut_short(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"x" * 999)


def test_a_file_is_taken_as_it_is_also_after_redirects(tmp_path: Path) -> None:
    content = bytes(range(256)) * 9000
    with DebuginfodServer({ASKED: content}) as other:
        files = {ASKED: moved(f"/buildid/{ELSEWHERE}"), ELSEWHERE: moved(f"{other.url}/buildid/{ASKED}", 307)}
        with DebuginfodServer(files) as server:
            part = tmp_path / "part"
            secret = server.url.replace("//", "//me:secret@")
            assert downloaded(f"{secret}/", part, len(content)) == (True, False)
            assert part.read_bytes() == content
            assert (server.asked, other.asked) == ([ASKED, ELSEWHERE], [ASKED])
            sent = {"host", "accept", "accept-encoding", "connection", "user-agent", "authorization"}
            assert {*server.headers[0]} == sent
            assert {*other.headers[0]} == sent - {"authorization"}
            assert server.headers[0]["user-agent"] == "pgo-collector"
            assert server.headers[0]["accept-encoding"] == "identity"


def test_what_is_not_there_is_no_failure(tmp_path: Path) -> None:
    with DebuginfodServer() as server:
        assert downloaded(server.url, tmp_path / "part") == (False, False)
        assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (status(500), "status 500"),
        (status(403), "status 403"),
        (status(429, ("Retry-After", "1000")), "status 429"),
        (status(302), "status 302"),
        (moved("file:///etc/passwd"), "a redirect from http to file"),
        (moved("ftp://127.0.0.1/file"), "a redirect from http to ftp"),
        (moved("http://[::1"), "RemoteProtocolError"),
        (moved(f"/buildid/{ASKED}"), "more than 4 redirects"),
        (partial(endless, code=404), None),
        (lambda handler: endless(handler, 302, ("Location", "file:///")), "a redirect from http to file"),
        (lambda handler: endless(handler, 200, ("Set-Cookie", "c=" + "x" * 200_000)), "RemoteProtocolError"),
        (b"", "an empty file"),
        (slow_head, "no file within 0.5 seconds"),
        (not_http, "RemoteProtocolError"),
        (cut_short, "RemoteProtocolError"),
    ],
)
def test_other_answers_are_failures(
    answer: Answer, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer is slow_head:
        monkeypatch.setattr(servers, "_MOST_SECONDS", 0.5)
    with DebuginfodServer({ASKED: answer}) as server:
        if reason is None:
            assert downloaded(server.url, tmp_path / "part") == (False, False)
            return
        with pytest.raises(DebuginfodFails, match=f"^{reason}$"):
            downloaded(server.url, tmp_path / "part")
        assert {*server.asked} == {ASKED}


def test_nobody_there_is_a_failure_which_shows_no_password(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(DebuginfodFails, match=r"^ConnectError$"):
        downloaded(f"http://me:secret@127.0.0.1:{port}", tmp_path / "part")


def test_files_are_bounded(tmp_path: Path) -> None:
    with DebuginfodServer({ASKED: endless, ELSEWHERE: b""}) as server:
        with pytest.raises(DebugFileTooLarge, match="PGOF_BINARY_BYTES"):
            downloaded(server.url, tmp_path / "endless")
        server.files[ASKED] = bytes((1 << 20) + 1)
        with pytest.raises(DebugFileTooLarge, match="PGOF_BINARY_BYTES"):
            downloaded(server.url, tmp_path / "large")
        assert not (tmp_path / "large").exists()
        server.files[ASKED] = b"file"
        with pytest.raises(OSError, match="PGOF_MIN_FREE_MEGABYTES"):
            downloaded(server.url, tmp_path / "small", free_bytes=shutil.disk_usage(tmp_path).total)


def test_a_redirect_does_not_leave_encryption_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.scheme == "https"
        to = {"one.example": "https://two.example/", "two.example": "http://three.example/"}
        return httpx.Response(302, headers={"Location": to[request.url.host]})

    client = partial(httpx.AsyncClient, transport=httpx.MockTransport(answer))
    monkeypatch.setattr(httpx, "AsyncClient", client)
    with pytest.raises(DebuginfodFails, match="a redirect from https to http"):
        downloaded("https://one.example", tmp_path / "part")


@pytest.mark.parametrize(
    "text",
    [
        "debuginfod.example",
        "file:///srv",
        "ima:enforcing https://debuginfod.example",
        "https://",
        "https://host:port",
        "https://host/?secret=1",
        "https://host/#part",
        "https://höst/",
        "http://[::1",
        " ".join(["https://host"] * 17),
    ],
)
def test_other_texts_are_no_servers(text: str) -> None:
    with pytest.raises(ValueError, match=r"debuginfod server|at most 16") as raised:
        parse_servers(text)
    assert "secret" not in str(raised.value)


def test_urls_are_separated_by_blanks_or_commas() -> None:
    found = parse_servers(" https://me:secret@one.example/, http://[::1]:8002/debug\nhttp://localhost:8002")
    assert [server.url for server in found] == [
        "https://me:secret@one.example",
        "http://[::1]:8002/debug",
        "http://localhost:8002",
    ]
    assert [server.address for server in found] == [
        "https://one.example",
        "http://[::1]:8002",
        "http://localhost:8002",
    ]
    assert not any(server.is_in_the_clear for server in found)
    (plain,) = parse_servers("http://one.example")
    assert plain.is_in_the_clear
    assert parse_servers("") == parse_servers(" , ") == ()


def test_build_ids_are_hex_of_some_length() -> None:
    assert all(map(is_build_id, ("ab" * 8, "0123456789abcdef0123456789abcdef01234567", "ff" * 64)))
    others = ("", "ab", "AB" * 10, "ab" * 65, "abc" * 7, "../../etc/passwd", "ab" * 8 + "\n", "go/build")
    assert not any(map(is_build_id, others))
