"""The start: the server answers from the first moment, and each request as soon as it can be right."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pgo_collector.errors import NotReady
from pgo_collector.http.problems import error_answer
from pgo_collector.routes.health import ready_answer
from pgo_collector.store.reconcile import Progress

# Most starts take less, and a client without retries would lose its submit.
_PATIENCE_SECONDS = 20.0


class StartGate:
    """An ASGI application that becomes another one: that of a store, when it is open.

    Until then `/healthz` is answered, `/readyz` says how far the start is, and other requests wait; one that
    has waited for 20 s is answered 503.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self._app: ASGIApp | None = None
        self._is_decided = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether requests get through."""
        return self._app is not None

    def open(self, app: ASGIApp) -> None:
        """Pass all requests on to an application, those that wait first."""
        self._app = app
        self._is_decided.set()

    def give_up(self) -> None:
        """Refuse those that wait, since the start failed or the server stops."""
        self._is_decided.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if self._app is None:
            answer = await self._answer(scope)
            if answer is not None:
                await answer(scope, receive, send)
                return
        assert self._app is not None  # noqa: S101 - or there would be an answer
        await self._app(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response | None:
        """Return the answer to a request, None where the application has come meanwhile."""
        match scope["path"]:
            case "/healthz":
                return PlainTextResponse("OK")
            case "/readyz":
                return ready_answer({"start": str(self.progress)})
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._is_decided.wait()
        except TimeoutError:
            pass
        if self._app is not None:
            return None
        return error_answer(Request(scope), NotReady(f"the server is not ready yet: {self.progress}"))
