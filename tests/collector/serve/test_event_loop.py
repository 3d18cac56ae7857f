"""Nothing blocks the event loop: the application runs in this process, under a detector of blocking calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from blockbuster import blockbuster_ctx
from pgo_collector.background import BackgroundTasks
from pgo_collector.hooks.deliveries import Deliveries
from pgo_collector.hooks.endpoint import Endpoint
from pgo_collector.http.keys import KeyFile, Keys
from pgo_collector.merges.kept import KeptMerges
from pgo_collector.merges.warming import Warming
from pgo_collector.metrics.gauges import Gauges
from pgo_collector.metrics.metrics import DELIVERIES
from pgo_collector.metrics.prometheus import PrometheusMetrics
from pgo_collector.serve.app import AppDependencies, create_app
from pgo_collector.serve.opened import open_store
from pgo_collector.settings import Settings
from pgo_collector.store.folder import DataFolder
from pgo_collector.store.locks import Locks
from pgo_collector.store.start_lines import StartLineTables
from pgo_collector.submits.opened_files import BASE, FILE, MOST_OF_SESSION, open_files
from pgo_collector.ui.sessions import SessionTokens
from pgo_collector.upkeep.clock import TrustedClock
from pgo_collector.upkeep.upkeep import Upkeep
from structlog.testing import capture_logs

from tests.faults.stacks import profile_of, tally
from tests.receiver import Receiver
from tests.server import bearer

pytestmark = pytest.mark.any_store


async def use(client: httpx.AsyncClient) -> None:
    """Send every kind of request once."""
    assert (await client.get("/healthz")).status_code == 200
    assert (await client.get("/v1/merge")).status_code == 404
    assert (await client.post("/v1/submit", content=b"hello")).status_code == 400
    for name in ("a", "b", "a"):
        assert (await client.post("/v1/submit", content=profile_of(name))).status_code == 204
    merged = await client.get("/v1/merge")
    assert tally(merged.content) == {"a": 1, "b": 1}
    etag = merged.headers["ETag"]
    assert (await client.get("/v1/merge", headers={"If-None-Match": etag})).status_code == 304
    assert (await client.post("/v1/merge?and_combine=true")).content == merged.content
    assert (await client.head("/v1/merge")).status_code == 200
    assert (await client.get("/v1/merge", headers=bearer("wrong"))).status_code == 403
    assert (await client.get("/v1/release")).content == merged.content
    assert (await client.get("/v1/release?format=folded")).status_code == 200
    assert (await client.post("/v1/releases")).status_code == 200
    assert (await client.put("/v1/releases/1/pin")).status_code == 200
    assert (await client.delete("/v1/releases/1/pin")).status_code == 200
    assert len((await client.get("/v1/releases")).json()["releases"]) == 1
    query = "?service=demo&type=cpu"
    sent = [await client.post(f"/api/0/profiles{query}", content=profile_of(name)) for name in ("a", "b")]
    first, second = (answer.json()["body"]["id"] for answer in sent)
    assert len((await client.get(f"/api/0/profiles{query}")).json()["body"]) == 2
    for path in (f"/merge{query}", f"/merge{query}&limit=2", f"/{first}+{second}"):
        assert tally((await client.get(f"/api/0/profiles{path}")).content) == {"a": 1, "b": 1}
    assert (await client.get(f"/api/0/profiles/{first}")).status_code == 200
    assert len((await client.get("/api/0/services")).json()["body"]) == 2
    for path in ("services", "profiles", "top?service=*", "series?function=a", "diff?base_labels=a="):
        assert (await client.get(f"/v1/{path}")).status_code == 200
    assert (await client.get("/v1/openapi.json")).status_code == 200
    assert 'pgo_collector_stored_profiles{kind="single"} 2.0' in (await client.get("/metrics")).text


async def look(client: httpx.AsyncClient) -> None:
    assert (await client.post("/ui/sign-in", data={"key": "key"})).status_code == 303
    for path in ("", "services/demo", "services/demo/top", "services/demo/diff?base_labels=a="):
        assert (await client.get(f"/ui/{path}")).status_code == 200
    for path in ("series?function=a", "build", "merge?format=folded"):
        assert (await client.get(f"/ui/services/demo/{path}")).status_code == 200
    assert (await client.get("/ui/static/pages.css")).status_code == 200
    for number in range(MOST_OF_SESSION + 1):  # the last one closes the first one
        stacks = {field: (field, b"main;%s%d 1\n" % (field.encode(), number)) for field in (BASE, FILE)}
        opened = await client.post("/ui/file", files=stacks)
        assert opened.status_code == 303
    path = opened.headers["Location"]
    for each in ("/ui/file", path, path.replace("/diff", "/top"), path.replace("/diff", "/merge")):
        assert (await client.get(each)).status_code == 200


def test_no_request_blocks_the_event_loop(tmp_path: Path) -> None:
    key_file = tmp_path / "keys"
    key_file.write_text("key\n")
    secret_file = tmp_path / "secret"
    secret_file.write_text(f"whsec_{'A' * 32}\n")
    receiver = Receiver()
    settings = Settings(directory=tmp_path / "data", workers=1, metrics_open=True, webhook_url=receiver.url)
    keys = KeyFile(key_file)

    async def serve(folder: DataFolder) -> None:
        metrics = PrometheusMetrics()
        async with (
            open_store(settings, folder, metrics) as opened,
            open_files(folder, opened.tasks, settings.limits) as files,
        ):
            store, workers = opened.store, opened.tasks.workers
            endpoint = Endpoint(receiver.url, secret_file, 5)
            locks = Locks(store.catalog.database.leases)
            deliveries = Deliveries(
                store,
                locks,
                endpoint,
                max_days=1,
                max_events=100,
                is_trusted=lambda _: True,
                observe=lambda outcome, count: metrics.count(DELIVERIES, outcome, amount=count),
            )
            following = [asyncio.create_task(each.run()) for each in (keys, deliveries)]
            warming, background = Warming(store, opened.tasks), BackgroundTasks({})
            dependencies = AppDependencies(
                opened,
                KeptMerges(folder.merged, settings.merges_kept),
                StartLineTables(store, workers, settings),
                locks,
                warming,
                background,
                Keys(keys, keys, keys),
                SessionTokens(keys, b"secret", 60),
                files,
                asyncio.Event(),
                metrics,
            )
            gauges = Gauges(
                store,
                workers=workers,
                bulk=opened.bulk_progress,
                warming=warming,
                upkeep=Upkeep(store, opened.tasks, locks, settings, TrustedClock(), binaries=opened.binaries),
                background=background,
                clocks=opened.commits.clocks,
                functions=opened.commits.functions,
            )
            metrics.register_gauges(gauges)
            transport = httpx.ASGITransport(create_app(settings, dependencies))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://collector", headers=bearer("key")
            ) as client:
                key_file.write_text("key\nanother\n")
                with blockbuster_ctx(), capture_logs():
                    await use(client)
                    await look(client)
                    async with asyncio.timeout(120):
                        while len(keys.keys.keys) != 2 or len({*receiver.ids}) != 4:  # noqa: ASYNC110 - no event tells
                            await asyncio.sleep(0.05)
            for task in following:
                task.cancel()
            await asyncio.wait(following)

    with receiver, DataFolder(settings.directory) as folder:
        asyncio.run(serve(folder))
