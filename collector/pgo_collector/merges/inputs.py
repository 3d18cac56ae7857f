"""The inputs of a merge: its blobs as the engine takes them, and the fingerprint of a merge.

Another collector may delete blobs while they are read: it has combined them, or they are too old. So
whatever reads blobs calls `check_none_is_gone` with those that had to be left out, and begins again with
`until_none_is_gone`.
"""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import numpy as np

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.blob_columns import BlobColumns, BlobSeries
from pgo_collector.engine.merge_inputs import ENGINE, ChosenBlobs
from pgo_collector.engine.renditions import Rendition
from pgo_collector.errors import BlobsGone, NothingSelected
from pgo_collector.model.blob_names import BlobName
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.profile_types import CPU, KEPT_APART, PROCESS_CPU
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import Series
from pgo_collector.store.store import Store

T = TypeVar("T")

# How often blobs are looked for anew when some were deleted while they were read.
_ATTEMPTS = 3


def chosen_of(store: Store, service: str, type_: str, blobs: Iterable[Blob]) -> ChosenBlobs:
    """Return blobs as the engine takes them. For thousands of blobs this takes a while."""
    numbers: dict[Series, int] = {}
    series, times, digests = array("i"), array("q"), bytearray()
    for name in (blob.name for blob in blobs):
        series.append(numbers.setdefault(name.series, len(numbers)))
        times.append(name.identity.time_nanos)
        digests += bytes.fromhex(name.identity.digest)
    stored = BlobColumns(
        storage=store.blobs.storage,
        series=tuple(BlobSeries(each.folders, each.labels, each.dropped) for each in numbers),
        series_numbers=np.array(series, np.int32),
        times=np.array(times, np.int64),
        digests=np.frombuffer(digests, np.uint8).reshape(-1, 32),
    )
    return ChosenBlobs(service, type_, stored)


def choose_live(store: Store, selection: Selection) -> ChosenBlobs:
    """Return the live blobs of a selection as the engine takes them; there may be none."""
    blobs = store.catalog.live(selection)
    return chosen_of(store, selection.service, selection.type, blobs)


async def check_none_is_gone(catalog: Catalog, left_out: Sequence[LeftOut]) -> None:
    """Raise BlobsGone if a blob had to be left out since it was deleted while it was read.

    The catalog tells: the row of a deleted blob is gone, or not live, before its bytes are. A blob whose row
    is live is damaged, or was lost.
    """
    names = [BlobName.parse(left.blob) for left in left_out if left.is_damaged]
    damaged = {name for name in names if name is not None}
    if damaged and (gone := damaged - await asyncio.to_thread(catalog.live_among, damaged)):
        raise BlobsGone(
            f"{len(gone):,} of the stored profiles were combined or deleted while they were read, again and"
            f" again; one of them was {min(map(str, gone))}"
        )


async def until_none_is_gone(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return what `attempt` returns, which is called again if it raises BlobsGone, a few times at most."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(BlobsGone):
            return await attempt()
    return await attempt()


def count_kept_apart(catalog: Catalog, selection: Selection) -> int:
    """Return how many live blobs would be in a selection of CPU profiles if Go's compiler could use them.

    It is 0 for a selection of another type.
    """
    if selection.type != CPU:
        return 0
    _, count = catalog.resolve(replace(selection, type=PROCESS_CPU), lambda _, blobs: sum(1 for _ in blobs))
    return count


def nothing_selected(catalog: Catalog, selection: Selection) -> NothingSelected:
    """Return the refusal of a selection without blobs, which names those that were kept apart."""
    count = count_kept_apart(catalog, selection)
    if not count:
        return NothingSelected()
    return NothingSelected(f"{count:,} profiles of the type {PROCESS_CPU} match. {KEPT_APART}")


def fingerprint_of(blobs: str, rendition: Rendition) -> str:
    """Return the fingerprint of a rendition of a merge, as hex; `blobs` is the fingerprint of its blobs.

    It changes with all that the merge depends on: blobs, format, rules, weights, samples, programs, engine.
    """
    weighting = rendition.weighting
    parts = (
        ENGINE,
        blobs,
        rendition.format.name,
        str(rendition.rules),
        weighting.by,
        str(weighting.half_life),
        str(tuple(rendition.latencies)),
        str(tuple(rendition.patterns)),
        str(rendition.binaries),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
