"""Brings the catalog in line with the blobs on disk: at a start the difference, after a loss all of it.

A process may be killed between a blob and its row, for a submit or a combine, and before it has deleted
what a combine retired. Whatever it was, afterwards every profile on disk is counted once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from pgo_collector.engine.tasks import Unreadable, inspect_all
from pgo_collector.errors import InputsDamaged, TaskOutOfMemory, WorkerUnavailable
from pgo_collector.model.blob_names import BlobName
from pgo_collector.model.facts import Facts
from pgo_collector.store.disk_diff import Differences, find_differences
from pgo_collector.store.folder import remove_empty
from pgo_collector.store.garbage import delete_retired
from pgo_collector.store.store import Store

# So many blobs go to a worker together, and so many are counted in one transaction.
_BATCH = 64
_TRANSACTION = 2048
_log = structlog.get_logger()


@dataclass(slots=True)
class Progress:
    """How far a start is: what it does, and of how many things it has done how many; 0 if that isn't known.

    Other threads read it while it changes.
    """

    step: str = "opening the catalog"
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"{self.step}: {self.done:,} of {self.total:,}" if self.total else self.step

    def begin(self, step: str, total: int = 0) -> None:
        """The next step begins."""
        self.step, self.done, self.total = step, 0, total

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count


async def reconcile(store: Store, progress: Progress | None = None) -> None:
    """Does all of it; only blobs that the catalog doesn't know as they are get read. Raises OSError."""
    progress = progress or Progress()
    found = await asyncio.to_thread(_look, store, progress)
    damaged = await _adopt_combined(store, found.combined, found.unknown, progress)
    await _adopt_profiles(store, found.profiles, progress)
    for name, inputs in damaged.items():
        await _adopt_damaged(store, name, found.combined[name], inputs)
    progress.begin("deleting what was replaced")
    await delete_retired(store)
    await store.write(store.catalog.drop_empty_series)
    await asyncio.to_thread(_tell_missing, store, found.missing)
    await asyncio.to_thread(_sweep_merged, store)


def _look(store: Store, progress: Progress) -> Differences:
    """Where disk and catalog differ, after what was never finished is swept."""
    progress.begin("checking the catalog")
    store.catalog.check()
    store.folder.sweep()
    progress.begin("comparing folders with the catalog")
    with store.catalog.rows() as rows:
        found = find_differences(store.folder.blobs, rows, progress.advance)
    for path in found.strangers:
        _log.warning("not ours, ignored", file=str(path))
    for path in found.orphans:
        path.unlink()
    for folder in found.empty:
        remove_empty(folder, store.folder.blobs)
    _find_combined(store, found, progress)
    _find_miscounting(store, found, progress)
    return found


def _find_combined(store: Store, found: Differences, progress: Progress) -> None:
    """Tells combined blobs that have lost their .inputs by their seals, from which they get them again.

    One of an earlier version may have no seal: then what the catalog says of it is all there is.
    """
    progress.begin("looking for seals", len(found.profiles))
    singles = []
    for name in found.profiles:
        size = _restored(store, name)
        if size:
            found.combined[name] = size
            found.unknown.add(name)
        else:
            singles.append(name)
        progress.advance()
    found.profiles = singles
    for name, id_ in found.unlisted.items():
        size = _restored(store, name)
        if not size:
            size = store.blobs.write_inputs(name, store.catalog.counted_by([id_]).get(id_, [name]))
            _log.warning("the .inputs of a combined profile are made anew from the catalog", blob=str(name))
        found.combined[name] = size


def _restored(store: Store, name: BlobName) -> int:
    """The size of the .inputs that a blob gets from its seal, 0 if it has none that can be read."""
    try:
        size = store.blobs.restore_inputs(name)
    except OSError:
        return 0
    if size:
        _log.warning("the .inputs of a combined profile are made anew from its seal", blob=str(name))
    return size


def _find_miscounting(store: Store, found: Differences, progress: Progress) -> None:
    """Has blobs taken in anew that don't count what they have, since rows of the catalog are lost."""
    progress.begin("counting profiles")
    missing = set(found.missing)
    for blob in store.catalog.miscounting():
        if blob.id in missing or blob.name in found.combined:
            continue
        _log.warning("a stored profile isn't counted as it should be, taken in anew", blob=str(blob.name))
        if blob.inputs_size:
            found.combined[blob.name] = blob.inputs_size
        else:
            if store.catalog.counting(blob.name) is not None:  # a combined one counts it: once is enough
                store.catalog.drop([blob])
            found.profiles.append(blob.name)


def _tell_missing(store: Store, ids: list[int]) -> None:
    """Of blobs that weren't there. Some may no longer count, since there is one in which they are."""
    for blob in store.catalog.with_ids(ids):
        if blob.live:
            _log.error("a stored profile is missing", blob=str(blob.name))


def _sweep_merged(store: Store) -> None:
    store.folder.sweep_merged(store.catalog.merges())


