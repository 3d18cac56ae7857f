"""Requests that a server must survive: made from its OpenAPI description, or raw bytes."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, quote_from_bytes

from tests.faults.stacks import profile_of
from tests.merge.malformed import WHOLE
from tests.merge.stacked import stacked
from tests.oracle.builder import World
from tests.oracle.mutation import mutate_bytes, mutate_fields
from tests.server import Server

# The path of requests that are only in bodies, which no server should answer.
SMUGGLED = "/smuggled"
_TEXTS = (
    "", "*", "default", "shop", "a" * 300, "a" * 70_000, "../../etc/passwd", "%2e%2e/", "\0", "\r\nX: y", "é",
    "\ud800", "version=1", "version=1,version=2", "version!=1|2", "=", ",", "a=b" * 200,
    "k" * 255 + "=" + "v" * 255, "-1", "0", "1", "9" * 30, "1e9", "NaN", "7d", "0s", "9999999999d",
    "2024-01-01", "9999-12-31", "0000-00-00", "2024-01-01T00:00:00Z", "1970-01-01T00:00:00.000000001+23:59",
    "now", "true", "function", "flat", "hour", "folded", "cpu", "heap", "other", "main.run", "<script>",
    "'; drop table blobs; --", "[", "(a+)+$", "%", "%00", "AAAA", "eyJhIjoxfQ==",
)  # fmt: skip
_PAGES = ("", "/top", "/diff", "/series", "/build")
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "X" * 50)


class Operation(NamedTuple):
    """A method and path of the server, its query parameters, and whether it takes a body."""

    method: str
    path: str
    query: tuple[tuple[str, tuple[str, ...]], ...]
    has_body: bool


class Asked(NamedTuple):
    """A request; `target` is the path with its query, escaped."""

    method: str
    target: str
    key: str
    body: bytes | None


def operations(description: Mapping[str, Any]) -> list[Operation]:
    """Return all operations of an OpenAPI description, and those of the pages, which it doesn't have."""
    found = [
        Operation(
            method.upper(),
            path,
            tuple(
                (each["name"], tuple(map(str, each["schema"].get("enum", ()))))
                for each in operation.get("parameters", ())
                if each["in"] == "query"
            ),
            "requestBody" in operation or method == "post",
        )
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    query = tuple(
        (name, ()) for name in ("type", "labels", "from", "to", "last", "by", "n", "root", "search")
    )
    found += [Operation("GET", f"/ui/services/{{service}}{page}", query, has_body=False) for page in _PAGES]
    return [
        *found,
        Operation("GET", "/ui/", (), has_body=False),
        Operation("POST", "/ui/sign-in", (), has_body=True),
    ]


def asked(operation: Operation, random: Random) -> Asked:
    """Return a request for an operation: most parameters are left out, the others are well-formed or not."""
    path = operation.path
    while "{" in path:
        before, _, rest = path.partition("{")
        path = before + _escaped(_text((), random)) + rest.partition("}")[2]
    pairs = [
        f"{name}={_escaped(_text(choices, random))}"
        for name, choices in operation.query
        for _ in range(random.choice((0, 0, 0, 1, 1, 2)))
    ]
    if random.randrange(20) == 0:
        pairs.append(f"{_escaped(_text((), random))}={_escaped(_text((), random))}")
    random.shuffle(pairs)
    method = random.choice(_METHODS) if random.randrange(15) == 0 else operation.method
    key = random.choice((Server.merge_key, Server.merge_key, Server.submit_key, "wrong", ""))
    if "submit" in path or (path.startswith("/api") and method == "POST"):
        key = random.choice((Server.submit_key, Server.submit_key, Server.submit_key, key))
    return Asked(
        method, path + "?" * bool(pairs) + "&".join(pairs), key, _body(random) if operation.has_body else None
    )


def _text(choices: Sequence[str], random: Random) -> str:
    if choices and random.randrange(4):
        return random.choice(choices)
    return random.choice(_TEXTS)


def _escaped(text: str) -> str:
    return quote_from_bytes(text.encode(errors="surrogatepass")) if "\ud800" in text else quote(text, safe="")


def _body(random: Random) -> bytes:
    made = World(random).profile()
    return random.choice(
        (
            b"",
            b"hello",
            b"\x1f\x8b",
            made,
            gzip.compress(made, mtime=0),
            mutate_bytes(random, made),
            mutate_fields(random, made),
            mutate_bytes(random, gzip.compress(made, mtime=0)),
            gzip.compress(bytes(9 << 20), mtime=0),
            WHOLE,
            stacked({"main.main;main.run": random.randrange(9)}),
            profile_of(f"f{random.randrange(50)}"),
            b"4d53a0 T main.main\n",
            b"key=key-for-merges&next=/ui/",
        )
    )


class Raw(NamedTuple):
    """The bytes of one request, in the pieces in which they are sent; all but its head is its body.

    Nothing in the body is a request: if a part of it is answered or logged, the server took it for one by
    mistake.
    """

    what: str
    pieces: tuple[bytes, ...]


_NEXT = f"GET {SMUGGLED} HTTP/1.1\r\nHost: collector\r\n\r\n".encode()
_CHUNKED = "Transfer-Encoding: chunked"
_TO_HTTP2 = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAA")
_TO_SOCKET = ("Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")


def _length(body: bytes, more: int = 0) -> str:
    return f"Content-Length: {len(body) + more}"


# By name: the headers and the body that carry a text.
_FRAMINGS: Mapping[str, Callable[[bytes], tuple[tuple[str, ...], bytes]]] = {
    "length": lambda text: ((_length(text),), text),
    "chunked": lambda text: ((_CHUNKED,), b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)),
    "two lengths": lambda text: ((_length(text), "Content-Length: 0"), text),
    "a list of lengths": lambda text: ((f"{_length(text)}, 0",), text),
    "a signed length": lambda text: ((f"Content-Length: +{len(text)}",), text),
    "a length and chunks": lambda text: ((_length(text, 5), _CHUNKED), b"0\r\n\r\n" + text),
    "chunks and a length": lambda text: ((_CHUNKED, _length(text, 5)), b"0\r\n\r\n" + text),
    "an odd coding": lambda text: (("Transfer-Encoding: xchunked", _length(text)), text),
    "a coding twice": lambda text: ((f"{_CHUNKED}, chunked",), b"0\r\n\r\n" + text),
    "a space before the colon": lambda text: (("Transfer-Encoding : chunked", _length(text)), text),
    "a folded length": lambda text: (("Content-Length:", f" {len(text)}"), text),
    "a chunk of a bad size": lambda text: ((_CHUNKED,), b"0x5\r\n" + text),
    "a chunk of a huge size": lambda text: ((_CHUNKED,), b"f" * 40 + b"\r\n" + text),
    "a chunk that is longer than it says": lambda text: ((_CHUNKED,), b"1\r\n" + text),
    "an upgrade": lambda text: ((*_TO_HTTP2, _length(text)), text),
    "an upgrade to a socket": lambda text: ((*_TO_SOCKET, _length(text)), text),
    "an expectation": lambda text: (("Expect: 100-continue", _length(text)), text),
}
_HEADS = (
    "POST /v1/submit HTTP/1.1", "GET /healthz HTTP/1.1", "POST /v1/report HTTP/1.1", "PUT /v1/merge HTTP/1.1",
    "POST /nowhere HTTP/1.1", "POST http://collector/v1/submit HTTP/1.1", "POST /v1/submit HTTP/1.0",
)  # fmt: skip
_NOISE = (
    "X-Forwarded-For: 127.0.0.1", "Content-Encoding: gzip", "Connection: close", "Connection: keep-alive",
    "Range: bytes=0-1", "Cookie: " + "a=b; " * 100, "X" * 200 + ": y", "If-None-Match: *",
    "Accept-Encoding: gzip;q=0", "Content-Type: multipart/form-data",
)  # fmt: skip


