"""The store in this process, with workers of its own, in tests that need an exact order of steps."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pgo_collector.blobs.storage import MISSING
from pgo_collector.catalog.catalog import Combined
from pgo_collector.catalog.leases import NO_LEASE, NoLeases
from pgo_collector.engine.recent_profiles import rows_owner
from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.engine.tasks import MergeResult, drop_rows
from pgo_collector.engine.validation import SubmittedBody, validate_bodies
from pgo_collector.errors import CatalogBusy, CatalogGone, NotStored, StorageSlow
from pgo_collector.merges.combining import combine_blobs
from pgo_collector.merges.kept import KeptMerges
from pgo_collector.merges.making import OpenMerge, make_merge
from pgo_collector.merges.merges import Merges
from pgo_collector.model.facts import Facts
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import EXACT, Coarse, Selection
from pgo_collector.model.series import BlobName, Identity, Series
from pgo_collector.serve.app import OpenStore
from pgo_collector.serve.opened import open_store
from pgo_collector.settings import Settings
from pgo_collector.store.folder import DataFolder
from pgo_collector.store.garbage import delete_retired
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store
from pgo_collector.submits import commit
from pgo_collector.submits.commit import Submission, Submitted
from pgo_collector.submits.submits import SubmitBatcher

from tests.faults.stacks import DAY, EPOCH, profile_of, tally
from tests.server import Server

SERIES = Series("default", CPU)
SELECTION = Selection.of(SERIES)


def blob_file(store: Store, name: BlobName) -> Path:
    return Path(store.blobs.storage.where(str(name)))


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[OpenStore]:
    with DataFolder(directory) as folder:
        url = Server.catalogs.settings(directory).get("PGOF_CATALOG", "")
        async with open_store(Settings(directory=directory, workers=2, catalog=url), folder) as here:
            yield here


async def submit(here: OpenStore, profile: bytes) -> Facts:
    async with here.store.part() as part:
        part.write_bytes(profile)
        return (await here.commits.add(await submission(here, part))).facts


async def submission(here: OpenStore, part: Path) -> Submission:
    """Return the profile in a file, validated."""
    batcher = SubmitBatcher(here.tasks.workers, Settings().limits, validate_bodies)
    validated = await batcher.validate(SubmittedBody(part, CPU))
    return Submission(part, SERIES, validated.facts)


def sizes_of_transactions(here: OpenStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of profiles of each transaction from now on, when it is stored."""
    sizes: list[int] = []
    commit = here.commits.group_commit.commit

    def noted(submissions: Sequence[Submission]) -> list[Submitted | Exception]:
        sizes.append(len(submissions))
        return commit(submissions)

    monkeypatch.setattr(here.commits.group_commit, "commit", noted)
    return sizes


def merges_of(here: OpenStore, kept: KeptMerges | None = None) -> Merges:
    locks = Locks(here.store.catalog.database.leases)
    return Merges(here.store, here.tasks, locks, kept or KeptMerges(here.store.folder.merged, 10))


async def merged(merges: Merges, *, combine: bool = False) -> bytes:
    form = PLAIN_RENDITION
    made = await (merges.combine if combine else merges.current)(SELECTION, form)
    return made.read()


