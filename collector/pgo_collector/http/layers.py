"""Layers around the application: the access log, and the requests that are cancelled.

A read is cancelled when its client has gone; any request is, when the server stops and has waited for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgo_collector.errors import Stopping
from pgo_collector.http.auth import NO_KEY, context_of
from pgo_collector.http.problems import CLIENT_CLOSED_REQUEST, Dialect, error_answer

_LONGEST_PATH = 200
_log = structlog.get_logger()


class AccessLog:
    """An ASGI layer that logs requests, and errors that the application raises after it has answered 500.

    Inside it is `AnswerCancelled`, which notes the status.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log it when it is done."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, context = time.perf_counter(), context_of(scope)
        try:
            await self._app(scope, receive, send)
        except Exception:
            if context.status is None:
                raise
            _log.exception("unexpected error")
        finally:
            key = None if context.key is NO_KEY else context.key
            known = {
                "key": key and key.fingerprint,
                "key_name": key and key.name,
                "bytes": context.body_bytes,
                "profile": context.profile,
                "release": context.release,
                "cause": context.cause,
            }
            _log.info(
                "request",
                method=scope["method"],
                path=scope["path"][:_LONGEST_PATH],
                status=context.status,
                ms=round((time.perf_counter() - start) * 1000, 1),
                **{name: value for name, value in known.items() if value is not None},
            )


class AnswerCancelled:
    """An ASGI layer that answers requests which are cancelled, unless their answer has begun, and that notes
    the status of the answer in the context.

    GET and HEAD requests whose client has gone are cancelled here, so that none waits for them; requests of
    other methods always run to their end. Requests that the server cancels, as it stops and has waited long
    enough, are answered with 503, so that a client, or the proxy, sends it again.
    """

    def __init__(self, app: ASGIApp, dialects: Sequence[Dialect]) -> None:
        self._app = app
        self._dialects = dialects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; answer it if it is cancelled."""
        task, context = asyncio.current_task(), context_of(scope)
        watching = None
        is_gone = is_answered = False
        # The task's cancellations before this layer's. Python 3.11 leaves one when a TaskGroup has failed.
        earlier = 0

        async def watch(task: asyncio.Task[object]) -> None:
            nonlocal is_gone, earlier
            while (await receive())["type"] != "http.disconnect":
                pass  # a body, which a GET or HEAD has no use for
            if not is_answered:  # once it is answered, the server always sends a disconnect
                is_gone, earlier = True, task.cancelling()
                task.cancel()

        async def note_and_send(message: Message) -> None:
            nonlocal is_answered
            context.status = message.get("status", context.status)
            is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        if task is not None and scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}:
            watching = asyncio.create_task(watch(task))
        try:
            await self._app(scope, receive, note_and_send)
        except asyncio.CancelledError:
            answer: ASGIApp
            if is_gone and task is not None and task.uncancel() <= earlier:
                answer = Response(
                    status_code=CLIENT_CLOSED_REQUEST
                )  # for the access log: the client has gone
            else:
                error = Stopping("the server stops, and the request took too long: send it again")
                answer = error_answer(Request(scope), error, self._dialects)
            if context.status is None:
                await answer(scope, receive, note_and_send)
        finally:
            if watching is not None:
                watching.cancel()
