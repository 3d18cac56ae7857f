"""The claim of a bucket: one catalog at a time counts what is in it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.errors import StorageTaken, StorageUnusable
from pgo_collector.store import claim
from pgo_collector.store.claim import BucketClaim
from structlog.testing import capture_logs

from tests.catalogs import Files
from tests.collector.http.test_routes import assert_problem
from tests.constants import CLAIM
from tests.faults.stacks import profile_of, tally
from tests.interop.ceph_cluster import Gateway
from tests.server import Server

# In these tests, seconds are this much shorter.
_FASTER = 40
WATCH_SECONDS, SURE_SECONDS, RENEWAL_SECONDS = 50 / _FASTER, 40 / _FASTER, 15 / _FASTER
ONE, OTHER = 1_795_000_000_000_000_000, 1_795_000_000_000_000_001
WAITING = "waiting for bucket"
# The claim of a data folder that nobody else wants.
HELD: Any = SimpleNamespace(check=lambda: None)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStorage:
    """A folder in the place of a bucket, in which all takes less time."""
    for name in ("_RENEWAL_SECONDS", "_SURE_SECONDS", "_WATCH_SECONDS", "_LOOK_SECONDS"):
        monkeypatch.setattr(claim, name, getattr(claim, name) / _FASTER)
    (tmp_path / "claim").mkdir()
    (tmp_path / "incoming").mkdir()
    return FolderStorage(tmp_path / "blobs", tmp_path / "incoming")


def claim_of(bucket: FolderStorage) -> BucketClaim:
    return BucketClaim(bucket, SQLite(bucket.root / "catalog"), HELD)


def stored(bucket: FolderStorage) -> Path:
    return bucket.area("claim").root / "catalog"


def take(bucket: FolderStorage, catalog: int, before: int | None = None) -> BucketClaim:
    taken = claim_of(bucket)
    asyncio.run(taken.take(catalog, before))
    return taken


def run_once(held: BucketClaim) -> None:
    """Have the background task of a claim renew it once."""

    async def run() -> None:
        running = asyncio.create_task(held.run())
        await asyncio.sleep(RENEWAL_SECONDS * 1.5)
        running.cancel()

    asyncio.run(run())


def renew(held: BucketClaim) -> None:
    """Have a claim look at the object, as it does when it hasn't for a while."""
    time.sleep(SURE_SECONDS * 1.1)
    held.check()


def test_a_claim_that_nobody_renews_is_taken_over_after_a_while(bucket: FolderStorage) -> None:
    one = take(bucket, ONE)
    one.check()
    began = time.monotonic()
    other = take(bucket, OTHER)
    assert time.monotonic() - began >= WATCH_SECONDS
    renew(other)
    with pytest.raises(StorageTaken, match=r"another catalog has taken it \(.*blobs/catalog\)"):
        renew(one)
    with pytest.raises(StorageTaken):  # at once from now on
        one.check()


def test_a_claim_that_is_renewed_is_not_taken_over(bucket: FolderStorage) -> None:
    one, stop = take(bucket, ONE), threading.Event()

    async def renewing() -> None:
        running = asyncio.create_task(one.run())
        await asyncio.to_thread(stop.wait)
        running.cancel()

    thread = threading.Thread(target=asyncio.run, args=(renewing(),))
    thread.start()
    try:
        with pytest.raises(StorageUnusable, match="give both the same PGOF_CATALOG"):
            take(bucket, OTHER)
    finally:
        stop.set()
        thread.join()
    one.check()


