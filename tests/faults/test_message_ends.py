"""Request smuggling: bytes after a request are the next one or refused, and a body is never taken for a
request.

Each case is sent as bytes, in one packet or in several, to a running server. `SMUGGLED` is a request inside
a body: if it were ever answered, its path would be in the log.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pprof_merge import Limits

from tests.faults.connections import chunk, connect, exchange, head, statuses
from tests.faults.stacks import profile_of, tally
from tests.server import Server

SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: collector\r\n\r\n"
FOLLOWING = b"GET /v1/following HTTP/1.1\r\nHost: collector\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: collector\r\nConnection: close\r\n\r\n"
UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("ends") / "home") as server:
        yield server


def submit(*headers: str, key: str = Server.submit_key) -> bytes:
    return head("POST", "/v1/submit", key, *headers)


def length(body: bytes) -> str:
    return f"Content-Length: {len(body)}"


def paths(server: Server) -> set[str]:
    return {line["path"] for line in server.events("request")}


@pytest.mark.parametrize("apart", [False, True], ids=["one packet", "two packets"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("upgrade", [(), UPGRADE, ("Connection: upgrade", "Upgrade: websocket")])
def test_the_body_of_a_submit_is_its_body(
    server: Server, upgrade: tuple[str, ...], framing: str, *, apart: bool
) -> None:
    profile = profile_of(f"{upgrade} {framing} {apart}")
    if framing == "length":
        before, body = submit(*upgrade, length(profile)), profile
    else:
        before, body = submit(*upgrade, CHUNKED), chunk(profile[:7]) + chunk(profile[7:]) + chunk(b"")
    packets = [before, body] if apart else [before + body]
    assert statuses(exchange(server, *packets, LAST)) == [204, 200]
    assert tally(server.merge().content)[f"{upgrade} {framing} {apart}"] == 1


@pytest.mark.parametrize("apart", [False, True], ids=["one packet", "two packets"])
def test_a_submit_in_chunks_is_stored_whatever_follows_it(server: Server, *, apart: bool) -> None:
    body = chunk(profile_of(f"before a refusal {apart}")) + chunk(b"")
    refused = b"GET /healthz HTTP/1.1\r\nHost: collector\0\r\n\r\n"
    packets = [submit(CHUNKED) + body, refused] if apart else [submit(CHUNKED) + body + refused]
    assert statuses(exchange(server, *packets)) == [204, 400]
    assert tally(server.merge().content)[f"before a refusal {apart}"] == 1


@pytest.mark.parametrize("apart", [False, True], ids=["one packet", "two packets"])
@pytest.mark.parametrize("upgrade", [(), UPGRADE])
@pytest.mark.parametrize("key", [Server.submit_key, "wrong"])
def test_a_request_in_a_body_is_none(
    server: Server, key: str, upgrade: tuple[str, ...], *, apart: bool
) -> None:
    before = submit(*upgrade, length(SMUGGLED), key=key)
    packets = [before, SMUGGLED] if apart else [before + SMUGGLED]
    refused = 400 if key == Server.submit_key else 403
    assert statuses(exchange(server, *packets, LAST)) == [refused, 200]
    assert "/v1/smuggled" not in paths(server)


@pytest.mark.parametrize(
    "headers",
    [
        (f"Content-Length: {len(SMUGGLED)}", CHUNKED),
        (CHUNKED, f"Content-Length: {len(SMUGGLED)}"),
        ("Content-Length: 0", f"Content-Length: {len(SMUGGLED)}"),
        (f"Content-Length: 0, {len(SMUGGLED)}",),
        ("Content-Length: -1",),
        ("Content-Length: +5",),
        ("Content-Length: 0x5",),
        ("Content-Length: 5 5",),
        ("Content-Length: ",),
        (f"Content-Length: {'9' * 30}",),
        ("Content-Length : 5",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        ("Transfer-Encoding\x0b: chunked",),
        ("Host: another",),
        ("no colon",),
        (": no name",),
        ("X: a\x00b",),
        ("X: a\rTransfer-Encoding: chunked",),
    ],
    ids=repr,
)
@pytest.mark.parametrize("apart", [False, True], ids=["one packet", "two packets"])
def test_a_request_whose_end_is_unclear_is_refused_with_all_that_follows(
    server: Server, headers: tuple[str, ...], *, apart: bool
) -> None:
    packets = [submit(*headers), SMUGGLED + LAST] if apart else [submit(*headers) + SMUGGLED + LAST]
    (status,) = statuses(exchange(server, *packets))
    assert status in {400, 501}
    assert "/v1/smuggled" not in paths(server)


@pytest.mark.parametrize(
    "body",
    [
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"fffffffffffffffffffffffff\r\nhello",
        b"\r\n5\r\nhello\r\n0\r\n\r\n",
        b"5;" + b"e" * (70 << 10),
        b"5;a=\nb\r\nhello\r\n0\r\n\r\n",
        b"0\r\nno trailer\r\n\r\n",
        b"0\r\nX: a\r\n Y\x00: b\r\n\r\n",
        b"0\r\n" + b"X: trailer\r\n" * 20_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_faulty_chunk_ends_the_connection(server: Server, body: bytes) -> None:
    (status,) = statuses(exchange(server, submit(CHUNKED), body + SMUGGLED))
    assert status in {400, 431}
    assert "/v1/smuggled" not in paths(server)


def test_a_chunk_that_is_said_to_be_larger_than_any_body_is_taken_as_far_as_a_body(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(submit(CHUNKED) + b"ffffffffffffffffffff\r\n" + bytes(Limits().inflated_bytes + 1))
        assert connection.recv(12) == b"HTTP/1.1 413"


def test_extensions_and_trailers_are_no_part_of_the_body(server: Server) -> None:
    profile = profile_of("extended")
    size = f"{len(profile):x};name=value".encode()
    body = size + b"\r\n" + profile + b"\r\n0;last\r\nX-Trailer: value\r\n\r\n"
    assert statuses(exchange(server, submit(CHUNKED) + body + LAST)) == [204, 200]
    assert tally(server.merge().content)["extended"] == 1


def test_a_header_may_go_on_in_the_next_line(server: Server) -> None:
    profile = profile_of("folded")
    request = submit("X-Note: one", f" {CHUNKED}", length(profile)) + profile
    assert statuses(exchange(server, request + LAST)) == [204, 200]
    assert tally(server.merge().content)["folded"] == 1


def test_a_length_that_is_said_twice_alike_is_that(server: Server) -> None:
    profile = profile_of("twice")
    answer = exchange(server, submit(length(profile), length(profile)) + profile + LAST)
    assert statuses(answer) == [204, 200]


def test_requests_that_come_at_once_are_answered_in_turn(server: Server) -> None:
    profiles = [profile_of(f"pipelined {number}") for number in range(20)]
    requests = b"".join(submit(length(profile)) + profile + FOLLOWING for profile in profiles)
    assert statuses(exchange(server, requests + LAST)) == [204, 404] * 20 + [200]
    assert {f"pipelined {number}" for number in range(20)} <= set(tally(server.merge().content))


@pytest.mark.parametrize(
    "garbage", [b"GARBAGE\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00" * 100]
)
def test_garbage_after_a_request_is_refused(server: Server, garbage: bytes) -> None:
    profile = profile_of("before garbage")
    answer = exchange(server, submit(length(profile)) + profile + garbage + b"\r\n\r\n")
    assert statuses(answer) == [204, 400]
    assert b"application/problem+json" in answer


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(server: Server) -> None:
    profile = profile_of("asked for")
    answer = exchange(server, submit(length(profile), "Expect: 100-continue"), profile + LAST)
    assert answer.startswith(b"HTTP/1.1 100 ")
    assert statuses(answer) == [204, 200]


def test_a_url_as_target_is_its_path(server: Server) -> None:
    profile = profile_of("absolute")
    url = "http://elsewhere.example/v1/submit?service=absolute"
    request = head("POST", url, server.submit_key, length(profile)) + profile
    assert statuses(exchange(server, request + LAST)) == [204, 200]
    assert tally(server.merge(query={"service": "absolute"}).content) == {"absolute": 1}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"GET /healthz HTTP/1.0", [200]),
        (b"GET /healthz HTTP/2.0", [505]),
        (b"PRI * HTTP/2.0", [505]),
        (b"GET /healthz", [400]),
        (b"GET  /healthz HTTP/1.1", [400]),
        (b"GET /healthz HTTP/1.1 ", [400]),
        (b"GET /health z HTTP/1.1", [400]),
        (b"GET healthz HTTP/1.1", [400]),
        (b"OPTIONS * HTTP/1.1", [400]),
        (b"GET ftp://collector/healthz HTTP/1.1", [400]),
        (b"GET http:///healthz HTTP/1.1", [200]),
        (b"GET http://collector HTTP/1.1", [404]),
        (b"G\x00T /healthz HTTP/1.1", [400]),
        (b"CONNECT collector:443 HTTP/1.1", [501]),
        (b"CONNECT /healthz HTTP/1.1", [501]),
        (b"GET /\xc3\xbc HTTP/1.1", [400]),
    ],
)
def test_the_line_of_a_request(server: Server, line: bytes, expected: list[int]) -> None:
    request = line + b"\r\nHost: collector\r\nConnection: close\r\n\r\n"
    assert statuses(exchange(server, request)) == expected


def test_http_1_0_with_chunks_is_refused(server: Server) -> None:
    request = submit(CHUNKED).replace(b"HTTP/1.1", b"HTTP/1.0") + chunk(SMUGGLED) + chunk(b"")
    assert statuses(exchange(server, request)) == [400]


def test_no_case_here_was_an_error_of_the_server(server: Server) -> None:
    for event in ("unexpected error", "Exception in ASGI application\n"):
        assert server.events(event) == []
