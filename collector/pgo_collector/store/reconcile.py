"""Brings the catalog in line with the blobs on disk: at a start the difference, after a loss all of it.

A process may be killed between a blob and its row, for a submit or a combine, and before it has deleted
what a combine retired. Whatever it was, afterwards every profile on disk is counted once.
"""

from __future__ import annotations

import asyncio

import structlog
from pprof_merge import ProfileError

from pgo_collector.engine.facts import Facts
from pgo_collector.engine.tasks import inspect
from pgo_collector.errors import InputsDamaged, NotACPUProfile, TaskOutOfMemory, WorkerUnavailable
from pgo_collector.store.blobs import BlobName
from pgo_collector.store.retired import delete_retired
from pgo_collector.store.store import Store
from pgo_collector.store.survey import Differences, survey

_BATCH = 64
_log = structlog.get_logger()


async def reconcile(store: Store) -> None:
    """Does all of it; only blobs that the catalog doesn't know as they are get read. Raises OSError."""
    found = await asyncio.to_thread(_look, store)
    damaged = await _adopt_combined(store, found.combined, found.unknown)
    await _adopt_profiles(store, found.profiles)
    for name, inputs in damaged.items():
        await _adopt_damaged(store, name, found.combined[name], inputs)
    await delete_retired(store)
    await asyncio.to_thread(_tell_missing, store, found.missing)
    await asyncio.to_thread(_sweep_merged, store)


def _look(store: Store) -> Differences:
    """Where disk and catalog differ, after what was never finished is swept."""
    store.folder.sweep()
    store.blobs.sweep_folders()
    with store.catalog.rows() as rows:
        found = survey(store.folder.blobs, rows)
    for path in found.strangers:
        _log.warning("not ours, ignored", file=str(path))
    for path in found.orphans:
        path.unlink()
    return found


def _tell_missing(store: Store, ids: list[int]) -> None:
    """Of blobs that weren't there. Some may no longer count, since there is one in which they are."""
    for blob in store.catalog.with_ids(ids):
        if blob.live:
            _log.error("a stored profile is missing", blob=str(blob.name))


def _sweep_merged(store: Store) -> None:
    store.folder.sweep_merged(store.catalog.merges())


async def _adopt_combined(
    store: Store, changed: dict[BlobName, int], unknown: set[BlobName]
) -> dict[BlobName, set[BlobName]]:
    """Makes combined blobs live in place of what is inside them, the largest first.

    Returns those that can't be read, with what is inside them: whether anything of it is to be had only
    there is seen when all others are counted.
    """
    inputs_of: dict[BlobName, set[BlobName]] = {}
    for name in changed:
        try:
            inputs_of[name] = await asyncio.to_thread(store.blobs.read_inputs, name) | {name}
        except (InputsDamaged, OSError) as error:
            _log.error("combined profile left alone", blob=str(name), reason=str(error))
    damaged = {}
    for name in sorted(inputs_of, key=lambda name: (-len(inputs_of[name]), str(name))):
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


async def _adopt_profiles(store: Store, names: list[BlobName]) -> None:
    """Counts profiles that aren't, and deletes those that a combined blob counts already.

    One that can't be read is counted too, so that merges say that they leave it out. Of one that came after
    the catalog was made, the process was killed before it was counted: that it is stored is news.
    """
    owners = await asyncio.to_thread(store.catalog.owners, names)
    counted = await asyncio.to_thread(store.counted, names)
    made = await asyncio.to_thread(store.catalog.made_nanos)
    new = []
    for name in names:
        if name in counted:
            await asyncio.to_thread(store.blobs.discard, name)
        elif name in owners:
            _log.error("profile left alone, the combined one that has it is missing", blob=str(name))
        else:
            new.append(name)
    for start in range(0, len(new), _BATCH):
        batch = new[start : start + _BATCH]
        facts = await asyncio.gather(*(_read(store, name) for name in batch))
        entries = [(name, known or _unread(store, name)) for name, known in zip(batch, facts, strict=True)]
        events = [
            event
            for name, known in entries
            for event in store.announce(name, known)
            if store.blobs.written_nanos(name) > made
        ]
        await store.write(store.catalog.add, *entries, events=events)
    if new:
        _log.info("profiles taken in", count=len(new))


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
    try:
        facts = await store.workers.run(inspect, store.blobs.path(name), name.series.type)
    except (ProfileError, NotACPUProfile, TaskOutOfMemory, WorkerUnavailable, OSError) as error:
        _log.warning("stored profile can't be read", blob=str(name), reason=str(error))
        return None
    if facts.digest != name.identity.digest or facts.time_nanos not in {0, name.identity.time_nanos}:
        _log.warning("stored profile isn't what its name says", blob=str(name))
        return None
    return facts


def _unread(store: Store, name: BlobName) -> Facts:
    """What the name alone tells."""
    return Facts(name.identity.time_nanos, 0, name.identity.digest, store.blobs.size(name), 0)