def test_collectors_of_one_catalog_renew_it_for_each_other(
    bucket: FolderStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been right after one's last look, so one relies on it for as long as after that look."""
    now = 1000.0
    monkeypatch.setattr(claim, "boot_seconds", lambda: now)
    one, other = take(bucket, ONE), take(bucket, ONE)
    text = stored(bucket).read_bytes()
    now += RENEWAL_SECONDS
    run_once(one)
    assert stored(bucket).read_bytes() == text  # the other one has just written it
    now += 26 / _FASTER
    one.check()
    assert stored(bucket).read_bytes() != text
    renewed = stored(bucket).read_bytes()
    run_once(other)  # it hasn't looked for so long that this may be long ago
    assert stored(bucket).read_bytes() != renewed


def test_a_catalog_that_was_made_anew_takes_the_claim_at_once(bucket: FolderStorage) -> None:
    one = take(bucket, ONE)
    began = time.monotonic()
    take(bucket, OTHER, before=ONE)
    assert time.monotonic() - began < WATCH_SECONDS
    with pytest.raises(StorageTaken):
        renew(one)


@pytest.mark.parametrize("text", [b"", b"not JSON", b"[]", b'"text"', b"{}", b"\xff", b"[" * 100_000])
def test_what_is_not_a_claim_is_replaced_after_a_while(bucket: FolderStorage, text: bytes) -> None:
    stored(bucket).write_bytes(text)
    take(bucket, ONE).check()
    assert json.loads(stored(bucket).read_bytes())["catalog"] == str(ONE)


def test_a_claim_that_was_deleted_is_made_again(bucket: FolderStorage) -> None:
    one = take(bucket, ONE)
    stored(bucket).unlink()
    renew(one)
    assert json.loads(stored(bucket).read_bytes())["catalog"] == str(ONE)


def test_a_watch_ends_when_a_collector_of_this_catalog_has_taken_the_claim(bucket: FolderStorage) -> None:
    take(bucket, ONE)
    ours = stored(bucket).read_bytes()
    take(bucket, OTHER, before=ONE)

    async def run() -> float:
        began = time.monotonic()
        watching = asyncio.create_task(claim_of(bucket).take(ONE))
        await asyncio.sleep(WATCH_SECONDS / 4)
        stored(bucket).write_bytes(ours)
        await watching
        return time.monotonic() - began

    assert asyncio.run(run()) < WATCH_SECONDS


def test_a_claim_that_is_lost_or_cannot_be_renewed_is_logged(bucket: FolderStorage) -> None:
    one = take(bucket, ONE)
    take(bucket, OTHER, before=ONE)
    with capture_logs() as logged:
        run_once(one)
        stored(bucket).unlink()
        stored(bucket).mkdir()
        run_once(one)
    assert [line["event"] for line in logged] == ["bucket lost", "bucket claim not renewed"]


@pytest.mark.bucket
@pytest.mark.long
def test_collectors_with_different_catalogs_do_not_use_one_bucket(gateway: Gateway, tmp_path: Path) -> None:
    """A claim is watched for ten seconds before it is taken over, where a collector does for fifty."""
    shared = {
        "PGOF_STORAGE": f"s3://{gateway.new_bucket()}/pgo",
        "PGOF_CATALOG": "",
        **CLAIM,
        **gateway.environment,
    }
    one, other = (Server(tmp_path / name, shared) for name in ("one", "other"))
    one.catalogs = other.catalogs = Files()
    with one:
        assert one.submit(profile_of("a")).status_code == 204
        refused = other.run("serve")
        assert refused.returncode == 2
        assert "a collector with another catalog uses it" in refused.stderr
        assert "give both the same PGOF_CATALOG" in refused.stderr
        assert one.submit(profile_of("b")).status_code == 204
        os.kill(one.process.pid, signal.SIGSTOP)  # it looks dead
        try:
            with other:
                assert other.events(WAITING)
                assert other.events("bucket taken over")
                assert tally(other.merge().content) == {"a": 1, "b": 1}
                os.kill(one.process.pid, signal.SIGCONT)
                answer = one.submit(profile_of("c"))
                assert_problem(answer, 503)
                assert "a collector with another catalog has taken it" in answer.text
                assert one.client.get("/readyz").status_code == 503
                assert other.submit(profile_of("c")).status_code == 204
                assert tally(other.merge().content) == {"a": 1, "b": 1, "c": 1}
                assert other.stop() == 0
                other.reindex()
                other.start()
                assert not other.events(WAITING)
                assert tally(other.merge().content) == {"a": 1, "b": 1, "c": 1}
        finally:
            os.kill(one.process.pid, signal.SIGCONT)
