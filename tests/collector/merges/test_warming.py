"""Warming: workers read profiles soon after they came, so that the first merge reads none of them."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.engine.symbols import NO_SYMBOLS
from pgo_collector.merges.warming import Warming
from pgo_collector.model.facts import Facts
from pgo_collector.model.series import BlobName, Identity, Series
from pgo_collector.store.folder import DataFolder, folder_storage
from pgo_collector.store.store import Store
from pgo_collector.workers.blob_tasks import BlobTasks
from pgo_collector.workers.bulk import OwnWorkers
from pgo_collector.workers.pool import Workers
from pprof_merge import decode, encode, merge

from tests.collector.bounds import BOUNDS
from tests.collector.pushing import assert_pushed, one, push
from tests.constants import DECODED_BYTES, DECODED_TIME, WARMING_PAUSE
from tests.faults.stacks import EPOCH, profile_of, tally
from tests.server import Server, descendants


@pytest.fixture
def quick(stopped: Server) -> Server:
    """Return a running collector whose workers read new profiles within hundredths of a second."""
    stopped.environment[WARMING_PAUSE] = "0.02"
    stopped.start()
    return stopped


def lose_blobs(server: Server) -> None:
    """Empty all blobs, so that nothing can be read from them any more."""
    for blob in server.blobs():
        blob.write_bytes(b"")


def workers_of(server: Server) -> list[int]:
    """Return the processes that the fork server has forked."""
    return [pid for child in server.descendants() for pid in descendants(child)]


def test_the_first_merge_reads_no_blob(quick: Server, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        assert quick.submit(profile).status_code == 204
    quick.wait_until_read_ahead()
    lose_blobs(quick)
    answer = quick.merge()
    assert gzip.decompress(answer.content) == encode(merge(map(decode, go_profiles)))
    assert "PGO-Left-Out" not in answer.headers


def test_what_was_decoded_to_validate_it_is_not_read_again(stopped: Server, go_profiles: list[bytes]) -> None:
    stopped.environment |= {WARMING_PAUSE: "1", "PGOF_WORKERS": "1"}
    stopped.start()
    for profile in go_profiles:
        stopped.submit(profile)
        lose_blobs(stopped)
    assert stopped.client.get("/readyz").json()["rows"]["behind"] == 1
    assert gzip.decompress(stopped.merge().content) == encode(merge(map(decode, go_profiles)))


@pytest.mark.parametrize(("part", "is_read"), [("1000000.0", True), ("0.0", False)])
def test_what_leaves_the_decoded_profiles_becomes_rows_if_there_is_time(
    stopped: Server, part: str, *, is_read: bool
) -> None:
    stopped.environment |= {
        WARMING_PAUSE: "3600",
        DECODED_BYTES: "100_000",
        DECODED_TIME: part,
    }
    stopped.start()
    for number in (*range(150), *range(20)):
        assert stopped.submit(profile_of(f"{number}", time_nanos=EPOCH + number)).status_code == 204
    lose_blobs(stopped)
    answer = stopped.merge()
    assert ("PGO-Left-Out" not in answer.headers) == is_read
    if is_read:
        assert tally(answer.content) == {f"{number}": 1 for number in range(150)}


def test_what_is_pushed_has_no_rows_before_it_may_be_refused(stopped: Server) -> None:
    stopped.environment |= {
        WARMING_PAUSE: "3600",
        "PGOF_WORKERS": "1",
        DECODED_BYTES: "100_000",
        DECODED_TIME: "1000000.0",
    }
    stopped.start()
    for number in range(40):
        profile = profile_of(f"{number}", time_nanos=EPOCH + number)
        assert_pushed(push(stopped, one(profile, "pushed")))
    lose_blobs(stopped)
    answer = stopped.merge(query={"service": "pushed"})
    assert 0 < len(tally(answer.content)) <= 5, "only what is still decoded"


def test_every_service_and_type_is_read(quick: Server) -> None:
    for service in ("one", "two"):
        for number in range(3):
            stack = f"{service}-{number}"
            quick.submit(profile_of(stack, time_nanos=EPOCH + number), query={"service": service})
        quick.submit(profile_of(f"{service}-wall", type_="wall"), query={"service": service, "type": "wall"})
    quick.wait_until_read_ahead()
    lose_blobs(quick)
    for service in ("one", "two"):
        merged = quick.merge(query={"service": service})
        assert tally(merged.content) == {f"{service}-{number}": 1 for number in range(3)}
        merged = quick.merge(query={"service": service, "type": "wall"})
        assert tally(merged.content) == {f"{service}-wall": 1}


def test_what_combines_leave_is_read(quick: Server) -> None:
    for name in "abc":
        quick.submit(profile_of(name))
    assert quick.combine().status_code == 200
    quick.wait_until_read_ahead()
    lose_blobs(quick)
    quick.submit(profile_of("d"))
    assert tally(quick.merge().content) == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_a_blob_that_cannot_be_read_keeps_no_other_from_it(stopped: Server) -> None:
    stopped.environment[WARMING_PAUSE] = "0.5"
    stopped.start()
    for number in range(3):
        stopped.submit(profile_of(f"{number}", time_nanos=EPOCH + number))
    for pid in workers_of(stopped):  # with what they have decoded
        os.kill(pid, signal.SIGKILL)
    (damaged,) = (blob for blob in stopped.blobs() if f"/{EPOCH + 1}-" in str(blob))
    damaged.write_bytes(b"no gzip")
    stopped.wait_until_read_ahead()
    lose_blobs(stopped)
    answer = stopped.merge()
    assert tally(answer.content) == {"0": 1, "2": 1}
    assert f"/{EPOCH + 1}-" in answer.headers["PGO-Left-Out"]


@pytest.mark.parametrize(
    "seconds", [0.03, *(pytest.param(seconds, marks=pytest.mark.exhaustive) for seconds in (0.0, 0.1, 0.3))]
)
def test_a_kill_while_profiles_are_read_loses_and_doubles_none(quick: Server, seconds: float) -> None:
    expected = {f"{number}": 1 for number in range(130)}
    for number in range(130):
        quick.submit(profile_of(f"{number}", time_nanos=EPOCH + number))
    time.sleep(seconds)
    quick.restart()
    assert tally(quick.merge().content) == expected
    quick.submit(profile_of("more", time_nanos=EPOCH + 1000))
    quick.wait_until_read_ahead()
    quick.restart()
    quick.wait_for_log("rows loaded")
    assert tally(quick.merge().content) == {**expected, "more": 1}


def test_a_worker_that_dies_while_it_reads_is_replaced(quick: Server) -> None:
    for number in range(40):
        quick.submit(profile_of(f"{number}", time_nanos=EPOCH + number))
        for pid in workers_of(quick) if number % 10 == 9 else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    quick.wait_until_read_ahead()
    assert tally(quick.merge().content) == {f"{number}": 1 for number in range(40)}


def test_nothing_is_read_ahead_while_the_workers_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgo_collector.merges.warming._PAUSE_SECONDS", 0.05)
    seen: list[str] = []

    async def use(store: Store) -> None:
        async with Workers(2, BOUNDS, store.folder.rows, lambda task, _: seen.append(task)) as workers:
            tasks = BlobTasks(workers, OwnWorkers(workers), store.catalog, lambda _: NO_SYMBOLS)
            warming = Warming(store, tasks)
            running = [asyncio.create_task(each) for each in (warming.run(), keep_busy(workers))]
            await asyncio.sleep(0.3)
            name = BlobName(Series("one", "cpu"), Identity(EPOCH, 64 * "0"))
            await store.write(store.catalog.add, (name, Facts(EPOCH, 1, 64 * "0", 1, 1)))
            await asyncio.sleep(0.5)
            assert (warming.behind, "read_rows" in seen) == (1, False)
            running[1].cancel()
            async with asyncio.timeout(60):
                while warming.behind:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.02)
            assert seen.count("read_rows") == 1
            running[0].cancel()
            await asyncio.wait(running)

    with DataFolder(tmp_path / "data") as folder:
        database = SQLite(folder.catalog)
        database.open()
        with Store(folder, database, folder_storage(folder.path)) as store:
            asyncio.run(use(store))


async def keep_busy(workers: Workers) -> None:
    """Have a worker do something all the time, until cancelled."""
    while True:
        await workers.run(time.sleep, 0.02)