async def _adopt_combined(
    store: Store, changed: dict[BlobName, int], unknown: set[BlobName], progress: Progress
) -> dict[BlobName, set[BlobName]]:
    """Makes combined blobs live in place of what is inside them, the largest first.

    Returns those that can't be read, with what is inside them: whether anything of it is to be had only
    there is seen when all others are counted.
    """
    progress.begin("taking in combined profiles", len(changed))
    inputs_of: dict[BlobName, set[BlobName]] = {}
    for name in changed:
        try:
            inputs_of[name] = await asyncio.to_thread(store.blobs.read_inputs, name) | {name}
        except (InputsDamaged, OSError) as error:
            _log.error("combined profile left alone", blob=str(name), reason=str(error))
    damaged = {}
    for name in sorted(inputs_of, key=lambda name: (-len(inputs_of[name]), str(name))):
        progress.advance()
        inputs = inputs_of[name]
        inside = set((await asyncio.to_thread(store.catalog.owners, inputs)).values())
        counted_by = await asyncio.to_thread(store.catalog.counted_by, inside)
        if any(not inputs.issuperset(profiles) for profiles in counted_by.values()):
            # Its own name is left out: nobody was given the merge of a combine that wasn't committed.
            others = inputs - {name}
            if name in unknown and others <= await asyncio.to_thread(store.counted, others):
                _log.info("combined profile deleted, another one has all of it", blob=str(name))
                await asyncio.to_thread(store.blobs.discard, name)
            else:
                _log.error("combined profile left alone, it overlaps with others", blob=str(name))
        elif (facts := await _read(store, name)) is None:
            damaged[name] = inputs
        else:
            await store.write(store.catalog.replace, name, facts, changed[name], inputs, inside)
            _log.info("combined profile taken in", blob=str(name), blobs=len(inside))
    return damaged


async def _adopt_profiles(store: Store, names: list[BlobName], progress: Progress) -> None:
    """Counts profiles that aren't, and deletes those that a combined blob counts already.

    One that can't be read is counted too, so that merges say that they leave it out. Of one that came after
    the catalog was made, the process was killed before it was counted: that it is stored is news.
    """
    progress.begin("taking in profiles", len(names))
    new = []
    for start in range(0, len(names), _TRANSACTION):
        some = names[start : start + _TRANSACTION]
        uncounted = await store.write(_uncounted, store, some)
        new += uncounted
        progress.advance(len(some) - len(uncounted))
    made = await asyncio.to_thread(store.catalog.made_nanos)
    for start in range(0, len(new), _TRANSACTION):
        entries = await _read_all(store, new[start : start + _TRANSACTION], progress)
        events = [
            event
            for name, known in entries
            for event in store.announce(name, known)
            if store.blobs.written_nanos(name) > made
        ]
        await store.write(store.catalog.add_singles, entries, events)
    if new:
        _log.info("profiles taken in", count=len(new))


def _uncounted(store: Store, names: Sequence[BlobName]) -> list[BlobName]:
    """Those of some profiles that are to be counted; of the others the files go that aren't needed."""
    owners = store.catalog.owners(names)
    counted = store.counted(owners)
    for name in counted:
        store.blobs.discard(name)
    store.blobs.remove_folders(counted)
    for name in owners.keys() - counted:
        _log.error("profile left alone, the combined one that has it is missing", blob=str(name))
    return [name for name in names if name not in owners]


async def _read_all(
    store: Store, names: Sequence[BlobName], progress: Progress
) -> list[tuple[BlobName, Facts]]:
    """The facts of some blobs, in their order; what the name tells of those that can't be read."""
    batches = [names[start : start + _BATCH] for start in range(0, len(names), _BATCH)]
    found: dict[BlobName, Facts | None] = {}

    async def read(batch: Sequence[BlobName]) -> None:
        found.update(zip(batch, await _read_batch(store, batch), strict=True))
        progress.advance(len(batch))

    await asyncio.gather(*(read(batch) for batch in batches))
    return [(name, found[name] or _unread(store, name)) for name in names]


async def _adopt_damaged(store: Store, name: BlobName, inputs_size: int, inputs: set[BlobName]) -> None:
    """A combined blob that can't be read: needed in the catalog only if what is inside has no other blob."""
    missing = inputs - (await asyncio.to_thread(store.catalog.owners, inputs)).keys()
    if missing <= {name}:
        _log.warning("damaged combined profile deleted, all that it was made of is there", blob=str(name))
        await asyncio.to_thread(store.blobs.discard, name)
    else:
        await store.write(store.catalog.replace, name, _unread(store, name), inputs_size, missing, ())


async def _read(store: Store, name: BlobName) -> Facts | None:
    """The facts of a blob, None if it can't be read or isn't what its name says."""
    (facts,) = await _read_batch(store, [name])
    return facts


async def _read_batch(store: Store, names: Sequence[BlobName]) -> list[Facts | None]:
    """As `_read`, of several."""
    paths = [(store.blobs.path(name), name.series.type) for name in names]
    try:
        found = await store.workers.run(inspect_all, paths)
    except (WorkerUnavailable, TaskOutOfMemory) as error:
        if len(names) > 1:  # what one of them did to the worker mustn't be the others' end
            return [await _read(store, name) for name in names]
        found = [Unreadable(str(error))]
    return [_checked(name, facts) for name, facts in zip(names, found, strict=True)]


def _checked(name: BlobName, facts: Facts | Unreadable) -> Facts | None:
    if isinstance(facts, Unreadable):
        _log.warning("stored profile can't be read", blob=str(name), reason=facts.reason)
        return None
    if facts.digest != name.identity.digest or facts.time_nanos not in {0, name.identity.time_nanos}:
        _log.warning("stored profile isn't what its name says", blob=str(name))
        return None
    return facts


def _unread(store: Store, name: BlobName) -> Facts:
    """What the name alone tells."""
    return Facts(name.identity.time_nanos, 0, name.identity.digest, store.blobs.size(name), 0)
