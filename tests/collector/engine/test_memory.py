"""Memory grows with what profiles have in common, and hardly with their number."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.engine.blob_columns import BlobColumns
from pgo_collector.engine.merge_inputs import ROW_CACHE, ChosenBlobs
from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.engine.tasks import merge_blobs
from pgo_collector.model.facts import Facts
from pgo_collector.model.series import BlobName, Identity, Series
from pgo_collector.starting.reconcile import Reconciliation
from pgo_collector.store.folder import CATALOG, DataFolder, folder_storage
from pgo_collector.store.store import Store
from pgo_collector.workers.bulk import OwnWorkers
from pgo_collector.workers.pool import Workers
from pprof_merge import Budget, decode

from tests.collector.bounds import BOUNDS
from tests.faults.stacks import DAY, EPOCH, profile_of, tally

pytestmark = [pytest.mark.any_store, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

# A profile took 2,000 bytes and more when each was an object; a return to that fails.
_MOST_BYTES = 500
# It took 700 when their names were kept.
_MOST_BYTES_AT_A_START = 150
_FEW, _MANY = 500, 3_500


def store(folder: Path, count: int) -> ChosenBlobs:
    """Write `count` profiles of one stack to files."""
    every = []
    for number in range(count):
        profile = profile_of("same", time_nanos=EPOCH + number)
        every.append((profile, decode(profile)))
    blobs = BlobColumns(
        FolderStorage(folder, folder),
        (Series("service", "cpu"),),
        np.zeros(count, np.int32),
        np.array([profile.header.time_nanos for _, profile in every]),
        np.frombuffer(b"".join(profile.digest for _, profile in every), np.uint8).reshape(-1, 32),
        np.zeros(count, np.bool_),
    )
    for row, (content, _) in enumerate(every):
        path = folder / blobs.name(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return ChosenBlobs("service", "cpu", blobs)


def memory_after(chosen: ChosenBlobs, folder: Path) -> int:
    """Return the private bytes of a worker after a merge, without the pages of mapped files."""
    ROW_CACHE.most_bytes, ROW_CACHE.folder = 1 << 30, folder
    merged = folder / "merged"
    assert merge_blobs(chosen, PLAIN_RENDITION, merged, Budget()).left_out == ()
    assert tally(merged.read_bytes()) == {"same": len(chosen.blobs)}
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
    return int(kilobytes) << 10


def test_a_profile_more_takes_next_to_no_memory(tmp_path: Path) -> None:
    sizes = {}
    for count in (_FEW, _MANY):
        chosen = store(tmp_path / f"{count}", count)
        for start in ("first", "second"):  # decodes the profiles, then finds them on disk
            with ProcessPoolExecutor(1, get_context("forkserver")) as process:
                sizes[start, count] = process.submit(memory_after, chosen, tmp_path / f"{count}").result()
    for start in ("first", "second"):
        assert (sizes[start, _MANY] - sizes[start, _FEW]) / (_MANY - _FEW) < _MOST_BYTES


def most_at_a_start(home: Path, count: int) -> int:
    """Return the most bytes that comparing the catalog with blobs/ takes, with ten blobs a day."""
    database = SQLite(home / CATALOG)
    with (
        DataFolder(home) as folder,
        Store(folder, database, folder_storage(home)) as store,
    ):
        database.open()
        names = [
            BlobName(Series("service", "cpu"), Identity(EPOCH + number * DAY // 10, f"{number:064x}"))
            for number in range(count)
        ]
        store.catalog.add(*((name, Facts(name.identity.time_nanos, 0, "", 1, 1)) for name in names))
        for name in names:
            Path(store.blobs.storage.where(str(name))).parent.mkdir(parents=True, exist_ok=True)
            Path(store.blobs.storage.where(str(name))).touch()
        del names
        bulk = OwnWorkers(Workers(1, BOUNDS, folder.rows))
        asyncio.run(Reconciliation(store, bulk).run())  # makes everything that is made once
        tracemalloc.start()
        asyncio.run(Reconciliation(store, bulk).run())
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most


def test_a_stored_profile_more_takes_next_to_no_memory_at_a_start(tmp_path: Path) -> None:
    few, many = (most_at_a_start(tmp_path / f"{count}", count) for count in (300, 2_300))
    assert (many - few) / 2_000 < _MOST_BYTES_AT_A_START
