"""The start gate: the server listens from the first moment, and requests wait while the store is opening."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pgo_collector.errors import NotReady
from pgo_collector.http.first_answers import ready_answer
from pgo_collector.starting.progress import Progress

# How long a request waits. Most starts take less, and a client without retries would lose its submit.
_WAIT_SECONDS = 20.0


class StartGate:
    """An ASGI application that passes requests on to another one, once the store is open.

    Until then `/healthz` is answered, `/readyz` says how far the start is, and other requests wait. A request
    that has waited for 20 s, or that is cancelled, is answered with 503; so are all while the start is stuck.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self._app: ASGIApp | None = None
        self._is_decided = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether requests are passed on."""
        return self._app is not None

    def open(self, app: ASGIApp) -> None:
        """Pass requests on to an application, the waiting ones too."""
        self._app = app
        self._is_decided.set()

    def give_up(self) -> None:
        """Refuse the requests that wait: the start failed, or the server stops."""
        self._is_decided.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if self._app is None:
            answer = await self._answer(scope)
            if answer is not None:
                await answer(scope, receive, send)
                return
        assert self._app is not None  # noqa: S101 - else there is an answer
        await self._app(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response | None:
        """Return the answer to a request, or None if the application has opened meanwhile."""
        match scope["path"]:
            case "/healthz":
                return PlainTextResponse("OK")
            case "/readyz":
                return ready_answer({"start": str(self.progress)})
        # A server that stops cancels what waits for too long.
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(0 if self.progress.is_stuck else _WAIT_SECONDS):
                await self._is_decided.wait()
        if self._app is not None:
            return None
        # Not before, since this module is imported before the server listens.
        from pgo_collector.http.problems import error_answer  # noqa: PLC0415
        from pgo_collector.routes.protocols import DIALECTS  # noqa: PLC0415

        error = NotReady(f"the server is not ready yet: {self.progress}")
        return error_answer(Request(scope), error, DIALECTS)
