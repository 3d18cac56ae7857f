"""Latency trackers over HTTP, with what the kernel would tell told by a program of the test."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from pgo_agent.latency import Counts
from pgo_agent.latency.bcc_feed import BccTrackers
from pgo_agent.serve import CaptureLock, CaptureRoutes, LatencyRoutes
from pgo_agent.serve.app import create_app

from tests.agent.latency.waiting import MS, samples_of

URL = "/latency/offcpu"
# It prints what latency_program.py would: two events of 4 ms in a tick, one in flight.
_PROGRAM = f"""
import json, signal, sys
signal.signal(signal.SIGINT, lambda *_: sys.exit())
def tell(*items):
    print(json.dumps(items), flush=True)
waits = dict(pid=4_000_000, thread=4_000_001, comm="shop", number=1, name="", operation=1,
             kernel="", user="", delay=9_000_000, time=10**18)
json.loads(sys.stdin.readline())
tell("started")
for line in sys.stdin:
    kind, *_ = json.loads(line)
    if kind == "in_flight":
        tell("in_flight", [waits])
    elif kind == "flush":
        stack = [4_000_000, "shop", 1, "", 1, "", "", None, 22, 2, {8 * MS}]
        counters = dict.fromkeys({Counts.NAMES!r}, 0) | dict(seen=3, reported=2, below=1)
        tell("tick", dict(stacks=[stack], below={{"10": [1, 600]}}, dropped={{}}, counters=counters,
                          min=600, max={4 * MS}))
        tell("flushed", [])
    elif kind == "set":
        tell("late", waits)
"""


def over_http(folder: Path, ask: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    program, python = folder / "program.py", folder / "python"
    program.write_text(_PROGRAM)
    for path, command in ((python, f"{sys.executable} {program}"), (folder / "llvm-cxxfilt", "cat")):
        path.write_text(f"#!/bin/sh\nexec {command}\n")
        path.chmod(0o755)

    async def run() -> None:
        latency = LatencyRoutes(backend=BccTrackers(str(python)))
        app = create_app(CaptureRoutes(CaptureLock(), ()), latency)
        try:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
            ) as client:
                await ask(client)
        finally:
            latency.stop()

    asyncio.run(run())


def test_a_tracker_from_start_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.get(URL)).json() == {"tracker": "offcpu", "running": False}
        assert (await client.patch(URL, json={})).status_code == 412
        assert (await client.put(URL, json={"threshold": "never"})).status_code == 422
        started = await client.put(URL, json={"threshold": "2ms", "executables": ["shop"], "events": 5})
        assert started.status_code == 201, started.text
        assert (await client.put(URL, json={})).status_code == 409
        assert [one["tracker"] for one in (await client.get("/latency")).json() if one["running"]] == [
            "offcpu"
        ]
        (waits,) = (await client.get(f"{URL}/in-flight")).json()
        assert (waits["delay_ns"], waits["comm"], waits["functions"]) == (9 * MS, "shop", [])
        assert (await client.get(f"{URL}/profile?seconds=0")).status_code == 422

        profile = await client.get(f"{URL}/profile?seconds=1")
        assert profile.status_code == 200, profile.text
        assert [(one.delay, one.events) for one in samples_of(profile.content)] == [(8 * MS, 2), (600, 1)]
        state = (await client.get(URL)).json()
        assert (state["counts"]["reported"], state["all"]["count"]) == (4, 6)
        metrics = (await client.get("/metrics")).text
        assert 'pgo_agent_latency_events_total{tracker="offcpu",outcome="reported"} 4' in metrics

        changed = await client.patch(URL, json={"threshold": "5ms"})
        assert changed.json()["settings"]["threshold"] == "5ms"
        stopped = await client.delete(URL)
        assert (stopped.status_code, stopped.json()["running"]) == (200, False)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    over_http(tmp_path, ask)
