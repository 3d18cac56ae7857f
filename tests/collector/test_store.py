"""What only an exact order of steps shows: the store in this process, with workers of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pgo_collector.engine.forms import Form, format_named
from pgo_collector.engine.tasks import Facts, receive
from pgo_collector.engine.types import CPU
from pgo_collector.merges.locks import Locks
from pgo_collector.merges.merges import Merges
from pgo_collector.server import open_store
from pgo_collector.settings import Settings
from pgo_collector.store.arrivals import Arrival
from pgo_collector.store.blobs import BlobName, Identity
from pgo_collector.store.folder import DataFolder, gzipped_part
from pgo_collector.store.retired import delete_retired
from pgo_collector.store.selection import Selection
from pgo_collector.store.series import Series
from pgo_collector.store.store import Store
from pprof_merge.rules import Rules

from tests.faults.stacks import profile_of, tally

SERIES = Series("default", CPU)
SELECTION = Selection.of(SERIES)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Store]:
    with DataFolder(directory) as folder:
        async with open_store(Settings(directory=directory, workers=2), folder) as store:
            yield store


async def submit(store: Store, profile: bytes) -> Facts:
    async with store.part() as part:
        part.write_bytes(profile)
        return (await store.submit(part, SERIES, Settings().limits)).facts


async def merged(merges: Merges, *, combine: bool = False) -> bytes:
    form = Form(format_named(), Rules())
    made = await (merges.combine if combine else merges.current)(SELECTION, form)
    with made.file:
        return made.file.read()


def test_a_merge_that_is_sent_in_while_it_is_combined_counts_too(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as store, store.part() as part:
            for name in ("a", "b"):
                await submit(store, profile_of(name))
            merges = Merges(store, Locks(), kept=10)
            part.write_bytes(await merged(merges))
            facts = await store.workers.run(receive, part, gzipped_part(part), CPU, Settings().limits)
            may_go_on = threading.Event()
            blocked = asyncio.create_task(store.write(may_go_on.wait))
            counted = asyncio.create_task(store.write(store.arrivals.count, [Arrival(part, SERIES, facts)]))
            await asyncio.sleep(0)
            combined = asyncio.create_task(merged(merges, combine=True))
            await asyncio.sleep(1)
            may_go_on.set()
            await asyncio.gather(blocked, counted)
            assert tally(await combined) == {"a": 2, "b": 2}
            assert tally(await merged(merges)) == {"a": 2, "b": 2}
            assert tally(await merged(merges, combine=True)) == {"a": 2, "b": 2}

    asyncio.run(play())


def test_a_retired_blob_stays_until_what_replaced_it_is_there(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as store:
            facts = [await submit(store, profile_of(name)) for name in ("a", "b")]
            blobs = store.catalog.live(SELECTION)
            new = BlobName(SERIES, Identity(0, "ab" * 32))
            inputs = {BlobName(SERIES, Identity(fact.time_nanos, fact.digest)) for fact in facts} | {new}
            store.catalog.replace(new, Facts(0, 0, "ab" * 32, 0, 0), 1, inputs, {blob.id for blob in blobs})
            await delete_retired(store)
            assert all(store.blobs.path(blob.name).exists() for blob in blobs)
            store.blobs.path(new).parent.mkdir(parents=True)
            store.blobs.path(new).write_bytes(b"")
            await delete_retired(store)
            assert not any(store.blobs.path(blob.name).exists() for blob in blobs)
            assert not store.catalog.retired()

    asyncio.run(play())
