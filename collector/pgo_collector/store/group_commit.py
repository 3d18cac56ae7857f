"""Arrivals: profiles that workers have checked become blobs that count, all that have come by then in one go.

However many there are, a folder is synced once for all that go into it, and one transaction counts them all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.catalog import Catalog, add_profiles
from pgo_collector.catalog.rows import Blob, read_counting
from pgo_collector.model.blob_names import BlobName, Identity
from pgo_collector.model.facts import Announce, Facts
from pgo_collector.model.series import Series
from pgo_collector.store.blobs import MISSING, Blobs
from pgo_collector.store.folder import sync_file, sync_folder, write_file


class Submission(NamedTuple):
    """A profile to be stored: `content` is what is to be in the file `part`, unless it is there.

    One that doesn't say when it was taken was at `created_nanos`, or else now.
    """

    part: Path
    series: Series
    facts: Facts
    created_nanos: int | None = None
    content: bytes | None = None


class Submitted(NamedTuple):
    """A profile that is stored: its facts, the name of its blob, and whether it wasn't stored before.

    The name is the one that it has, or would have if no combined blob counted it.
    """

    facts: Facts
    name: BlobName
    is_new: bool


class GroupCommit:
    """What makes blobs of them, called on the thread that all changes are made on: see `Store.write`."""

    def __init__(self, blobs: Blobs, catalog: Catalog, announce: Announce) -> None:
        self._blobs = blobs
        self._catalog = catalog
        self._announce = announce

    def count(self, arrivals: Sequence[Submission]) -> list[Submitted | Exception]:
        """Stores each, durably, and counts it, unless it is counted already; or why that failed.

        Of those that are stored, the file `part` is gone.
        """
        names: list[BlobName] = []
        for arrival in arrivals:
            names.append(self._name(arrival, names))
        failures: dict[BlobName, Exception] = {}
        new = self._store(names, arrivals, failures)
        return [
            failures.get(name) or self._submitted(arrival, name, is_new=new.get(name) is arrival)
            for name, arrival in zip(names, arrivals, strict=True)
        ]

    def _name(self, arrival: Submission, earlier: Sequence[BlobName]) -> BlobName:
        """The name of one. Where it has no time, that of the same bytes: once more they are a retry."""
        series, digest = arrival.series, arrival.facts.digest
        time_nanos = arrival.facts.time_nanos or arrival.created_nanos
        if not time_nanos:
            times = self._catalog.times(series, digest)
            times += [
                name.identity.time_nanos
                for name in earlier
                if name.series == series and name.identity.digest == digest
            ]
            time_nanos = min(times, default=0) or time.time_ns()
        return BlobName(series, Identity(time_nanos, digest))

    def _store(
        self, names: Sequence[BlobName], arrivals: Sequence[Submission], failures: dict[BlobName, Exception]
    ) -> dict[BlobName, Submission]:
        """Makes blobs of those that aren't counted, counts those that didn't fail, or none; returns all."""
        new: dict[BlobName, Submission] = {}
        try:
            with self._catalog.writing(*names) as connection:
                counting = {name: read_counting(connection, name) for name in names}
                new = self._place(names, arrivals, counting, failures)
                entries = [(name, new[name].facts) for name in new if name not in failures]
                events = [event for name, facts in entries for event in self._announce(name, facts)]
                add_profiles(connection, entries, events)
        except SQLAlchemyError as error:
            for name in new.keys() - failures.keys():
                with suppress(OSError):  # what stays didn't come to count, and the next start counts it
                    self._blobs.discard(name)
            self._blobs.remove_folders(new.keys() - failures.keys())
            failures |= {name: failures.get(name, error) for name in names}
        return new

    def _place(
        self,
        names: Sequence[BlobName],
        arrivals: Sequence[Submission],
        counting: Mapping[BlobName, Blob | None],
        failures: dict[BlobName, Exception],
    ) -> dict[BlobName, Submission]:
        """Makes blobs of those that aren't counted, and returns them; some of them may be in `failures`."""
        new: dict[BlobName, Submission] = {}
        folders: dict[Path, list[BlobName]] = {}
        for name, arrival in zip(names, arrivals, strict=True):
            blob = counting[name]
            # The blob of a submit that failed at the very last, and was answered as failed, may be gone.
            is_gone = blob is not None and blob.name == name and self._blobs.size(name) == MISSING
            if name in new or (blob is not None and not is_gone):
                continue
            if blob is None:
                new[name] = arrival
            try:
                if arrival.content is None:
                    sync_file(arrival.part)
                else:
                    write_file(arrival.part, arrival.content)
                if blob is None:
                    self._blobs.discard(name)  # what may be there of one that didn't come to count
                folders.setdefault(self._blobs.place(arrival.part, name), []).append(name)
            except OSError as error:
                failures[name] = error
        for folder, inside in folders.items():
            try:
                sync_folder(folder)
            except OSError as error:
                failures.update(dict.fromkeys(inside, error))
        return new

    @staticmethod
    def _submitted(arrival: Submission, name: BlobName, *, is_new: bool) -> Submitted | Exception:
        try:
            arrival.part.unlink(missing_ok=True)
        except OSError as error:
            return error
        return Submitted(arrival.facts, name, is_new)