def test_a_merge_that_is_submitted_while_it_is_combined_counts_too(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here, here.store.part() as part:
            for name in ("a", "b"):
                await submit(here, profile_of(name))
            merges = merges_of(here)
            part.write_bytes(await merged(merges))
            pending = await submission(here, part)
            may_go_on = threading.Event()
            blocked = asyncio.create_task(here.store.write(may_go_on.wait))
            counted = asyncio.create_task(here.store.write(here.commits.group_commit.commit, [pending]))
            await asyncio.sleep(0)
            combined = asyncio.create_task(merged(merges, combine=True))
            await asyncio.sleep(1)
            may_go_on.set()
            await asyncio.gather(blocked, counted)
            assert tally(await combined) == {"a": 2, "b": 2}
            assert tally(await merged(merges)) == {"a": 2, "b": 2}
            assert tally(await merged(merges, combine=True)) == {"a": 2, "b": 2}

    asyncio.run(play())


def timeless(stack: str) -> bytes:
    """Return a profile that doesn't say when it was taken."""
    return profile_of(stack, time_nanos=0)


async def submitted_at_once(here: OpenStore, profiles: Sequence[bytes]) -> list[Submitted | BaseException]:
    """Submit profiles so that all wait until the last one does; return the results."""
    may_go_on = threading.Event()
    blocked = asyncio.create_task(here.store.write(may_go_on.wait))

    async def stored(profile: bytes) -> Submitted:
        async with here.store.part() as part:
            part.write_bytes(profile)
            return await here.commits.add(await submission(here, part))

    tasks = [asyncio.create_task(stored(profile)) for profile in profiles]
    await here.tasks.workers.ping()
    while here.tasks.workers.busy:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)
    may_go_on.set()
    await blocked
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_a_transaction_waits_for_profiles_that_are_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here, here.store.part() as one, here.store.part() as other:
            one.write_bytes(profile_of("a"))
            other.write_bytes(profile_of("b"))
            submissions = [await submission(here, one), await submission(here, other)]
            together = sizes_of_transactions(here, monkeypatch)
            monkeypatch.setattr(type(here.store.catalog.database), "gather_seconds", 60.0)
            is_validated = asyncio.Event()

            async def second() -> None:
                with here.commits.expecting():
                    await is_validated.wait()
                await here.commits.add(submissions[1])

            tasks = [asyncio.create_task(second()), asyncio.create_task(here.commits.add(submissions[0]))]
            await asyncio.sleep(0.2)
            assert not together
            is_validated.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 30)
            assert together == [2]
            await asyncio.wait_for(submit(here, profile_of("c")), 30)  # none is expected

    asyncio.run(play())


def test_senders_that_take_turns_with_a_transaction_share_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here:
            sent = []
            for name in "abc":
                part = here.store.folder.new_part()
                part.write_bytes(profile_of(name))
                sent.append(await submission(here, part))
            together = sizes_of_transactions(here, monkeypatch)
            has_begun, may_go_on = threading.Event(), threading.Event()
            commit = here.commits.group_commit.commit

            def held(submissions: Sequence[Submission]) -> list[Submitted | Exception]:
                has_begun.set()
                may_go_on.wait()
                return commit(submissions)

            monkeypatch.setattr(here.commits.group_commit, "commit", held)
            monkeypatch.setattr("pgo_collector.submits.commit._PATIENCE", 600.0)
            monkeypatch.setattr(type(here.store.catalog.database), "gather_seconds", 60.0)
            first = asyncio.create_task(here.commits.add(sent[0]))
            await asyncio.to_thread(has_begun.wait)
            second = asyncio.create_task(here.commits.add(sent[1]))  # waits while the first is stored
            await asyncio.sleep(0.1)
            may_go_on.set()
            await asyncio.wait_for(first, 30)
            await asyncio.sleep(0.1)  # the next profile of the same sender takes a while
            assert together == [1]
            await asyncio.wait_for(asyncio.gather(second, here.commits.add(sent[2])), 30)
            assert together == [1, 2]

    asyncio.run(play())


def test_a_transaction_that_is_full_waits_for_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here:
            monkeypatch.setattr("pgo_collector.submits.commit._MOST_AT_ONCE", 1)
            monkeypatch.setattr(type(here.store.catalog.database), "gather_seconds", 60.0)
            with here.commits.expecting():
                await asyncio.wait_for(submit(here, profile_of("a")), 30)

    asyncio.run(play())


def test_more_than_one_transaction_takes_wait_for_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here:
            sizes = sizes_of_transactions(here, monkeypatch)
            monkeypatch.setattr("pgo_collector.submits.commit._MOST_AT_ONCE", 4)
            for round_ in range(5):
                names = [f"{round_} {number}" for number in range(10)]
                results = await asyncio.wait_for(submitted_at_once(here, [*map(profile_of, names)]), 60)
                assert all(isinstance(result, Submitted) for result in results)
            assert sum(sizes) == 50
            assert max(sizes) <= 4
            assert min(sizes) > 0

    asyncio.run(play())


