"""The live blobs of a selection, as a merge takes them: which, where, and how they are known again."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable

import numpy as np

from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.blob_columns import BlobColumns, BlobSeries
from pgo_collector.engine.merge_inputs import ENGINE, ChosenBlobs
from pgo_collector.engine.renditions import Rendition
from pgo_collector.errors import NothingSelected
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import Series
from pgo_collector.store.store import Store


def live_blobs(store: Store, selection: Selection, newest: int | None = None) -> list[Blob]:
    """The blobs that count, or only so many of the `newest`, in canonical order. Raises NothingSelected."""
    blobs = store.catalog.live(selection, newest)
    if not blobs:
        raise NothingSelected
    return blobs


def chosen_of(store: Store, service: str, type_: str, blobs: Iterable[Blob]) -> ChosenBlobs:
    """The blobs as the engine takes them; of thousands that takes a while."""
    numbers: dict[Series, int] = {}
    series, times, digests = array("i"), array("q"), bytearray()
    for name in (blob.name for blob in blobs):
        series.append(numbers.setdefault(name.series, len(numbers)))
        times.append(name.identity.time_nanos)
        digests += bytes.fromhex(name.identity.digest)
    stored = BlobColumns(
        folder=str(store.folder.blobs),
        series=tuple(BlobSeries(each.folders, each.labels, each.dropped) for each in numbers),
        series_numbers=np.array(series, np.int32),
        times=np.array(times, np.int64),
        digests=np.frombuffer(digests, np.uint8).reshape(-1, 32),
    )
    return ChosenBlobs(service, type_, stored)


def choose_now(store: Store, selection: Selection) -> ChosenBlobs:
    """Return the blobs that count now, of which there may be none."""
    blobs = store.catalog.live(selection)
    return chosen_of(store, selection.service, selection.type, blobs)


def fingerprint_of(blobs: str, form: Rendition) -> str:
    """What a merge depends on: of which blobs it is, by which rules and weights, and who makes it."""
    weighting = form.weighting
    parts = (ENGINE, blobs, form.format.name, str(form.rules), weighting.by, str(weighting.half_life))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
