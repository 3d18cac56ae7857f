"""Blobs that another collector combines or deletes while they are read: answers are of what replaced them."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from pgo_collector.background import BackgroundTasks
from pgo_collector.blobs.storage import Storage
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.leases import NO_LEASE
from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.symbols import NO_SYMBOLS
from pgo_collector.engine.tasks import Unreadable, drop_rows
from pgo_collector.http.keys import KeyFile, Keys
from pgo_collector.merges.combining import combine_blobs
from pgo_collector.merges.kept import KeptMerges
from pgo_collector.merges.warming import Warming
from pgo_collector.model.facts import Facts
from pgo_collector.model.selection import Selection
from pgo_collector.serve.app import AppDependencies, create_app
from pgo_collector.serve.opened import open_store
from pgo_collector.settings import Settings
from pgo_collector.store.folder import DataFolder
from pgo_collector.store.garbage import collect_garbage, delete_live
from pgo_collector.store.locks import Locks
from pgo_collector.store.start_lines import StartLineTables
from pgo_collector.store.store import Store
from pgo_collector.submits.opened_files import open_files
from pgo_collector.ui.sessions import SessionTokens
from pgo_collector.workers.blob_tasks import BlobTasks
from pgo_collector.workers.bulk import BulkProgress, OwnWorkers
from pgo_collector.workers.pool import Workers

from tests.faults.stacks import SECOND, profile_of, tally
from tests.server import Server, bearer

SHOP = Selection("shop", "cpu")
OWNER = (SHOP.service, SHOP.type)
NOW = time.time_ns() - 3600 * SECOND
CPU = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name="shop"}'
BETWEEN = {"from": "now-1d", "until": "now"}
OF = "service=shop"
# What reads blobs. Each answer has all profiles of the service.
QUESTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "merge": ("/v1/merge", {}),
    "merge in a format": ("/v1/merge", {"format": "folded"}),
    "newest": ("/api/0/profiles/merge", {"type": "cpu", "limit": "2"}),
    "report": ("/v1/report", {}),
    "top": ("/v1/top", {}),
    "top of the fleet": ("/v1/top", {"service": "*"}),
    "diff": ("/v1/diff", {"base_last": "1d"}),
    "flame": ("/v1/flame", {}),
    "flame compared": ("/v1/flame", {"base_last": "1d"}),
    "function": ("/v1/function", {"function": "a"}),
    "series": ("/v1/series", {"function": "a"}),
    "overview": ("/v1/fleet", {}),
    "render": ("/pyroscope/render", {"query": CPU, **BETWEEN}),
}


class Meanwhile:
    """Has another collector act when a request has read the catalog, and no worker has read a blob yet.

    It takes the place of the cluster, which reads blobs at this very moment.
    """

    def __init__(self, workers: Workers) -> None:
        self.progress = BulkProgress()
        self._workers = workers
        self._own = OwnWorkers(workers)
        self.acts: list[Callable[[], Awaitable[None]]] = []
        self.loads = 0

    async def load(self, chosen: ChosenBlobs) -> None:
        self.loads += 1
        if self.acts:
            await self.acts.pop(0)()
        # What the worker has read before would do, too.
        await self._workers.run_for(chosen.owner, drop_rows, chosen.owner, 0)

    async def inspect(
        self, storage: Storage, blobs: Sequence[tuple[str, str]], among: int
    ) -> list[Facts | Unreadable]:
        return await self._own.inspect(storage, blobs, among)


class Other:
    """Another collector: it has the same blobs and database, and a catalog with caches of its own."""

    def __init__(self, store: Store, workers: Workers) -> None:
        self.store = copy.copy(store)
        self.store.catalog = Catalog(store.catalog.database)
        self.tasks = BlobTasks(workers, OwnWorkers(workers), self.store.catalog, lambda _: NO_SYMBOLS)

    async def combine(self) -> None:
        await combine_blobs(self.store, self.tasks, NO_LEASE, self.store.catalog.live(SHOP))
        await collect_garbage(self.store, self.tasks, NO_LEASE, SHOP.service, SHOP.type)

    async def delete_oldest(self) -> None:
        await delete_live(self.store, self.tasks, NO_LEASE, OWNER, self.store.catalog.live(SHOP)[:1])

    async def delete_all(self) -> None:
        await delete_live(self.store, self.tasks, NO_LEASE, OWNER, self.store.catalog.live(SHOP))

    async def lose_oldest(self) -> None:
        """Delete the bytes of a profile that counts, as nobody may."""
        self.store.blobs.discard(self.store.catalog.live(SHOP)[0].name)


class Collector:
    """A collector in this process, and another one that acts while it reads."""

    def __init__(self, meanwhile: Meanwhile, other: Other, client: httpx.AsyncClient) -> None:
        self.meanwhile = meanwhile
        self.other = other
        self.client = client

    async def submit(self, *names: str, at: int = NOW) -> None:
        """Submit profiles that were taken a second after each other, the first one at `at` in ns."""
        for number, name in enumerate(names):
            profile = profile_of(name, time_nanos=at + number * SECOND)
            assert (await self.client.post(f"/v1/submit?{OF}", content=profile)).status_code == 204

    async def ask(
        self, path: str, query: dict[str, str] | None = None, *acts: Callable[[], Awaitable[None]]
    ) -> httpx.Response:
        """Ask while the other collector acts, before each reading of the blobs in turn."""
        self.meanwhile.acts, self.meanwhile.loads = [*acts], 0
        return await self.client.get(path, params={"service": "shop"} | (query or {}))


@asynccontextmanager
async def collector_in(folder: Path) -> AsyncIterator[Collector]:
    key_file = folder / "keys"
    key_file.write_text("key\n")
    keys, data = KeyFile(key_file), folder / "data"
    catalog = Server.catalogs.settings(data).get("PGOF_CATALOG", "")
    settings = Settings(directory=data, workers=1, catalog=catalog)
    with DataFolder(settings.directory) as locked:
        async with (
            open_store(settings, locked) as opened,
            open_files(locked, opened.tasks, settings.limits) as files,
        ):
            store, workers = opened.store, opened.tasks.workers
            meanwhile = Meanwhile(workers)
            tasks = BlobTasks(workers, meanwhile, store.catalog, opened.binaries.symbols)
            kept = KeptMerges(locked.merged, settings.merges_kept)
            dependencies = AppDependencies(
                opened._replace(tasks=tasks),
                kept,
                StartLineTables(store, workers, settings),
                Locks(store.catalog.database.leases),
                Warming(store, tasks),
                BackgroundTasks({}),
                Keys(keys, keys, keys),
                SessionTokens(keys, b"secret", 60),
                files,
                asyncio.Event(),
            )
            transport = httpx.ASGITransport(create_app(settings, dependencies))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://collector", headers=bearer("key")
            ) as client:
                yield Collector(meanwhile, Other(store, workers), client)


def play(folder: Path, use: Callable[[Collector], Awaitable[None]]) -> None:
    async def playing() -> None:
        async with collector_in(folder) as collector:
            await use(collector)

    asyncio.run(playing())


def left_out_of(answer: httpx.Response) -> int:
    """Return how many profiles an answer says to be without."""
    if "json" not in answer.headers["Content-Type"]:
        return int("PGO-Left-Out" in answer.headers)
    found: list[int] = []
    json.loads(answer.content, object_hook=lambda each: found.append(each.get("left_out") or 0))
    return sum(found) + ("PGO-Left-Out" in answer.headers)


def test_an_answer_is_of_what_a_combine_makes_of_blobs_that_are_being_read(tmp_path: Path) -> None:
    """Each question is about profiles of another minute, so that nothing is kept of their answer."""

    async def use(collector: Collector) -> None:
        for minute, question in enumerate(QUESTIONS):
            await collector.submit("a", "b", at=NOW + minute * 60 * SECOND)
            await check(collector, question)
            await collector.other.delete_all()

    async def check(collector: Collector, question: str) -> None:
        path, query = QUESTIONS[question]
        answer = await collector.ask(path, query, collector.other.combine)
        assert answer.status_code == 200, (question, answer.text)
        assert not left_out_of(answer), question
        assert not collector.meanwhile.acts, question
        again = await collector.ask(path, query)
        # These say when they were made, or count the profiles when the request came.
        if question not in {"report", "render", "overview"}:
            assert answer.content == again.content, question
        if question == "render":
            assert answer.json()["flamebearer"] == again.json()["flamebearer"]
            assert answer.json()["flamebearer"]["numTicks"] == 20_000_000
        if path == "/v1/merge" and not query:
            assert tally(answer.content) == {"a": 1, "b": 1}
            assert answer.headers["ETag"] == again.headers["ETag"]

    play(tmp_path, use)


@pytest.mark.parametrize(
    "question",
    [
        # What is deleted goes the way of what is combined, which is tried with each question.
        question if question in {"merge", "top"} else pytest.param(question, marks=pytest.mark.exhaustive)
        for question in QUESTIONS
    ],
)
def test_an_answer_is_without_what_is_deleted_while_it_is_read(tmp_path: Path, question: str) -> None:
    path, query = QUESTIONS[question]

    async def use(collector: Collector) -> None:
        await collector.submit("b", "a")
        answer = await collector.ask(path, query, collector.other.delete_oldest)
        assert answer.status_code == 200, answer.text
        assert not left_out_of(answer)
        if path == "/v1/merge" and not query:
            assert tally(answer.content) == {"a": 1}

    play(tmp_path, use)


def test_profiles_by_id_are_looked_for_again(tmp_path: Path) -> None:
    async def use(collector: Collector) -> None:
        await collector.submit("a", "b")
        listed = await collector.ask("/api/0/profiles", {"type": "cpu"})
        path = f"/api/0/profiles/{'+'.join(each['id'] for each in listed.json()['body'])}"
        answer = await collector.ask(path, {}, collector.other.combine)
        assert answer.status_code == 404
        assert "combined into another" in answer.text

    play(tmp_path, use)


@pytest.mark.parametrize("path", ["/v1/merge", "/v1/report"])
def test_when_all_are_deleted_nothing_is_selected(tmp_path: Path, path: str) -> None:
    async def use(collector: Collector) -> None:
        await collector.submit("a", "b")
        answer = await collector.ask(path, {}, collector.other.delete_all)
        assert answer.status_code == 404
        assert "no stored profile matches the selection" in answer.text

    play(tmp_path, use)


@pytest.mark.parametrize(("path", "attempts"), [("/v1/merge", 4), ("/v1/top", 3), ("/v1/report", 3)])
def test_a_request_gives_up_when_blobs_go_again_and_again(tmp_path: Path, path: str, attempts: int) -> None:
    async def use(collector: Collector) -> None:
        await collector.submit(*"abcdefg")
        answer = await collector.ask(path, {}, *[collector.other.delete_oldest] * 10)
        assert collector.meanwhile.loads == attempts
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "combined or deleted while they were read" in answer.text
        answer = await collector.ask(path, {})
        assert answer.status_code == 200
        assert not left_out_of(answer)

    play(tmp_path, use)


@pytest.mark.parametrize("path", ["/v1/merge", "/v1/top", "/v1/report"])
def test_a_profile_that_counts_and_is_lost_is_left_out_at_once(tmp_path: Path, path: str) -> None:
    async def use(collector: Collector) -> None:
        await collector.submit("a", "b")
        answer = await collector.ask(path, {}, collector.other.lose_oldest)
        assert answer.status_code == 200
        assert answer.headers["PGO-Left-Out"].count("shop/cpu") == 1
        assert collector.meanwhile.loads == 1

    play(tmp_path, use)