def test_the_same_profile_submitted_twice_at_once_is_stored_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here:
            sent = [profile_of("a"), timeless("b"), profile_of("a"), profile_of("c"), timeless("b")]
            results = await submitted_at_once(here, sent)
            stored = [result for result in results if isinstance(result, Submitted)]
            assert sorted((result.facts.digest, result.is_new) for result in stored) == sorted(
                (digest, is_new)
                for digest, is_new in zip(
                    [hashlib.sha256(gzip.decompress(profile)).hexdigest() for profile in sent],
                    [True, True, False, True, False],
                    strict=True,
                )
            )
            assert len({result.name for result in stored}) == 3
            assert tally(await merged(merges_of(here))) == {"a": 1, "b": 1, "c": 1}
            assert not list(here.store.folder.incoming.iterdir())

    asyncio.run(play())


def test_a_failed_submit_fails_alone_in_its_group(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here:
            await submit(here, profile_of("a"))
            days = [EPOCH, EPOCH + DAY, EPOCH + 2 * DAY]
            day = blob_file(here.store, BlobName(SERIES, Identity(days[1], "ab" * 32))).parent
            day.write_text("not a folder")
            sent = [profile_of(name, time_nanos=time) for name, time in zip("bcd", days, strict=True)]
            first, second, third = await submitted_at_once(here, sent)
            assert isinstance(first, Submitted)
            assert isinstance(second, NotStored)
            assert isinstance(third, Submitted)
            assert tally(await merged(merges_of(here))) == {"a": 1, "b": 1, "d": 1}

    asyncio.run(play())


def test_an_undated_profile_has_one_time_for_all_attempts_to_store_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's blob stays, since its transaction may have been committed all the same."""

    class Gone(Exception):
        sqlstate = "57P01"

    def fail(*_: object) -> None:
        raise sa.exc.OperationalError("COMMIT", {}, Gone())

    async def play() -> None:
        async with opened(tmp_path) as here:
            with monkeypatch.context() as patch:
                patch.setattr(here.store.catalog.database.changes, "note", fail)
                with pytest.raises(CatalogGone):
                    await submit(here, timeless("a"))
            (left,) = (tmp_path / "blobs").rglob("*.pb.gz")
            assert here.store.catalog.count(SELECTION) == 0
            await submit(here, timeless("a"))
            assert [*(tmp_path / "blobs").rglob("*.pb.gz")] == [left]
            assert not [*(tmp_path / "undated").iterdir()]
        Server.catalogs.drop(tmp_path)
        async with opened(tmp_path) as here:
            assert tally(await merged(merges_of(here))) == {"a": 1}

    asyncio.run(play())


def test_all_submits_of_a_group_fail_with_the_catalog(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here:
            await submit(here, profile_of("a"))
            with here.store.catalog.writing() as connection:
                connection.exec_driver_sql("ALTER TABLE profiles RENAME COLUMN blob_id TO elsewhere")
            results = await submitted_at_once(here, [profile_of("a"), profile_of("b")])
            assert [type(result) for result in results] == [NotStored, NotStored]
            with here.store.catalog.writing() as connection:
                connection.exec_driver_sql("ALTER TABLE profiles RENAME COLUMN elsewhere TO blob_id")
            results = await submitted_at_once(here, [profile_of("a"), profile_of("b")])
            assert [isinstance(result, Submitted) and result.is_new for result in results] == [False, True]
            assert tally(await merged(merges_of(here))) == {"a": 1, "b": 1}

    asyncio.run(play())


class Conflict(Exception):
    sqlstate = "40001"


@pytest.mark.parametrize("conflicts", [2, 4, 1000])
def test_what_meets_a_change_of_another_collector_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    """First together, and then each alone: one of them may be in the other collector's hands."""
    monkeypatch.setattr(commit, "_PAUSE_SECONDS", 0.001)
    left = iter(range(conflicts))

    async def play() -> None:
        async with opened(tmp_path) as here:
            changes = here.store.catalog.database.changes
            note = changes.note

            def meet(*of: Any) -> None:
                if next(left, None) is not None:
                    raise sa.exc.OperationalError("INSERT", {}, Conflict())
                note(*of)

            with monkeypatch.context() as patch:
                patch.setattr(changes, "note", meet)
                results = await submitted_at_once(here, [profile_of("a"), profile_of("b")])
            if conflicts == 1000:
                assert [type(result) for result in results] == [CatalogBusy] * 2
                assert "try again" in str(results[0])
                results = await submitted_at_once(here, [profile_of("a"), profile_of("b")])
            assert [isinstance(result, Submitted) and result.is_new for result in results] == [True, True]
            assert tally(await merged(merges_of(here))) == {"a": 1, "b": 1}

    asyncio.run(play())


def test_a_profile_that_is_just_being_deleted_is_to_be_sent_again(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here:
            await submit(here, profile_of("a"))
            catalog = here.store.catalog
            await here.store.write(catalog.retire, NO_LEASE, catalog.live(SELECTION))
            busy, stored = await submitted_at_once(here, [profile_of("a"), profile_of("b")])
            assert isinstance(busy, CatalogBusy)
            assert "send it again" in str(busy)
            assert isinstance(stored, Submitted)
            await delete_retired(here.store, NO_LEASE, *SERIES[:2])
            await submit(here, profile_of("a"))
            assert tally(await merged(merges_of(here))) == {"a": 1, "b": 1}

    asyncio.run(play())


def test_a_retired_blob_stays_until_what_replaced_it_is_there(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(tmp_path) as here:
            facts = [await submit(here, profile_of(name)) for name in ("a", "b")]
            blobs = here.store.catalog.live(SELECTION)
            new = BlobName(SERIES, Identity(0, "ab" * 32))
            inputs = {BlobName(SERIES, Identity(fact.time_nanos, fact.digest)) for fact in facts} | {new}
            combined = Combined(new, Facts(0, 0, "ab" * 32, 0, 0), 1, inputs)
            here.store.catalog.replace(NO_LEASE, combined, {blob.id for blob in blobs})
            await delete_retired(here.store, NO_LEASE, SERIES.service, SERIES.type)
            assert all(blob_file(here.store, blob.name).exists() for blob in blobs)
            blob_file(here.store, new).parent.mkdir(parents=True)
            blob_file(here.store, new).write_bytes(b"")
            await delete_retired(here.store, NO_LEASE, SERIES.service, SERIES.type)
            assert not any(blob_file(here.store, blob.name).exists() for blob in blobs)
            assert not here.store.catalog.retired_owners()

    asyncio.run(play())


def test_while_a_request_to_delete_may_still_arrive_names_of_blobs_stay_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would delete a blob that was stored again under the same name."""
    lease = NoLeases(begins_settled=False).take("default/cpu")

    async def play() -> None:
        async with opened(tmp_path) as here:
            await submit(here, profile_of("a"))
            catalog, storage = here.store.catalog, here.store.blobs.storage
            (blob,) = catalog.live(SELECTION)
            await here.store.write(catalog.retire, NO_LEASE, [blob])
            await delete_retired(here.store, lease, *SERIES[:2])
            assert storage.size(str(blob.name)) == MISSING
            assert [each.name for each in catalog.retired(*SERIES[:2])] == [blob.name]
            with pytest.raises(CatalogBusy):
                await submit(here, profile_of("a"))
            settled = NoLeases().take("default/cpu")
            with monkeypatch.context() as patch:
                patch.setattr(
                    type(storage), "delete", lambda _, names, **__: dict.fromkeys(names, StorageSlow("slow"))
                )
                await delete_retired(here.store, settled, *SERIES[:2])
            assert not settled.is_settled
            assert [each.name for each in catalog.retired(*SERIES[:2])] == [blob.name]
            await delete_retired(here.store, NO_LEASE, *SERIES[:2])
            assert catalog.retired(*SERIES[:2]) == []
            await submit(here, profile_of("a"))
            assert tally(await merged(merges_of(here))) == {"a": 1}

    asyncio.run(play())


def test_a_cancelled_write_is_waited_for_if_it_has_begun(tmp_path: Path) -> None:
    """The caller deletes the write's input when it ends; a write that hasn't begun is never made."""

    async def play() -> list[str]:
        done: list[str] = []
        has_begun, may_go_on = threading.Event(), threading.Event()

        def slow() -> None:
            has_begun.set()
            may_go_on.wait()
            done.append("begun")

        async with opened(tmp_path) as here:
            writes = [asyncio.create_task(here.store.write(slow))]
            await asyncio.to_thread(has_begun.wait)
            writes.append(asyncio.create_task(here.store.write(done.append, "waiting")))
            await asyncio.sleep(0)
            for write in writes:
                write.cancel()
            finished, _ = await asyncio.wait(writes, timeout=0.2)
            assert finished == {writes[1]}
            may_go_on.set()
            assert all(
                isinstance(outcome, asyncio.CancelledError)
                for outcome in await asyncio.gather(*writes, return_exceptions=True)
            )
        return done

    assert asyncio.run(play()) == ["begun"]


def test_a_cancelled_merge_is_kept_as_a_whole_if_that_has_begun(tmp_path: Path) -> None:
    """The file that becomes the kept merge is deleted when the request ends."""
    has_begun, may_go_on = threading.Event(), threading.Event()

    class Slow(KeptMerges):
        def keep(self, fingerprint: str, part: Path, made: MergeResult, coarse: Coarse) -> OpenMerge:
            has_begun.set()
            may_go_on.wait()
            return super().keep(fingerprint, part, made, coarse)

    async def play() -> None:
        async with opened(tmp_path) as here:
            await submit(here, profile_of("a"))
            kept = Slow(here.store.folder.merged, 10)
            asking = asyncio.create_task(merged(merges_of(here, kept)))
            await asyncio.to_thread(has_begun.wait)
            asking.cancel()
            finished, _ = await asyncio.wait([asking], timeout=0.2)
            assert not finished
            may_go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await asking
            (file,) = here.store.folder.merged.iterdir()
            opened_merge = kept.open(file.stem, EXACT)
            assert opened_merge is not None
            assert tally(opened_merge.read()) == {"a": 1}
            assert not list(here.store.folder.incoming.iterdir())

    asyncio.run(play())


def test_an_answer_tells_of_the_moment_at_which_its_selection_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the merge is made, a combine makes one profile of what is in the selection and what is not."""
    plain = PLAIN_RENDITION

    async def play() -> None:
        async with opened(tmp_path) as here:
            for number, name in enumerate("ab"):
                await submit(here, profile_of(name, time_nanos=EPOCH + number * DAY))
            selection = replace(SELECTION, begin=EPOCH + DAY)
            merges = merges_of(here)
            reads = 0
            resolve = here.store.catalog.resolve

            def counted(*args: Any) -> Any:
                nonlocal reads
                reads += 1
                return resolve(*args)

            async def overtaken(*args: Any) -> Any:
                made = await make_merge(*args)
                await combine_blobs(here.store, here.tasks, NO_LEASE, here.store.catalog.live(SELECTION))
                return made

            monkeypatch.setattr(here.store.catalog, "resolve", counted)
            monkeypatch.setattr("pgo_collector.merges.merges.make_merge", overtaken)
            made = await merges.current(selection, plain)
            assert tally(made.read()) == {"b": 1}
            assert made.coarse == EXACT
            assert reads == 1
            monkeypatch.undo()
            later = await merges.current(selection, plain)
            assert tally(later.read()) == {"a": 1, "b": 1}
            assert later.coarse.blobs

    asyncio.run(play())


def test_a_merge_is_of_what_counts_when_its_turn_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the read of the catalog and the merge, a combine replaces the blobs and deletes their files."""

    async def play() -> None:
        async with opened(tmp_path) as here:
            for name in "ab":
                await submit(here, profile_of(name))
            merges = merges_of(here)
            resolve, loop = here.store.catalog.resolve, asyncio.get_running_loop()

            def overtaken(*args: Any) -> Any:
                resolved = resolve(*args)
                monkeypatch.undo()
                asyncio.run_coroutine_threadsafe(combine_and_forget(), loop).result()
                return resolved

            async def combine_and_forget() -> None:
                await merged(merges, combine=True)
                owner = rows_owner("default", CPU)
                await here.tasks.workers.run_for(
                    owner, drop_rows, owner, 0
                )  # or the worker still had the rows

            monkeypatch.setattr(here.store.catalog, "resolve", overtaken)
            assert tally(await merged(merges)) == {"a": 1, "b": 1}

    asyncio.run(play())
