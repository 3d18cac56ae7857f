"""The gate: the outermost ASGI layer, which opens a trace for a request that is signed, or was drawn.

All other requests go straight to the application; what they pay is a look at the names of their headers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.signing import SIGNATURE, TRACE_HMAC, Answered, Origin
from pgo_collector.traces.spans import Place, Recording, Span, Value, at, new_id, place, wall_offset

# The header of an answer that says in which trace its request is.
ANSWER_HEADER = b"pgo-trace"
_SIGNED = frozenset({SIGNATURE.lower().encode(), TRACE_HMAC.lower().encode()})
# When the proxy got the request, in seconds since 1970, or the present time less how long it has had it:
# `proxy_set_header X-Request-Start "t=$msec-$request_time";`
_PROXY_HEADER = b"x-request-start"
_PROXY_START = re.compile(rb"t=([0-9]{1,12}(?:\.[0-9]{1,9})?)(?:-([0-9]{1,9}(?:\.[0-9]{1,9})?))?")
_REPORT = re.compile(r"/v1/traces/[^/]+/steps")
_LONGEST_HOP_NANOS = 600 * 10**9
# How far the clock of a proxy may be ahead of ours.
_CLOCK_NANOS = 10**9


class Description(NamedTuple):
    """Description of a request: its route, its service, if any, and attributes of its span."""

    name: str
    service: str
    attributes: dict[str, Value]


class _Choice(Protocol):
    @property
    def most_spans(self) -> int: ...


class _Tracing(Protocol):
    """Methods of `SignedTracing` that the gate calls."""

    @property
    def choice(self) -> _Choice: ...
    def origin_of_signed(self, scope: Scope) -> Origin | None: ...
    def origin_of_unsigned(self) -> Origin | None: ...
    def note_answer(self, origin: Origin, request: Answered) -> None: ...
    def keep(self, trace: RequestTrace) -> None: ...


class Gate:
    """The ASGI layer. `describe` is asked about a traced request when it has ended."""

    def __init__(self, app: ASGIApp, tracing: _Tracing, describe: Callable[[Scope], Description]) -> None:
        self._app = app
        self._tracing = tracing
        self._describe = describe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; record it if it is traced."""
        origin = None
        if scope["type"] == "http":
            for name, _ in scope["headers"]:
                if name in _SIGNED:
                    if not _is_report(scope):  # it belongs to a trace, but is no step of it
                        origin = self._tracing.origin_of_signed(scope)
                    break
            else:
                origin = self._tracing.origin_of_unsigned()
        if origin is not None:
            await self._trace(origin, scope, receive, send)
        elif place() is None:
            await self._app(scope, receive, send)
        else:  # the server began this request while it ended a traced one, on the same connection
            with at(None):
                await self._app(scope, receive, send)

    async def _trace(self, origin: Origin, scope: Scope, receive: Receive, send: Send) -> None:
        recording = Recording(self._tracing.choice.most_spans)
        root, answered, handed, status = Place(recording, new_id()), 0, 0, 0

        async def send_noted(message: Message) -> None:
            nonlocal answered, handed, status
            if message["type"] == "http.response.start":
                answered, status = time.monotonic_ns(), message["status"]
                headers = [*message.get("headers", ()), (ANSWER_HEADER, origin.trace.encode())]
                message = {**message, "headers": headers}
            elif not message.get("more_body"):
                handed = time.monotonic_ns()
                root.add("http", "answer", answered, handed)
                # The client may report before this process has its turn again.
                service = self._describe(scope).service
                self._tracing.note_answer(origin, Answered(service, start + offset, handed + offset))
            await send(message)

        offset, start, error = wall_offset(), time.monotonic_ns(), ""
        try:
            with at(root):
                await self._app(scope, receive, send_noted)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            name, service, attributes = self._describe(scope)
            attributes = {"http.response.status_code": status, **attributes}
            # When the client has all of its answer, this process may not have its turn again for a while.
            end = handed or time.monotonic_ns()
            own = Span(root.span, origin.parent, "http", name, start, end, attributes, error)
            spans = _below_proxy(own, scope)
            self._tracing.keep(
                RequestTrace.of(origin.trace, recording, spans, offset, service=service, status=status)
            )


def _is_report(scope: Scope) -> bool:
    """Return whether a client reports its own steps, which `reports` reads."""
    return scope["method"] == "POST" and _REPORT.fullmatch(scope["path"]) is not None


def _below_proxy(root: Span, scope: Scope) -> list[Span]:
    """Return the span of a request, and above it one that began when the proxy says that it got the request.

    If the proxy doesn't say so, or the time can't be, there is only the first.
    """
    match = _PROXY_START.fullmatch(dict(scope["headers"]).get(_PROXY_HEADER, b""))
    hop = None
    if match is not None:
        hop = _hop_nanos(root.start, int((float(match[1]) - float(match[2] or 0)) * 1e9))
    if hop is None:
        return [root]
    proxy = Span(new_id(), root.parent, "proxy", "proxy", root.start - hop, root.end, {})
    return [root._replace(parent=proxy.id), proxy]


def _hop_nanos(start: int, sent: int) -> int | None:
    """Return how long before `start`, by the monotonic clock, another machine sent something on.

    `sent` is in ns since 1970 by its own clock. Returns None if that can't be.
    """
    hop = start + wall_offset() - sent
    return max(hop, 0) if -_CLOCK_NANOS <= hop <= _LONGEST_HOP_NANOS else None
