"""During a start /healthz is answered at once, and requests as soon as they can be answered correctly."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from pgo_collector.serve import start_gate
from pgo_collector.serve.start_gate import StartGate
from starlette.responses import PlainTextResponse

from tests.faults.stacks import profile_of, tally
from tests.server import Server


@pytest.fixture
def slow(stopped: Server) -> Iterator[Server]:
    """A stopped server, whose start waits until somebody writes to a pipe in its rules folder."""
    rules = stopped.home / "rules"
    rules.mkdir()
    os.mkfifo(rules / "default.rules")
    stopped.environment["PGOF_RULES_DIR"] = str(rules)
    yield stopped
    stopped.kill()


def let_go_on(server: Server) -> None:
    """Let the start go on; from now on there are no rules."""
    pipe = server.home / "rules" / "default.rules"
    pipe.with_suffix(".empty").touch()
    descriptor = os.open(pipe, os.O_RDWR)  # opening it for writing only would wait for a reader
    pipe.with_suffix(".empty").rename(pipe)
    os.close(descriptor)


def test_health_is_answered_at_once_and_requests_when_the_store_is_open(slow: Server) -> None:
    slow.listen()
    assert slow.client.get("/healthz").text == "OK"
    answer = slow.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["ready"] is False
    assert {*answer.json()["fails"]} == {"start"}
    statuses: list[int] = []
    waiting = threading.Thread(target=lambda: statuses.append(slow.submit(profile_of("a")).status_code))
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    assert slow.client.get("/healthz").text == "OK"
    let_go_on(slow)
    waiting.join(60)
    assert statuses == [204]
    assert tally(slow.merge().content) == {"a": 1}
    assert slow.client.get("/readyz").status_code == 200


def test_a_start_can_be_stopped(slow: Server) -> None:
    slow.listen()
    os.kill(slow.process.pid, signal.SIGTERM)
    time.sleep(0.2)
    let_go_on(slow)  # a thread that waits for a disk can't be stopped
    assert slow.process.wait(60) == 0


@pytest.mark.sqlite
def test_a_start_that_fails_says_why_and_ends(stopped: Server) -> None:
    stopped.data.mkdir()
    (stopped.data / "catalog.sqlite3").write_bytes(b"no database " * 1000)
    finished = stopped.run("serve")
    assert finished.returncode == 2
    assert "reindex" in finished.stderr


def test_a_request_that_has_waited_too_long_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_gate, "_WAIT_SECONDS", 0.05)

    async def run() -> list[httpx.Response]:
        gate = StartGate()
        gate.progress.begin("counting profiles", 2000)
        gate.progress.advance(10)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://test") as client:
            refused = [await client.post("/v1/submit"), await client.get("/api/0/services")]
            gate.open(PlainTextResponse("open"))
            return [*refused, await client.get("/v1/merge")]

    submit, profefe, merge = asyncio.run(run())
    assert (submit.status_code, submit.headers["Retry-After"]) == (503, "5")
    assert submit.headers["Content-Type"] == "application/problem+json"
    assert submit.json()["detail"] == "the server is not ready yet: counting profiles: 10 of 2,000"
    assert (profefe.status_code, profefe.json()["code"]) == (503, 503)
    assert merge.text == "open"


def test_a_request_that_waits_when_the_server_stops_is_told_to_come_again() -> None:
    """uvicorn cancels what isn't done within PGOF_BODY_TIMEOUT and 15 s; a start may take longer."""

    async def run() -> httpx.Response:
        gate = StartGate()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://test") as client:
            submitting = asyncio.create_task(client.post("/v1/submit"))
            await asyncio.sleep(0.05)
            submitting.cancel()
            return await submitting

    answer = asyncio.run(run())
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json()["detail"].startswith("the server is not ready yet")
