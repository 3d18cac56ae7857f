"""The parts of requests as trees of counts: what a part is, how often it comes, and how all of it is written.

A tree is read from an ordinary request. Neighbours that differ by running numbers only become one part that
comes several times, so a search can change a count without knowing what is counted.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes

from backports import zstd
from google.protobuf.message import Message

from tests.oracle.wire import BYTES, FIXED64, VARINT, tag, varint

# What a request may have before it is compressed, and how many of its parts may differ from one another.
MOST_MADE = 8 << 20
MOST_WRITTEN = 100_000
# It stands for a service that no request has named before.
SERVICE = "aservice"
# It stands for the token of a session of the pages.
SESSION = "asession"
BOUNDARY = b"xYz"
# The method of a request that is a call.
GRPC = "gRPC"
_TOKENS = re.compile(rf"{SERVICE}|{SESSION}|[1-9]\d{{0,17}}|[A-Za-z_]+|.".encode(), re.DOTALL)


_PLAIN = re.compile(rb"[ -~]*")


COUNTED = {"varint", "bare", "fixed", "bare fixed", "little"}


class TooLarge(Exception):
    """Requests would have too many bytes or parts."""


class Place(NamedTuple):
    """Where a request is sent: the texts that stand for a service and for a session there."""

    service: str
    session: str


@dataclass(frozen=True)
class Part:
    """A part of a request that comes `times` times, made of other parts, a text or a number.

    A number grows by `step` from one time to the next, of the part itself or of the closest one around it
    that comes several times. `field` is the number of a field of protobuf, or how many bytes a number has.
    `is_repeated` says that, by its schema, there may be many of it in what it is part of.
    """

    kind: str
    name: str = ""
    parts: tuple[Part, ...] = ()
    times: int = 1
    text: bytes = b""
    number: int = 0
    step: int = 0
    field: int = 0
    is_repeated: bool = False

    @cached_property
    def is_same(self) -> bool:
        """Whether it is written the same each time."""
        return not self.step and all(part.is_same or part.times > 1 for part in self.parts)

    @cached_property
    def pieces(self) -> int:
        """How many parts are written for it each time."""
        return 1 + sum(part.pieces * (1 if part.is_same else max(part.times, 1)) for part in self.parts)

    @cached_property
    def weight(self) -> int:
        """About how many bytes are written for it each time, before they are compressed."""
        own = {
            "text": len(self.text),
            "varint": 2,
            "bare": 1,
            "fixed": 9,
            "bare fixed": 8,
            "digits": 2,
            "little": self.field,
        }
        return own.get(self.kind, 2) + sum(part.weight * part.times for part in self.parts)


class Writer:
    """Writes a tree within bounds. Raises TooLarge."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._left = MOST_WRITTEN
        self._same: dict[int, bytes] = {}  # by the id of a part that is written the same each time

    def all_of(self, part: Part, index: int = 0, between: bytes = b"") -> bytes:
        """Return a part as often as it comes."""
        if part.times < 1:
            return b""
        if part.times == 1:
            return self.once(part, index)
        if part.is_same:
            one = self.once(part, index)
            if (len(one) + len(between)) * part.times > MOST_MADE:
                raise TooLarge
            return (one + between) * (part.times - 1) + one
        self._left -= part.times * part.pieces
        if self._left < 0:
            raise TooLarge
        return between.join([self.once(part, each) for each in range(part.times)])

    def once(self, part: Part, index: int = 0) -> bytes:
        """Return a part as it is the time `index`."""
        if part.is_same and id(part) in self._same:
            return self._same[id(part)]
        written = _WRITERS[part.kind](self, part, index)
        if len(written) > MOST_MADE:
            raise TooLarge
        if part.is_same:
            self._same[id(part)] = written
        return written

    def inside(self, part: Part, index: int, between: bytes = b"") -> bytes:
        """Return what a part is made of."""
        return between.join(self.all_of(each, index, between) for each in part.parts if each.times)

    def placed(self, text: bytes) -> bytes:
        """Return a text, or what it stands for."""
        if text == SERVICE.encode():
            return self._place.service.encode()
        return self._place.session.encode() if text == SESSION.encode() else text


def value_of(part: Part, index: int) -> int:
    """Return the number of a part at a time, in 64 bits."""
    return (part.number + part.step * index) & ((1 << 64) - 1)


