"""Latency trackers over HTTP by bcc, over a kernel that does what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from pgo_agent.latency import TRACKERS
from pgo_agent.latency.bcc_feed import BccTrackers
from pgo_agent.serve import CaptureLock, CaptureRoutes, LatencyRoutes
from pgo_agent.serve.app import create_app

from tests.agent.latency.test_bcc_feed import FORK, begin, end
from tests.agent.latency.waiting import MS, samples_of
from tests.agent.stand_ins.tools import StandInKernel, use_stand_ins

URL = "/latency/offcpu"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInKernel:
    use_stand_ins(monkeypatch)
    return StandInKernel(tmp_path, monkeypatch).has((FORK, *TRACKERS["offcpu"].tracepoints))


def over_http(kernel: StandInKernel, ask: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def run() -> None:
        latency = LatencyRoutes(backend=BccTrackers(kernel.python()))
        app = create_app(CaptureRoutes(CaptureLock(), ()), latency)
        transport = httpx.ASGITransport(app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                await ask(client)
        finally:
            latency.stop()

    asyncio.run(run())


def test_a_tracker_from_start_to_end(kernel: StandInKernel) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.get(URL)).json() == {"tracker": "offcpu", "running": False}
        assert (await client.patch(URL, json={})).status_code == 412
        assert (await client.put(URL, json={"threshold": "never"})).status_code == 422
        started = await client.put(URL, json={"threshold": "2ms", "comms": ["shop"], "timeout": "1000s"})
        assert started.status_code == 201, started.text
        assert (await client.put(URL, json={})).status_code == 409
        assert [one["tracker"] for one in (await client.get("/latency")).json() if one["running"]] == [
            "offcpu"
        ]
        kernel.happens(end(4 * MS), begin(1, ago=900 * MS, kernel=[]))
        (waits,) = (await client.get(f"{URL}/in-flight")).json()
        assert waits["delay_ns"] > 800 * MS
        assert (waits["comm"], waits["functions"]) == ("shop", [])
        assert (await client.get(f"{URL}/profile?seconds=0")).status_code == 422

        taking = asyncio.create_task(client.get(f"{URL}/profile?seconds=1"))
        await asyncio.sleep(0.5)
        kernel.happens(*[end(4 * MS, kernel=[], user=[])] * 2, end(600))
        profile = await taking
        assert profile.status_code == 200, profile.text
        assert [(one.delay, one.events) for one in samples_of(profile.content)] == [(8 * MS, 2), (600, 1)]
        state = (await client.get(URL)).json()
        assert (state["counts"]["reported"], state["all"]["count"]) == (3, 4)
        metrics = (await client.get("/metrics")).text
        assert 'pgo_agent_latency_events_total{tracker="offcpu",outcome="reported"} 3' in metrics

        changed = await client.patch(URL, json={"threshold": "5ms"})
        assert changed.json()["settings"]["threshold"] == "5ms"
        stopped = await client.delete(URL)
        assert (stopped.status_code, stopped.json()["running"]) == (200, False)

    over_http(kernel, ask)


def test_many_profiles_at_a_time_keep_nobody_from_stopping_their_tracker(kernel: StandInKernel) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.put(URL, json={})).status_code == 201
        taking = [asyncio.create_task(client.get(f"{URL}/profile?seconds=60")) for _ in range(17)]
        await asyncio.sleep(0.1)
        assert (await client.delete(URL)).status_code == 200
        refused = [(one.status_code, one.json()) for one in await asyncio.gather(*taking)]
        assert sorted(refused) == [
            (429, "16 others are reading this tracker; try again later."),
            *[(500, "Failed to generate pprof data: offcpu: it was stopped")] * 16,
        ]

    over_http(kernel, ask)
