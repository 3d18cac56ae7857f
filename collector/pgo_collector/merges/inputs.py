"""The inputs of a merge: its blobs as the engine takes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pgo_collector.blobs.storage import Storage
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.rows import Blob, BlobTable
from pgo_collector.engine.blob_columns import BlobColumns
from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.errors import NothingSelected
from pgo_collector.model.profile_types import CPU, KEPT_APART, PROCESS_CPU
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import Scope
from pgo_collector.model.services import is_several, services_of
from pgo_collector.store.store import Store


def chosen_of(storage: Storage, selection: Selection, blobs: BlobTable | Iterable[Blob]) -> ChosenBlobs:
    """Return the blobs of a selection as the engine takes them. For thousands of blobs this takes a while."""
    table = blobs if isinstance(blobs, BlobTable) else BlobTable.of(blobs)
    stored = BlobColumns(
        storage=storage,
        series=table.series,
        series_numbers=np.array(table.series_numbers, np.int32),
        times=np.array(table.times, np.int64),
        digests=np.frombuffer(table.digests, np.uint8).reshape(-1, 32),
        is_combined=np.frombuffer(table.is_combined, np.bool_),
    )
    return ChosenBlobs(selection.service, selection.type, stored, requests=selection.ids.requests)


def choose_live(store: Store, selection: Selection) -> ChosenBlobs:
    """Return the live blobs of a selection as the engine takes them; there may be none."""
    return chosen_of(store.blobs.storage, selection, store.catalog.live_table(selection))


def count_kept_apart(catalog: Catalog, selection: Selection) -> int:
    """Return how many live blobs would be in a selection of CPU profiles if Go's compiler could use them.

    It is 0 for a selection of another type.
    """
    return catalog.count(replace(selection, type=PROCESS_CPU)) if selection.type == CPU else 0


def check_services(catalog: Catalog, service: str) -> None:
    """Raise NothingSelected if one of several services has no profiles at all: its name may be misspelled.

    One that has none in the selection adds nothing.
    """
    services = services_of(service)
    if is_several(service):
        for unknown in sorted({*services}.difference(catalog.services(scope=Scope(tuple(services))))):
            raise NothingSelected(f"the service {unknown!r} has none")


def nothing_selected(catalog: Catalog, selection: Selection) -> NothingSelected:
    """Return the refusal of a selection without blobs, which names those that were kept apart."""
    count = count_kept_apart(catalog, selection)
    if not count:
        return NothingSelected()
    return NothingSelected(f"{count:,} profiles of the type {PROCESS_CPU} match. {KEPT_APART}")
