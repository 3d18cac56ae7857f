"""Reconciling the catalog with the stored blobs: the differences at a start, everything after a loss.

A process may be killed after it has written a blob and before the row, in a submit or a combine. After this,
every stored profile is counted once. Blobs that a combine has retired are left to the upkeep, which has the
leases that deleting them needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import structlog

from pgo_collector.catalog.catalog import Combined
from pgo_collector.catalog.leases import NO_LEASE
from pgo_collector.engine.tasks import Unreadable
from pgo_collector.errors import InputsDamaged, TaskOutOfMemory, WorkerUnavailable
from pgo_collector.model.facts import Announce, Facts
from pgo_collector.model.series import BlobName
from pgo_collector.model.times import END_OF_1970
from pgo_collector.starting.disk_diff import Differences, find_differences
from pgo_collector.starting.progress import Progress
from pgo_collector.store.folder import log_unknown_file
from pgo_collector.store.store import Store
from pgo_collector.submits.commit import UndatedTimes
from pgo_collector.workers.bulk import Bulk

# Blobs that a worker reads in one task, and blobs that are counted in one transaction.
_BATCH = 64
_TRANSACTION = 2048
_log = structlog.get_logger()


class Reconciliation:
    """Makes the catalog count every profile on disk once; blobs are read in `bulk`.

    `announcers` make the events of the profiles that are counted now.
    """

    def __init__(
        self,
        store: Store,
        bulk: Bulk,
        announcers: Sequence[Announce] = (),
        progress: Progress | None = None,
    ) -> None:
        self._store = store
        self._bulk = bulk
        self._announcers = announcers
        self._progress = progress or Progress()

    async def run(self) -> None:
        """Read the blobs that differ from the catalog, and no others. Raises OSError."""
        store = self._store
        found = await asyncio.to_thread(self._compare)
        damaged = await self._adopt_combined(found.combined, found.unknown)
        await self._adopt_profiles(found.profiles)
        for name, inputs in damaged.items():
            await self._adopt_damaged(name, found.combined[name], inputs)
        await asyncio.to_thread(self._log_missing, found.missing)
        await asyncio.to_thread(UndatedTimes(store.blobs.storage).drop_all)

    def _compare(self) -> Differences:
        """Return how the storage and the catalog differ."""
        storage = self._store.blobs.storage
        self._progress.begin("checking the catalog")
        self._store.catalog.database.check()
        self._progress.begin("comparing folders with the catalog")
        with self._store.catalog.rows() as rows:
            found = find_differences(storage.lister(), rows, self._progress.advance)
        for name in found.foreign:
            log_unknown_file(storage.where(name))
        for error in storage.delete(found.orphans).values():
            raise error
        storage.remove_folders(found.empty)
        self._find_combined(found)
        self._find_inconsistent(found)
        return found

    def _find_combined(self, found: Differences) -> None:
        """Restore missing .inputs of combined blobs, and move these blobs from `profiles` to `combined`.

        A combined blob is known by its seal, which has the text of .inputs. If the seal is damaged, the
        catalog has the list.
        """
        self._progress.begin("looking for seals", len(found.profiles))
        singles = []
        for start in range(0, len(found.profiles), _TRANSACTION):
            some = found.profiles[start : start + _TRANSACTION]
            restored = self._restore_inputs(some)
            found.combined |= restored
            found.unknown |= restored.keys()
            singles += [name for name in some if name not in restored]
            self._progress.advance(len(some))
        found.profiles = singles
        found.combined |= (restored := self._restore_inputs([*found.without_inputs]))
        for name, id_ in found.without_inputs.items():
            if name not in restored:
                size = self._store.blobs.write_inputs(
                    name, self._store.catalog.profiles_counted_by([id_]).get(id_, [name])
                )
                _log_restored(name, "the catalog")
                found.combined[name] = size

    def _restore_inputs(self, names: Sequence[BlobName]) -> dict[BlobName, int]:
        """Restore the .inputs of blobs from their seals; return the size in bytes of each, by blob."""
        restored = self._store.blobs.restore_inputs(names)
        for name in restored:
            _log_restored(name, "the seal")
        return restored

    def _find_inconsistent(self, found: Differences) -> None:
        """Add the blobs that don't count all their profiles, since rows of the catalog were lost."""
        self._progress.begin("counting profiles")
        missing = set(found.missing)
        for blob in self._store.catalog.inconsistent_blobs():
            if blob.id in missing or blob.name in found.combined:
                continue
            _log.warning("profile recounted", blob=str(blob.name))
            if blob.inputs_size:
                found.combined[blob.name] = blob.inputs_size
            else:
                if (
                    self._store.catalog.counting_blob(blob.name) is not None
                ):  # a combined blob counts it already
                    self._store.catalog.drop([blob])
                found.profiles.append(blob.name)

    def _log_missing(self, ids: list[int]) -> None:
        """Log the missing blobs that still count; a combined blob may have replaced some meanwhile."""
        for blob in self._store.catalog.with_ids(ids):
            if blob.live:
                _log.error("stored profile missing", blob=str(blob.name))

    async def _adopt_combined(
        self, changed: dict[BlobName, int], unknown: set[BlobName]
    ) -> dict[BlobName, set[BlobName]]:
        """Make combined blobs live in place of the blobs inside them, the largest first.

        Returns the ones that can't be read, with the profiles inside them. Whether they are needed is known
        only when all other blobs are counted: see `_adopt_damaged`.
        """
        self._progress.begin("taking in combined profiles", len(changed))
        inputs_by_name: dict[BlobName, set[BlobName]] = {}
        for name in changed:
            try:
                inputs_by_name[name] = await asyncio.to_thread(self._store.blobs.read_inputs, name) | {name}
            except (InputsDamaged, OSError) as error:
                _log_not_counted(name, str(error))
        damaged = {}
        for name in sorted(inputs_by_name, key=lambda name: (-len(inputs_by_name[name]), str(name))):
            self._progress.advance()
            inputs = inputs_by_name[name]
            inside = set((await asyncio.to_thread(self._store.catalog.counting_ids, inputs)).values())
            counted = await asyncio.to_thread(self._store.catalog.profiles_counted_by, inside)
            if any(not inputs.issuperset(profiles) for profiles in counted.values()):
                # Its own name is left out: no client has had the merge of a combine that wasn't committed.
                others = inputs - {name}
                if name in unknown and await asyncio.to_thread(self._are_there, others):
                    _log.info("duplicate profile deleted", blob=str(name))
                    await asyncio.to_thread(self._store.blobs.discard, name)
                else:
                    _log_not_counted(name, "it overlaps with others")
            elif (facts := await self._read(name)) is None:
                damaged[name] = inputs
            else:
                combined = Combined(name, facts, changed[name], inputs)
                await self._store.write(self._store.catalog.replace, NO_LEASE, combined, inside)
                _log.info("combined profile recovered", blob=str(name), blobs=len(inside))
        return damaged

    async def _adopt_profiles(self, names: list[BlobName]) -> None:
        """Count the profiles that aren't counted, and delete those that a combined blob counts already.

        A profile that can't be read is counted, too, so that merges say that they leave it out. A profile
        from after the catalog was made gets its event now: the process was killed before it was counted.
        """
        self._progress.begin("taking in profiles", len(names))
        new = []
        for start in range(0, len(names), _TRANSACTION):
            some = names[start : start + _TRANSACTION]
            uncounted = await self._store.write(self._uncounted, some)
            new += uncounted
            self._progress.advance(len(some) - len(uncounted))
        made = await asyncio.to_thread(self._store.catalog.made_nanos)
        for start in range(0, len(new), _TRANSACTION):
            entries = await self._read_all(new[start : start + _TRANSACTION])
            events = [
                event
                for announce in self._announcers
                for name, known in entries
                for event in announce(name, known)
                if self._store.blobs.written_nanos(name) > made
            ]
            await self._store.write(self._store.catalog.add, *entries, events=events)
        if new:
            _log.info("profiles recovered", count=len(new))

    def _are_there(self, names: Collection[BlobName]) -> bool:
        """Return whether each profile is counted, by a blob that is there."""
        counted = self._store.counted(names)
        return all(counted.get(name, False) for name in names)

    def _uncounted(self, names: Sequence[BlobName]) -> list[BlobName]:
        """Return the profiles that no blob counts; delete the files of those that a blob on disk counts."""
        counted = self._store.counted(names)
        spare = {name for name, is_there in counted.items() if is_there}
        for error in self._store.blobs.discard_all(spare).values():
            raise error
        self._store.blobs.remove_folders(spare)
        for name in counted.keys() - spare:
            _log.error("profile not counted", blob=str(name))
        return [name for name in names if name not in counted]

    async def _read_all(self, names: Sequence[BlobName]) -> list[tuple[BlobName, Facts]]:
        """Return the facts of blobs, in their order; of one that can't be read, those in its name."""
        batches = [names[start : start + _BATCH] for start in range(0, len(names), _BATCH)]
        found: dict[BlobName, Facts | None] = {}

        async def read(batch: Sequence[BlobName]) -> None:
            found.update(zip(batch, await self._read_batch(batch, len(names)), strict=True))
            self._progress.advance(len(batch))

        await asyncio.gather(*(read(batch) for batch in batches))
        return [(name, found[name] or self._facts_from_name(name)) for name in names]

    async def _adopt_damaged(self, name: BlobName, inputs_size: int, inputs: set[BlobName]) -> None:
        """Count an unreadable combined blob if it has profiles that no other blob has; else delete it."""
        missing = inputs - (await asyncio.to_thread(self._store.catalog.counting_ids, inputs)).keys()
        if missing <= {name}:
            _log.warning("damaged profile deleted", blob=str(name))
            await asyncio.to_thread(self._store.blobs.discard, name)
        else:
            facts = self._facts_from_name(name)
            combined = Combined(name, facts, inputs_size, missing)
            await self._store.write(self._store.catalog.replace, NO_LEASE, combined, ())

    async def _read(self, name: BlobName) -> Facts | None:
        """Return the facts of a blob; None if it can't be read or isn't what its name says."""
        (facts,) = await self._read_batch([name], among=1)
        return facts

    async def _read_batch(self, names: Sequence[BlobName], among: int) -> list[Facts | None]:
        """Return the facts of several blobs, as `_read` does; they are a part of a job of `among` blobs."""
        texts = [(str(name), name.series.type) for name in names]
        try:
            found = await self._bulk.inspect(self._store.blobs.storage, texts, among)
        except (WorkerUnavailable, TaskOutOfMemory) as error:
            if len(names) > 1:  # one of them may be the cause, so the others are read without it
                return [await self._read(name) for name in names]
            found = [Unreadable(str(error))]
        return [_checked(name, facts) for name, facts in zip(names, found, strict=True)]

    def _facts_from_name(self, name: BlobName) -> Facts:
        """Return what is known of a blob that can't be read: time and digest, from its name, and its size."""
        return Facts(name.identity.time_nanos, 0, name.identity.digest, self._store.blobs.size(name), 0)


def _checked(name: BlobName, facts: Facts | Unreadable) -> Facts | None:
    if isinstance(facts, Unreadable):
        reason = facts.reason
    elif facts.digest == name.identity.digest and _may_be_of(facts.time_nanos, name.identity.time_nanos):
        return facts
    else:
        reason = "its content isn't what its name says"
    _log.warning("stored profile damaged", blob=str(name), reason=reason)
    return None


def _may_be_of(said_nanos: int, stored_nanos: int) -> bool:
    """Return whether a profile that says a time may be stored with another one, both in ns since 1970.

    It is stored with the time at which it came if it said none, as in 1970, or one that was too far ahead.
    """
    return said_nanos >= stored_nanos or 0 <= said_nanos < END_OF_1970


def _log_restored(name: BlobName, source: str) -> None:
    _log.warning("inputs restored", blob=str(name), source=source)


def _log_not_counted(name: BlobName, reason: str) -> None:
    _log.error("combined profile not counted", blob=str(name), reason=reason)
