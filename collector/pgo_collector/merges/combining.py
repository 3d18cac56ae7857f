"""Combine blobs: replace them by their merge, which then counts every profile that they counted."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import structlog

from pgo_collector.catalog.catalog import Combined
from pgo_collector.catalog.leases import Lease
from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.errors import NothingToMerge, StorageFails
from pgo_collector.merges.inputs import chosen_of
from pgo_collector.merges.making import make_merge
from pgo_collector.model.facts import Facts
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import BlobName, Identity, Series
from pgo_collector.store.store import Store
from pgo_collector.workers.blob_tasks import BlobTasks

_log = structlog.get_logger()


async def combine_blobs(
    store: Store, tasks: BlobTasks, lease: Lease, blobs: Sequence[Blob], kept_labels: Collection[str] = ()
) -> None:
    """Replace live blobs by their merge; blobs that can't be read stay as they are.

    The blobs must be of one series, or of series that a roll-up makes one: see `Series.rolled_up`. Call this
    with the lock and the lease of the service and type. The replaced blobs don't count any more, but their
    files stay until `collect_garbage`. Raises NotOfThisProfile, WorkerUnavailable, LeaseLost, OSError or
    SQLAlchemyError.
    """
    service, type_, *_ = blobs[0].name.series
    async with store.part() as part:
        with suppress(NothingToMerge):
            every = Selection(service, type_)
            chosen = await asyncio.to_thread(chosen_of, store.blobs.storage, every, blobs)
            merged = await make_merge(tasks, chosen, PLAIN_RENDITION, part)
            left_out = {left.blob for left in merged.left_out}
            taken = [blob for blob in blobs if str(blob.name) not in left_out]
            if len(taken) > 1 and merged.facts is not None:
                rolled_up = [blob.name.series.rolled_up(kept_labels) for blob in taken]
                series = reduce(Series.merged_with, rolled_up)
                await store.write(_replace, store, lease, taken, _Merged(series, merged.facts, part))


class _Merged(NamedTuple):
    """The merge of some blobs: the series that it is of, what it is, and the file that it is in."""

    series: Series
    facts: Facts
    part: Path


def _replace(store: Store, lease: Lease, taken: Sequence[Blob], merged: _Merged) -> None:
    """Replace the blobs in `taken` by their merge, unless its name was taken meanwhile.

    If this fails in the middle, its files stay, under a name whose row isn't live: they are deleted with the
    retired blobs. Nothing is deleted here: a request to do so could arrive when another collector has stored
    the same merge under the same name. If the name is taken, the next combine does it.
    """
    series, facts, part = merged
    # Profiles of hosts whose clocks are ahead say a time after all of those that they are stored with.
    is_right = facts.time_nanos and facts.time_nanos <= max(blob.end_nanos for blob in taken)
    time_nanos = facts.time_nanos if is_right else min(blob.name.identity.time_nanos for blob in taken)
    name = BlobName(series, Identity(time_nanos, facts.digest))
    ids = {blob.id for blob in taken}
    counted = store.catalog.profiles_counted_by(ids)
    inputs = {name, *chain.from_iterable(counted.values())}
    try:
        if any(blob.name == name for blob in taken):  # the other blobs added no sample to it
            if not lease.is_settled:
                _log_postponed(name, taken, "an earlier request may still arrive")
                return  # it would write the .inputs
            inputs_size = store.blobs.write_inputs(name, inputs)
        elif store.catalog.claim(lease, name, facts):
            inputs_size = store.blobs.keep(part, name, inputs)
        else:
            # This very merge was submitted as a profile, or it was deleted and isn't gone yet.
            _log_postponed(name, taken, "the name of the merge is taken")
            return
    except StorageFails:
        lease.unsettle()
        raise
    size = store.blobs.size(name)  # of the file with its seal
    combined = Combined(name, dataclasses.replace(facts, size=size), inputs_size, inputs)
    store.catalog.replace(lease, combined, ids)
    _log.info("profiles combined", blob=str(name), blobs=len(taken))


def _log_postponed(name: BlobName, taken: Collection[Blob], reason: str) -> None:
    _log.info("combine postponed", blob=str(name), blobs=len(taken), reason=reason)
