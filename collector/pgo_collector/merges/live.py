"""The live blobs of a selection, as a merge takes them: which, where, and how they are known again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from pgo_collector.engine.forms import Form
from pgo_collector.engine.rows import Stored
from pgo_collector.engine.tasks import ENGINE, Chosen
from pgo_collector.errors import NothingSelected
from pgo_collector.store.blob_rows import Blob
from pgo_collector.store.selection import Selection
from pgo_collector.store.store import Store


def live_blobs(store: Store, selection: Selection, most: int | None = None) -> list[Blob]:
    """The blobs that count, the first `most` in canonical order. Raises NothingSelected."""
    blobs = store.catalog.live(selection, most)
    if not blobs:
        raise NothingSelected
    return blobs


def chosen_of(store: Store, service: str, type_: str, blobs: Iterable[Blob]) -> Chosen:
    """The blobs as the engine takes them; of thousands that takes a while."""
    folder = str(store.folder.blobs)
    stored = (
        Stored(str(name), folder, name.identity.digest, name.series.labels, name.series.dropped)
        for name in (blob.name for blob in blobs)
    )
    return Chosen(service, type_, tuple(stored))


def fingerprint_of(blobs: str, form: Form) -> str:
    """What a merge depends on: of which blobs it is, by which rules and weights, and who makes it."""
    weighting = form.weighting
    parts = (ENGINE, blobs, form.format.name, str(form.rules), weighting.by, str(weighting.half_life))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
