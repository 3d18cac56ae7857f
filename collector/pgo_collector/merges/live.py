"""The live blobs of a series, as a merge takes them: which there are, where, and how they are known again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from pgo_collector.engine.tasks import ENGINE, Stored
from pgo_collector.errors import NothingToMerge
from pgo_collector.store.blobs import BlobName, Series
from pgo_collector.store.catalog import Blob
from pgo_collector.store.store import Store


def live_blobs(store: Store, series: Series) -> list[Blob]:
    """The blobs that count, in canonical order. Raises NothingToMerge."""
    blobs = store.catalog.live(series)
    if not blobs:
        raise NothingToMerge("no profile is stored")
    return blobs


def sizes_of(store: Store, blobs: Iterable[Blob]) -> dict[BlobName, int]:
    """What is there of each blob on disk, in bytes."""
    return {blob.name: store.blobs.size(blob.name) for blob in blobs}


def files_of(store: Store, blobs: Iterable[Blob]) -> list[Stored]:
    """Name, file and digest of each, as the engine takes them."""
    return [(str(blob.name), store.blobs.path(blob.name), blob.name.identity.digest) for blob in blobs]


def fingerprint_of(sizes: Mapping[BlobName, int]) -> str:
    """What a merge of blobs depends on: which they are, and what is there of them on disk, in bytes.

    By its size a blob is noticed that is truncated or missing, and one that is put back too.
    """
    lines = sorted(f"{name} {size}\n" for name, size in sizes.items())
    return hashlib.sha256("".join((f"{ENGINE}\n", *lines)).encode()).hexdigest()