def _message(writer: Writer, part: Part, index: int) -> bytes:
    inside = writer.inside(part, index)
    return tag(part.field, BYTES) + varint(len(inside)) + inside


def _escaped(text: bytes) -> bytes:
    if _PLAIN.fullmatch(text):
        return text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return json.dumps(text.decode(errors="replace"))[1:-1].encode()


def request(
    method: str,
    path: str,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    body: Part | None = None,
    *,
    chunks: int = 0,
) -> Part:
    """Return a request; its body has a length unless it comes in chunks."""
    pairs = tuple(
        Part("pair", name, (Part("quoted", parts=texts(value)),), is_repeated=True)
        for name, value in query.items()
    )
    fields = (Part("header", name, texts(value), is_repeated=True) for name, value in headers.items())
    parts = [Part("all", "path", texts(path)), Part("query", parts=pairs), *fields]
    if body is not None:
        parts += [Part("chunks", times=chunks, is_repeated=True), Part("body", parts=(body,))]
    return Part("request", method, tuple(parts))


class Sent(NamedTuple):
    """A request as it is sent, its body without the framing, and in how many chunks it comes."""

    content: bytes
    body: bytes
    chunks: int


def sent(part: Part, place: Place) -> Sent:
    """Return a request as it is sent. Raises TooLarge."""
    writer = Writer(place)
    by_kind: dict[str, list[Part]] = {}
    for each in part.parts:
        by_kind.setdefault(each.kind, []).append(each)
    target = b"".join(writer.all_of(each) for kind in ("all", "query") for each in by_kind.get(kind, ()))
    if part.name == GRPC:
        return _call(writer, target, by_kind)
    head = b"%b %b HTTP/1.1\r\nHost: collector\r\nConnection: close\r\n" % (part.name.encode(), target)
    head += b"".join(writer.all_of(each) for each in by_kind.get("header", ()))
    if "body" not in by_kind:
        return Sent(head + b"\r\n", b"", 0)
    body = b"".join(writer.all_of(each) for each in by_kind["body"])
    chunks = min(sum(each.times for each in by_kind.get("chunks", ())), len(body))
    if not chunks:
        return Sent(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body), body, 0)
    framed = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in _cut(body, -(-len(body) // chunks)))
    return Sent(b"%bTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (head, framed), body, chunks)


def _cut(content: bytes, size: int) -> Iterator[bytes]:
    return (content[begin : begin + size] for begin in range(0, len(content), size))


def _call(writer: Writer, path: bytes, by_kind: Mapping[str, Sequence[Part]]) -> Sent:
    """Return a call of gRPC with all that its client sends. Raises TooLarge."""
    names = {":method": b"POST", ":scheme": b"http", ":path": path, ":authority": b"collector"}
    names |= {"te": b"trailers", "content-type": b"application/grpc"}
    fields = [_field(name.encode(), value) for name, value in names.items()]
    for each in by_kind.get("header", ()):
        fields += [_field(each.name.lower().encode(), writer.inside(each, 0))] * each.times
    heads = [*_cut(b"".join(fields), MOST_IN_FRAME)]
    body = b"".join(writer.all_of(each) for each in by_kind["body"])
    message = b"\0" + len(body).to_bytes(4) + body
    if len(message) > _MOST_IN_WINDOW:
        raise TooLarge
    chunks = sum(each.times for each in by_kind.get("chunks", ()))
    parts = [*_cut(message, min(-(-len(message) // max(chunks, 1)), MOST_IN_FRAME))]
    frames = [
        _frame(CONTINUATION if number else HEADERS, END_HEADERS * (number == len(heads) - 1), each)
        for number, each in enumerate(heads)
    ]
    frames += [
        _frame(DATA, END_STREAM * (number == len(parts)), each) for number, each in enumerate(parts, 1)
    ]
    return Sent(PREFACE + b"".join(frames), body, len(parts))


def _frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _field(name: bytes, value: bytes) -> bytes:
    """Return a header field that neither compresses nor uses a table."""
    return b"\0" + b"".join(_integer(len(each)) + each for each in (name, value))


def _integer(number: int) -> bytes:
    """Return an integer with a prefix of 7 bits, as HPACK writes it."""
    return bytes((number,)) if number < _PREFIX else bytes((_PREFIX,)) + varint(number - _PREFIX)


# Of HTTP/2: kinds of frames, flags, what a frame may have, and what a client may send before it is told more.
DATA, HEADERS, RESET, SETTINGS, GO_AWAY, CONTINUATION = 0, 1, 3, 4, 7, 9
ACK, END_STREAM, END_HEADERS = 1, 1, 4
MOST_IN_FRAME = 1 << 14
_MOST_IN_WINDOW = (1 << 16) - 1
_PREFIX = 127
# How a client begins, with the acknowledgement of the server's settings.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, b"", 0) + _frame(SETTINGS, ACK, b"", 0)


def _form_part(writer: Writer, part: Part, index: int) -> bytes:
    return b"--" + BOUNDARY + b"\r\n" + writer.inside(part, index) + b"\r\n"


# By kind: how a part of it is written once.
_WRITERS: Mapping[str, Callable[[Writer, Part, int], bytes]] = {
    "text": lambda writer, part, _: writer.placed(part.text),
    "digits": lambda _, part, index: b"%d" % (part.number + part.step * index),
    "all": lambda writer, part, index: writer.inside(part, index),
    "message": _message,
    "varint": lambda _, part, index: tag(part.field, VARINT) + varint(value_of(part, index)),
    "bare": lambda _, part, index: varint(value_of(part, index)),
    "little": lambda _, part, index: (
        (value_of(part, index) % (1 << 8 * part.field)).to_bytes(part.field, "little")
    ),
    "fixed": lambda _, part, index: (
        tag(part.field, FIXED64) + value_of(part, index).to_bytes(8, "little")
    ),
    "bare fixed": lambda _, part, index: value_of(part, index).to_bytes(8, "little"),
    "object": lambda writer, part, index: b"{" + writer.inside(part, index, b",") + b"}",
    "list": lambda writer, part, index: b"[" + writer.inside(part, index, b",") + b"]",
    "member": lambda writer, part, index: (
        b'"%b":' % _escaped(part.name.encode()) + writer.inside(part, index)
    ),
    "string": lambda writer, part, index: b'"' + _escaped(writer.inside(part, index)) + b'"',
    "form part": _form_part,
    "pair": lambda writer, part, index: b"%b=%b" % (part.name.encode(), writer.inside(part, index)),
    "query": lambda writer, part, index: (b"?" if part.parts else b"") + writer.inside(part, index, b"&"),
    "header": lambda writer, part, index: (
        b"%b: %b\r\n" % (part.name.encode(), writer.inside(part, index))
    ),
    "body": lambda writer, part, index: writer.inside(part, index),
    "gzip": lambda writer, part, index: gzip.compress(writer.inside(part, index), 6, mtime=0),
    "zstd": lambda writer, part, index: zstd.compress(writer.inside(part, index)),
    "base64": lambda writer, part, index: base64.b64encode(writer.inside(part, index)),
    "quoted": lambda writer, part, index: quote_from_bytes(writer.inside(part, index), safe="").encode(),
}  # fmt: skip


def texts(text: bytes | str) -> tuple[Part, ...]:
    """Return the words, numbers and signs of a text."""
    found = []
    for token in _TOKENS.findall(text.encode() if isinstance(text, str) else text):
        if token.isdigit() and not token.startswith(b"0"):
            found.append(Part("digits", token.decode(), number=int(token)))
        else:
            found.append(Part("text", token.decode("latin-1"), text=token))
    return _folded(found)


def of_message(message: Message, read: Mapping[str, Callable[[bytes], Part]]) -> tuple[Part, ...]:
    """Return the fields of a message; `read` has functions for fields of bytes that have a form, by name."""
    found: list[Part] = []
    for field, value in message.ListFields():
        name, number = field.name, field.number
        values = value if field.is_repeated else [value]
        if field.message_type is not None:
            inner = [
                Part("message", name, of_message(each, read), field=number, is_repeated=field.is_repeated)
                for each in values
            ]
        elif field.cpp_type == field.CPPTYPE_STRING:
            inner = [
                Part(
                    "message", name, _of_bytes(name, each, read), field=number, is_repeated=field.is_repeated
                )
                for each in values
            ]
        else:
            is_fixed = field.type in {field.TYPE_FIXED64, field.TYPE_SFIXED64, field.TYPE_DOUBLE}
            numbers = [_number(each) for each in values]
            if field.is_repeated:
                kind = "bare fixed" if is_fixed else "bare"
                inner = [
                    Part(
                        "message",
                        name,
                        _folded(Part(kind, "", number=each, is_repeated=True) for each in numbers),
                        field=number,
                    )
                ]
            else:
                inner = [Part("fixed" if is_fixed else "varint", name, number=numbers[0], field=number)]
        found += _folded(inner)
    return tuple(found)


def _number(value: float) -> int:
    """Return a number as protobuf writes it."""
    return int.from_bytes(struct.pack("<d", value), "little") if isinstance(value, float) else int(value)


def _of_bytes(name: str, value: str | bytes, read: Mapping[str, Callable[[bytes], Part]]) -> tuple[Part, ...]:
    content = value.encode() if isinstance(value, str) else value
    return (read[name](content),) if name in read else texts(content)


def of_json(value: Any, read: Mapping[str, Callable[[bytes], Part]], name: str = "") -> Part:
    """Return a value of JSON; `read` has functions for strings that have a form, by name."""
    match value:
        case dict():
            members = (Part("member", key, (of_json(each, read, key),)) for key, each in value.items())
            return Part("object", "", tuple(members))
        case list():
            return Part("list", "", _folded(replace(of_json(each, read), is_repeated=True) for each in value))
        case str() if name in read:
            return Part("string", "", (read[name](value.encode()),))
        case str():
            return Part("string", "", texts(value))
        case bool() | None | float():
            return Part("text", "", text=json.dumps(value).encode())
        case _:
            return Part("digits", "", number=value)


def _folded(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join neighbours that are one part with running numbers."""
    found: list[Part] = []
    for part in parts:
        joined = _joined(found[-1], part) if found else None
        if joined is None:
            found.append(part)
        else:
            found[-1] = joined
    return tuple(found)


def _joined(first: Part, next_: Part) -> Part | None:
    """Return a part that is `first` and then `next_`; None if there is none."""
    stepped = _stepped(first, replace(next_, times=first.times), first.times) if next_.times == 1 else None
    return stepped and replace(stepped, times=first.times + 1)


def _stepped(first: Part, next_: Part, times: int) -> Part | None:
    """Return `first` with the steps by which it is `next_` after some times."""
    if (first.kind, first.text, first.field, first.times, len(first.parts)) != (
        next_.kind, next_.text, next_.field, next_.times, len(next_.parts)
    ):  # fmt: skip
        return None
    step = next_.number - first.number if times == 1 else first.step
    if next_.number != first.number + step * times or next_.step not in {0, first.step}:
        return None
    parts = []
    for mine, other in zip(first.parts, next_.parts, strict=True):
        if mine.times > 1 and mine != other:
            return None
        found = mine if mine.times > 1 else _stepped(mine, other, times)
        if found is None:
            return None
        parts.append(found)
    return replace(first, parts=tuple(parts), step=step)


Where = tuple[int, ...]


def places(part: Part, at: Where = ()) -> Iterator[tuple[Where, Part]]:
    """Yield all parts of a tree, each with where it is."""
    yield at, part
    for index, each in enumerate(part.parts):
        yield from places(each, (*at, index))


def at(part: Part, where: Where) -> Part:
    """Return the part that is there in a tree."""
    for index in where:
        part = part.parts[index]
    return part


def changed(part: Part, where: Where, *new: Part) -> Part:
    """Return a tree with other parts in place of one."""
    if not where:
        return new[0]
    index, *rest = where
    inner = new if not rest else (changed(part.parts[index], tuple(rest), *new),)
    return replace(part, parts=(*part.parts[:index], *inner, *part.parts[index + 1 :]))


def counts(part: Part, path: str = "", *, is_rough: bool = False) -> dict[str, int]:
    """Return how often the parts of a tree come, by path; of parts with one path, all together.

    Roughly, numbers beside one another have one path, too: what reads a field of a message reads them all.
    So have requests of all methods.
    """
    found: dict[str, int] = {}
    for each in part.parts:
        rough = "numbers" if each.kind in COUNTED else each.kind if each.kind == "request" else ""
        name = (is_rough and rough) or each.name or each.kind
        inner = f"{path}/{name}".removeprefix("/")
        found[inner] = found.get(inner, 0) + each.times
        for key, count in counts(each, inner, is_rough=is_rough).items():
            found[key] = found.get(key, 0) + count
    return found