def framed(random: Random) -> Raw:
    """Return a request whose body looks like another one, framed correctly or to be refused."""
    name = random.choice([*_FRAMINGS])
    headers, sent = _FRAMINGS[name](_NEXT * random.choice((1, 1, 2)))
    noise = random.sample(_NOISE, random.randrange(3))
    lines = [
        random.choice(_HEADS),
        "Host: collector",
        f"Authorization: Bearer {Server.submit_key}",
        *noise,
        *headers,
    ]
    head = "\r\n".join((*lines, "", "")).encode()
    return Raw(name, _cut(head, sent, random))


def _cut(head: bytes, body: bytes, random: Random) -> tuple[bytes, ...]:
    """Return the pieces of a request: one, two, or cut anywhere."""
    whole = head + body
    match random.randrange(3):
        case 0:
            return (whole,)
        case 1:
            return (head, body)
        case _:
            first, second = sorted(random.randrange(len(whole)) for _ in range(2))
            return tuple(piece for piece in (whole[:first], whole[first:second], whole[second:]) if piece)


def malformed(random: Random) -> Raw:
    """Return a malformed request."""
    whole = bytearray(
        b"POST /v1/submit HTTP/1.1\r\nHost: collector\r\nContent-Length: 5\r\nA: b\r\n\r\nhello"
    )
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(whole))
        match random.randrange(5):
            case 0:
                whole[at] = random.randrange(256)
            case 1:
                del whole[at : at + random.randrange(1, 20)]
            case 2:
                whole[at:at] = random.choice(
                    (b"\0", b"\r", b"\n", b" ", b"\t", b":", b"\xff", b"\r\n\r\n", b"HTTP/9.9")
                )
            case 3:
                whole[at:at] = random.choice((b"a", b"A: b\r\n", b"\n", b" ")) * random.choice(
                    (10, 1000, 20_000)
                )
            case _:
                whole[at:at] = whole[: random.randrange(len(whole))]
        whole = whole or bytearray(b"x")
    return Raw("malformed", (bytes(whole),))
