"""The requests of one connection: h11's parser with bounds on what it parses in one piece, and on its time.

It is also stricter than h11 where two parsers could disagree on the end of a message.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from time import monotonic
from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.flow_control import CLOSE_HEADER

from pgo_collector.connections.connection_pool import ConnectionLimits
from pgo_collector.http.first_answers import Problem

_HEALTH_CHECKS = {b"/healthz", b"/readyz"}
_ABSOLUTE_FORM = re.compile(rb"(?i:https?)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<rest>.*)", re.DOTALL)
_BLANK_LINE = re.compile(rb"\n\r?\n")
# White space and NUL that no head may have. h11 tries each way to read the blanks before one, which takes
# time quadratic in their number.
_ILLEGAL = (b"\0", b"\v", b"\f")
# A body may have so many chunks of any size.
_FREE_CHUNKS = 256
# The largest name and value of one header, as in other servers: no parser of a value gets more.
FIELD_BYTES = 8192


class Requests(h11.Connection):
    """h11's parser. `fault` is why it has refused a request; no event follows one."""

    fault: Refused
    _receive_buffer: _Lines

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__(h11.SERVER, limits.header_bytes)
        self._receive_buffer = _Lines(limits.headers)
        self._limits = limits
        self._is_head_request = False
        self._n_chunks = self._chunk_bytes = 0
        # When to stop for this turn of the loop, in seconds of `time.monotonic`, and whether it has.
        self.stop = 0.0
        self.is_cut = False
        # Whether more has arrived than may be parsed now: it is cut, or another request is being answered.
        self.is_paused = False
        self.is_for_health_checks = False

    @property
    def has_begun(self) -> bool:
        """Whether part of a request's head has arrived."""
        return self.their_state is h11.IDLE and bool(self._receive_buffer)

    @property
    def has_unfinished_head(self) -> bool:
        """Return whether part of a request's head has arrived, but not all of it.

        A head that has arrived whole is parsed at once, unless the turn of the loop is over: then it waits.
        """
        return self.has_begun and not (self.is_cut and self._receive_buffer.has_blank_line)

    @property
    def is_at_rest(self) -> bool:
        """Whether there is nothing to parse: all requests have ended, and no other has begun to arrive."""
        return self.their_state is h11.IDLE and not self._receive_buffer and not self.is_paused

    @property
    def n_unread(self) -> int:
        """The bytes that wait to be parsed."""
        return len(self._receive_buffer)

    def next_event(self) -> Any:
        """Return the next event; PAUSED also at the end of the turn. Raises `fault`."""
        self.is_cut = monotonic() >= self.stop
        if self.is_cut:
            self.is_paused = True
            return h11.PAUSED
        was_in_head = self.their_state is h11.IDLE
        try:
            event = super().next_event()
            self.is_paused = event is h11.PAUSED
            return self._checked(event)
        except Refused as error:
            self.fault = error
        except h11.RemoteProtocolError as error:
            self.fault = self._refusal_of(error, in_head=was_in_head)
        except h11.LocalProtocolError as error:
            self.fault = Refused(HTTPStatus.BAD_REQUEST, str(error))
        self.is_paused = False
        raise self.fault

    def refusal(self, status: HTTPStatus, detail: str, headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return the bytes of an answer with problem details that ends the connection.

        What has arrived is dropped.
        """
        self._receive_buffer, self.is_paused = _Lines(self._limits.headers), False
        retry = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
        problem = Problem(status, detail, retry)
        response = h11.Response(
            status_code=status.value,
            headers=[*headers, *problem.raw_headers, CLOSE_HEADER],
            reason=status.phrase.encode(),
        )
        sent = [self.send(response)]
        if not self._is_head_request:
            sent.append(self.send(h11.Data(data=bytes(problem.body))))
        return b"".join([*sent, self.send(h11.EndOfMessage())])

    def _checked(self, event: Any) -> Any:
        """Return the event, a request with a path as its target. Raises Refused."""
        if type(event) is h11.Request:
            return self._check(event)
        if type(event) is h11.Data:
            self._check_chunk(event)
        return event

    def _check(self, request: h11.Request) -> h11.Request:
        """Return the request with a path as its target. Raises Refused."""
        limits, headers = self._limits, request.headers
        self._n_chunks = self._chunk_bytes = 0
        names = [name for name, _ in headers]
        self._is_head_request = request.method == b"HEAD"
        if len(request.target) > limits.url_bytes:
            raise self._url_too_long()
        sizes = [len(name) + len(value) for name, value in headers]
        if sum(sizes) > limits.header_bytes:
            raise self._headers_too_large()
        if max(sizes, default=0) > FIELD_BYTES:
            name = names[sizes.index(max(sizes))].decode()
            detail = f"the header {name[:64]} has {max(sizes):,} bytes; the limit for one is {FIELD_BYTES:,}"
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail, "headers")
        if request.http_version not in {b"1.1", b"1.0"}:
            raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this server speaks HTTP/1.1 and HTTP/1.0")
        if request.method == b"CONNECT":
            raise Refused(HTTPStatus.NOT_IMPLEMENTED, "CONNECT is for proxies, and this server isn't one")
        if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
            # A proxy that goes by the other length would see a request in the rest of the body (smuggling).
            detail = "Transfer-Encoding can't be sent with Content-Length, nor in HTTP/1.0"
            raise Refused(HTTPStatus.BAD_REQUEST, detail)
        if not request.target.startswith(b"/"):
            request = _in_origin_form(request)
        if self.is_for_health_checks and request.target.partition(b"?")[0] not in _HEALTH_CHECKS:
            detail = "every connection is in use (PGOF_MAX_CONNECTIONS); send the request again"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, detail, "connections")
        return request

    def _check_chunk(self, data: h11.Data) -> None:
        """Refuse a body in many tiny chunks, which cost as much as large ones. Raises Refused."""
        self._n_chunks += data.chunk_end
        self._chunk_bytes += len(data.data)
        if self._n_chunks > _FREE_CHUNKS and self._chunk_bytes < self._n_chunks * self._limits.chunk_bytes:
            detail = (
                f"the chunks of the body have fewer than {self._limits.chunk_bytes} bytes on average;"
                " send larger ones"
            )
            raise Refused(HTTPStatus.BAD_REQUEST, detail, "chunks")

    def _refusal_of(self, error: h11.RemoteProtocolError, *, in_head: bool) -> Refused:
        """Return the refusal for an error of h11; it names the setting of a bound and quotes nothing."""
        if error.error_status_hint != HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            status = HTTPStatus(error.error_status_hint)
            return Refused(status, f"not a valid HTTP/1.1 request: {str(error).partition(':')[0]}")
        if in_head and b"\n" not in self.trailing_data[0]:
            return self._url_too_long()
        return self._headers_too_large()

    def _url_too_long(self) -> Refused:
        detail = f"the URL is longer than {self._limits.url_bytes:,} bytes, the limit"
        return Refused(HTTPStatus.REQUEST_URI_TOO_LONG, detail, "url_bytes")

    def _headers_too_large(self) -> Refused:
        detail = (
            f"the headers, or a chunk's extensions, are larger than {self._limits.header_bytes:,} bytes,"
            " the limit"
        )
        return Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail, "headers")


class _Lines(ReceiveBuffer):
    """h11's buffer; it checks the lines of a head or of trailers before h11 parses them in one piece."""

    def __init__(self, most_headers: int) -> None:
        super().__init__()
        self._most_headers = most_headers

    @property
    def has_blank_line(self) -> bool:
        """Return whether there is a blank line, with which a head ends."""
        return _BLANK_LINE.search(self._data, self._multiple_lines_search) is not None

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines until a blank one, None if it hasn't arrived. Raises Refused."""
        if self._data.startswith((b"\n", b"\r\n")):  # there are none, and what follows is the next request
            return super().maybe_extract_lines()
        if (end := _BLANK_LINE.search(self._data, self._multiple_lines_search)) is not None:
            block = self._data[: end.end()]
            if block.count(b"\n") > self._most_headers + 2:  # the line of the request, and the blank one
                detail = f"more than {self._most_headers} header fields, or lines of them"
                raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, detail, "headers")
            if any(map(block.__contains__, _ILLEGAL)) or block.count(b"\r") != block.count(b"\r\n"):
                raise Refused(HTTPStatus.BAD_REQUEST, "not a valid HTTP/1.1 request: illegal header line")
        return super().maybe_extract_lines()

    def maybe_extract_next_line(self) -> bytearray | None:
        """Return the line before a chunk, None if it hasn't arrived. Raises Refused."""
        line = super().maybe_extract_next_line()
        if line is not None and line.find(b"\n") != len(line) - 1:
            raise Refused(HTTPStatus.BAD_REQUEST, "not a valid HTTP/1.1 request: illegal chunk header")
        return line


class Refused(h11.RemoteProtocolError):
    """A request that is refused: the status and detail of the answer, and its reason in `REFUSALS`."""

    def __init__(self, status: HTTPStatus, detail: str, reason: str = "malformed") -> None:
        super().__init__(detail, status.value)
        self.reason = reason


def _in_origin_form(request: h11.Request) -> h11.Request:
    """Return a request for a URL as one for its path and host, as RFC 9112 (3.2.2) asks. Raises Refused."""
    match = _ABSOLUTE_FORM.fullmatch(request.target)
    if match is None:
        raise Refused(HTTPStatus.BAD_REQUEST, "the target of the request is neither a path nor a URL")
    headers = [(name, value) for name, value in request.headers if name != b"host"]
    return h11.Request(
        method=request.method,
        target=(match["path"] or b"/") + match["rest"],
        headers=[(b"host", match["authority"]), *headers],
        http_version=request.http_version,
    )
