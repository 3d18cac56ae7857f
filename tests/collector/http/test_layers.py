"""Cancelled requests: reads whose client has gone, and what a server can't finish when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from pgo_collector.http.layers import AnswerCancelled
from pgo_collector.routes.protocols import DIALECTS
from starlette.types import Message, Receive, Scope, Send

pytestmark = pytest.mark.any_store


class Connection:
    """The server's end of one request, which the client can close."""

    def __init__(self, method: str) -> None:
        self.scope: Scope = {"type": "http", "method": method, "path": "/", "headers": []}
        self.sent: list[Message] = []
        self.closed = asyncio.Event()
        self._has_body = True

    async def receive(self) -> Message:
        if self._has_body:
            self._has_body = False
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.closed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.closed.set()  # as in uvicorn: nothing more is received after the answer


class App:
    """An application that waits until it may go on, then answers, then cleans up."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.has_ended = False

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        self.has_begun.set()
        await self.may_go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})
        await asyncio.sleep(0.01)
        self.has_ended = True


def run(
    method: str,
    steps: Callable[[App, Connection, asyncio.Task[None]], Awaitable[None]],
    app: App | None = None,
) -> tuple[Any, ...]:
    app = app or App()

    async def serve() -> tuple[Any, ...]:
        connection = Connection(method)
        task = asyncio.ensure_future(
            AnswerCancelled(app, DIALECTS)(connection.scope, connection.receive, connection.send)
        )
        await app.has_begun.wait()
        async with asyncio.timeout(60):
            await steps(app, connection, task)
        statuses = [message["status"] for message in connection.sent if "status" in message]
        return statuses, app.has_ended

    return asyncio.run(serve())


async def leave(_: App, connection: Connection, task: asyncio.Task[None]) -> None:
    connection.closed.set()
    await task


async def leave_and_go_on(app: App, connection: Connection, task: asyncio.Task[None]) -> None:
    connection.closed.set()
    await asyncio.sleep(0.05)
    app.may_go_on.set()
    await task


async def stay(app: App, _: Connection, task: asyncio.Task[None]) -> None:
    app.may_go_on.set()
    await task


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_only_reads_is_cancelled_when_its_client_goes(method: str) -> None:
    assert run(method, leave) == ([499], False)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_what_may_change_something_is_done_whoever_waits(method: str) -> None:
    assert run(method, leave_and_go_on) == ([200], True)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_answered_is_never_cancelled(method: str) -> None:
    assert run(method, stay) == ([200], True)


def test_a_failed_group_of_tasks_before_that_changes_nothing() -> None:
    """A bulk read is such a group: if the Dask cluster fails, the collector's own workers go on."""

    class Fallible(App):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            with suppress(BaseExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail())
            await super().__call__(scope, receive, send)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise OSError

    assert run("GET", leave, Fallible()) == ([499], False)


def test_who_cancels_the_request_itself_has_it_cancelled() -> None:
    async def cancel(_: App, __: Connection, task: asyncio.Task[None]) -> None:
        task.cancel()
        await task

    assert run("GET", cancel) == ([503], False)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("has_begun", [False, True])
def test_what_a_stopping_server_cancels_is_answered_unless_it_was(method: str, has_begun: bool) -> None:
    class Begun(App):
        async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
            if has_begun:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            self.has_begun.set()
            await self.may_go_on.wait()

    async def serve() -> list[Message]:
        app, connection = Begun(), Connection(method)
        layer = AnswerCancelled(app, DIALECTS)
        task = asyncio.ensure_future(layer(connection.scope, connection.receive, connection.send))
        await app.has_begun.wait()
        task.cancel()
        await task
        return connection.sent

    start, *rest = asyncio.run(serve())
    if has_begun:
        assert (start["status"], rest) == (200, [])
    else:
        assert start["status"] == 503
        assert (b"retry-after", b"5") in start["headers"]
        assert b"the server stops" in rest[0]["body"]
