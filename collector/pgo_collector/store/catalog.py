"""The catalog: which blobs there are, which of them are live, and which profiles each one counts.

Every function is one transaction. It can be lost: `reconcile` rebuilds it from the blobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from pgo_collector.engine.tasks import Facts, LeftOut
from pgo_collector.store.blobs import BlobName, Identity
from pgo_collector.store.database import open_database
from pgo_collector.store.events import Event
from pgo_collector.store.selected import reaches_over, selected
from pgo_collector.store.selection import Selection
from pgo_collector.store.series import Series, labels_text, parse_labels
from pgo_collector.store.tables import BLOBS, IS_COMBINED, LABELS, MADE, MERGES, OUTBOX, PROFILES, SERIES

_MARK_BITS = 40
_DAY_NANOS = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Blob:
    """A row of blobs: `size` in bytes, with what lies beside it, `end_nanos` the time of its last profile."""

    id: int
    name: BlobName
    inputs_size: int
    live: bool
    size: int
    end_nanos: int


class Day(NamedTuple):
    """A day of a series, in days since 1970 (UTC)."""

    series: Series
    number: int


@dataclass(frozen=True, slots=True)
class Merge:
    """A row of merges; for `etag` see `OpenMerge`, `size` is that of the file in bytes."""

    fingerprint: str
    etag: str
    size: int
    left_out: tuple[LeftOut, ...]


class Catalog:
    """The rows, in SQLite. Methods block; writes come from one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Opens the catalog, made if it is missing. Raises CatalogUnreadable."""
        self._engine = open_database(path)
        self._writer = self._engine.execution_options(writes=True)

    def close(self) -> None:
        """Closes the file."""
        self._engine.dispose()

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """A transaction for those who read the tables in other ways: see `inventory`."""
        return self._engine.begin()

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """A transaction for those who write them: see `outbox`."""
        return self._writer.begin()

    def made_nanos(self) -> int:
        """When it was made, in ns since 1970; what came before then was taken in from the blobs."""
        with self._engine.begin() as connection:
            return int(connection.execute(sa.select(MADE.c.at_nanos)).scalar_one())

    def live(self, selection: Selection, most: int | None = None) -> list[Blob]:
        """The blobs that count, the first `most` in canonical order: by time, then by digest."""
        with self._engine.begin() as connection:
            return _in_order(connection, selection, most)

    def live_in(self, series: Series) -> list[Blob]:
        """The blobs that count in that very series."""
        with self._engine.begin() as connection:
            return _rows(connection, (BLOBS.c.series_id == _id(series)) & BLOBS.c.live)

    def state(self, selection: Selection) -> tuple[str, list[Blob]]:
        """The fingerprint, and the blobs that it is of."""
        with self._engine.begin() as connection:
            return _fingerprint(connection, selection), _in_order(connection, selection)

    def fingerprint(self, selection: Selection) -> str:
        """One text for the same live blobs."""
        with self._engine.begin() as connection:
            return _fingerprint(connection, selection)

    def coarse(self, selection: Selection) -> int:
        """How many of the blobs are combined ones that have profiles from out of the bounds, too."""
        if selection.begin is None and selection.end is None:
            return 0
        with self._engine.begin() as connection:
            query = sa.select(sa.func.count()).select_from(BLOBS).where(reaches_over(selection))
            return int(connection.execute(query).scalar_one())

    def services(self) -> list[str]:
        """Those with live blobs, in the order of their names."""
        has_live = sa.exists().where(BLOBS.c.series_id == SERIES.c.id, BLOBS.c.live)
        query = sa.select(SERIES.c.service).distinct().where(has_live).order_by(SERIES.c.service)
        with self._engine.begin() as connection:
            return list(connection.execute(query).scalars())

    def rows(self) -> list[Blob]:
        """Every row, live or not."""
        with self._engine.begin() as connection:
            return _rows(connection, sa.true())

    def oldest(self, *, combined: bool) -> list[Blob]:
        """The live blobs of either kind, those first whose last profile is the oldest."""
        kind = IS_COMBINED if combined else BLOBS.c.inputs_size == 0
        with self._engine.begin() as connection:
            return _rows(connection, kind & BLOBS.c.live, BLOBS.c.end_nanos, BLOBS.c.id)

    def crowded_days(self, before_nanos: int) -> list[Day]:
        """The days that were over by then of which a series has several live blobs, in order."""
        crowded = (
            sa.select(*_NAMED, _DAY.label("day"))
            .select_from(_NAMED_BLOBS)
            .where(BLOBS.c.live, before_nanos // _DAY_NANOS > _DAY)
            .group_by(*_NAMED, "day")
            .having(sa.func.count() > 1)
            .order_by(*_NAMED, "day")
        )
        with self._engine.begin() as connection:
            rows = connection.execute(crowded).all()
        return [Day(_series_of(row.service, row.type, row.labels), row.day) for row in rows]

    def live_on(self, day: Day) -> list[Blob]:
        """The live blobs of a day, by time and digest."""
        where = (BLOBS.c.series_id == _id(day.series)) & BLOBS.c.live & (day.number == _DAY)
        with self._engine.begin() as connection:
            return _rows(connection, where, BLOBS.c.time_nanos, BLOBS.c.digest)

    def retired(self) -> list[Blob]:
        """The blobs that count no more and are still to be deleted."""
        with self._engine.begin() as connection:
            return _rows(connection, ~BLOBS.c.live)

    def owners_of_blobs(self) -> list[tuple[str, str]]:
        """The services and types with live blobs; those last that have the newest."""
        newest = (
            sa.select(SERIES.c.service, SERIES.c.type)
            .select_from(_NAMED_BLOBS)
            .where(BLOBS.c.live)
            .group_by(SERIES.c.service, SERIES.c.type)
            .order_by(sa.func.max(BLOBS.c.time_nanos))
        )
        with self._engine.begin() as connection:
            return [(row.service, row.type) for row in connection.execute(newest)]

    def counting(self, series: Series, identity: Identity) -> Blob | None:
        """The blob that counts a profile; None if none does."""
        with self._engine.begin() as connection:
            where = (PROFILES.c.series_id == _id(series), *_is(identity))
            counted = _NAMED_BLOBS.join(PROFILES, PROFILES.c.blob_id == BLOBS.c.id)
            query = sa.select(*_BLOB_COLUMNS).select_from(counted).where(*where)
            row = connection.execute(query).one_or_none()
        return None if row is None else _blob(*row)

    def times(self, series: Series, digest: str) -> list[int]:
        """Of the profiles that are counted, the times of those with that digest."""
        where = (PROFILES.c.series_id == _id(series), PROFILES.c.digest == digest)
        with self._engine.begin() as connection:
            return list(connection.execute(sa.select(PROFILES.c.time_nanos).where(*where)).scalars())

    def owners(self, series: Series) -> dict[Identity, int]:
        """Of every profile that is counted, the id of the blob that counts it."""
        query = sa.select(PROFILES.c.time_nanos, PROFILES.c.digest, PROFILES.c.blob_id).where(
            PROFILES.c.series_id == _id(series)
        )
        with self._engine.begin() as connection:
            return {Identity(time, digest): blob for time, digest, blob in connection.execute(query)}

    def add(self, *blobs: tuple[BlobName, Facts], events: Iterable[Event] = ()) -> None:
        """Blobs with one profile each are live and count it; and these events are to be delivered."""
        with self._writer.begin() as connection:
            for name, facts in blobs:
                blob = _put(connection, name, facts, name.identity.time_nanos, 0)
                _count(connection, blob, name.series, [name.identity])
            for event in events:
                connection.execute(sa.insert(OUTBOX).values(_waiting(event)))

    def replace(
        self,
        name: BlobName,
        facts: Facts,
        inputs_size: int,
        inputs: Iterable[Identity],
        retired: Iterable[int],
    ) -> None:
        """A combined blob goes live in the moment in which those that it replaces, by id, stop being so.

        `inputs` are the profiles that it counts from now on: its own, and all that the retired ones
        counted. It may itself have been live, with fewer.
        """
        inputs = list(inputs)
        end = max(identity.time_nanos for identity in (*inputs, name.identity))
        with self._writer.begin() as connection:
            new = _put(connection, name, facts, end, inputs_size)
            every = [{"blob": blob} for blob in {new, *retired}]
            connection.execute(sa.delete(PROFILES).where(PROFILES.c.blob_id == sa.bindparam("blob")), every)
            connection.execute(
                sa.update(BLOBS).where(BLOBS.c.id == sa.bindparam("blob")).values(live=BLOBS.c.id == new),
                every,
            )
            _count(connection, new, name.series, inputs)

    def drop(self, blobs: Iterable[Blob]) -> None:
        """Drops rows of live blobs, and of all that they count."""
        every = [{"blob": blob.id} for blob in blobs]
        if every:
            with self._writer.begin() as connection:
                for table, column in ((PROFILES, PROFILES.c.blob_id), (BLOBS, BLOBS.c.id)):
                    connection.execute(sa.delete(table).where(column == sa.bindparam("blob")), every)

    def forget(self, blobs: Iterable[Blob]) -> None:
        """Drops rows of retired blobs, whose files are gone."""
        every = [{"blob": blob.id} for blob in blobs]
        if every:
            with self._writer.begin() as connection:
                connection.execute(sa.delete(BLOBS).where(BLOBS.c.id == sa.bindparam("blob")), every)

    def merge(self, fingerprint: str) -> Merge | None:
        """The merge of that fingerprint, if it is kept."""
        with self._engine.begin() as connection:
            query = sa.select(MERGES).where(MERGES.c.fingerprint == fingerprint)
            row = connection.execute(query).one_or_none()
        return None if row is None else Merge(row.fingerprint, row.etag, row.size, _left_out(row.left_out))

    def merges(self) -> set[str]:
        """The fingerprints of all that are kept."""
        with self._engine.begin() as connection:
            return set(connection.execute(sa.select(MERGES.c.fingerprint)).scalars())

    def remember(self, merge: Merge, most: int) -> set[str]:
        """Keeps a merge, in place of the oldest where there are more than so many; returns what goes."""
        newest = sa.select(MERGES.c.number).order_by(MERGES.c.number.desc()).limit(most)
        gone = sa.delete(MERGES).where(MERGES.c.number.not_in(newest)).returning(MERGES.c.fingerprint)
        row = {**asdict(merge), "left_out": _listed(merge.left_out)}
        with self._writer.begin() as connection:
            connection.execute(sa.delete(MERGES).where(MERGES.c.fingerprint == merge.fingerprint))
            connection.execute(sa.insert(MERGES).values(row))
            return set(connection.execute(gone).scalars())


_NAMED_BLOBS = BLOBS.join(SERIES, BLOBS.c.series_id == SERIES.c.id)
_DAY = BLOBS.c.time_nanos // sa.literal(_DAY_NANOS)
_NAMED = (SERIES.c.service, SERIES.c.type, SERIES.c.labels)
# What `_blob` takes.
_BLOB_COLUMNS = (
    BLOBS.c.id, *_NAMED, BLOBS.c.time_nanos, BLOBS.c.digest,
    BLOBS.c.inputs_size, BLOBS.c.live, BLOBS.c.size + BLOBS.c.inputs_size, BLOBS.c.end_nanos,
)  # fmt: skip


def _rows(
    connection: sa.Connection,
    where: sa.ColumnElement[bool],
    *order: sa.ColumnElement[Any],
    most: int | None = None,
) -> list[Blob]:
    query = sa.select(*_BLOB_COLUMNS).select_from(_NAMED_BLOBS).where(where).order_by(*order).limit(most)
    return list(starmap(_blob, connection.execute(query).all()))


def _in_order(connection: sa.Connection, selection: Selection, most: int | None = None) -> list[Blob]:
    return _rows(connection, selected(selection), BLOBS.c.time_nanos, BLOBS.c.digest, most=most)


def _fingerprint(connection: sa.Connection, selection: Selection) -> str:
    sums = sa.select(sa.func.count(), sa.func.sum(BLOBS.c.mark), sa.func.sum(BLOBS.c.second_mark))
    return "-".join(str(total) for total in connection.execute(sums.where(selected(selection))).one())


def _is(identity: Identity) -> tuple[sa.ColumnElement[bool], ...]:
    return PROFILES.c.time_nanos == identity.time_nanos, PROFILES.c.digest == identity.digest


def _id(series: Series) -> sa.ScalarSelect[int]:
    return (
        sa.select(SERIES.c.id)
        .where(
            SERIES.c.service == series.service,
            SERIES.c.type == series.type,
            SERIES.c.labels == labels_text(series.labels),
        )
        .scalar_subquery()
    )


def _put_series(connection: sa.Connection, series: Series) -> int:
    """The id of the row of a series, made if it is missing."""
    known: int | None = connection.execute(sa.select(_id(series))).scalar_one()
    if known is not None:
        return int(known)
    values = {"service": series.service, "type": series.type, "labels": labels_text(series.labels)}
    added = int(connection.execute(sa.insert(SERIES).values(values).returning(SERIES.c.id)).scalar_one())
    if series.labels:
        rows = [{"series_id": added, "key": key, "value": value} for key, value in series.labels]
        connection.execute(sa.insert(LABELS), rows)
    return added


def _put(connection: sa.Connection, name: BlobName, facts: Facts, end_nanos: int, inputs_size: int) -> int:
    """The id of the row of that name, made or made live."""
    named = {"series_id": _put_series(connection, name.series), **name.identity._asdict()}
    values = {
        "end_nanos": end_nanos,
        "duration_nanos": facts.duration_nanos,
        "size": facts.size,
        "samples": facts.samples,
        "inputs_size": inputs_size,
        "live": True,
    }
    same = (BLOBS.c[column] == value for column, value in named.items())
    known = connection.execute(sa.select(BLOBS.c.id).where(*same)).scalar_one_or_none()
    if known is None:
        mark, second_mark = _marks(name)
        row = {**named, **values, "mark": mark, "second_mark": second_mark}
        return int(connection.execute(sa.insert(BLOBS).values(row).returning(BLOBS.c.id)).scalar_one())
    connection.execute(sa.update(BLOBS).where(BLOBS.c.id == known).values(values))
    return int(known)


def _marks(name: BlobName) -> tuple[int, int]:
    """Two random numbers, the same ones for the same name; millions of them add up within 63 bits."""
    number = int.from_bytes(hashlib.sha256(str(name).encode()).digest())
    mask = (1 << _MARK_BITS) - 1
    return number & mask, number >> _MARK_BITS & mask


def _count(connection: sa.Connection, blob: int, series: Series, inputs: Iterable[Identity]) -> None:
    series_id = _put_series(connection, series)
    rows = [{"series_id": series_id, "blob_id": blob, **identity._asdict()} for identity in inputs]
    connection.execute(sa.insert(PROFILES), rows)


def _waiting(event: Event) -> dict[str, Any]:
    row = {"event": event.id, "created_nanos": event.created_nanos, "body": event.body}
    return {**row, "attempts": 0, "due_nanos": event.created_nanos}


def _listed(left_out: Iterable[LeftOut]) -> str:
    return json.dumps([asdict(entry) for entry in left_out])


def _left_out(text: str) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(**entry) for entry in json.loads(text))


def _blob(  # noqa: PLR0917 - a row, of which there are thousands
    id_: int, service: str, type_: str, labels: str, time_nanos: int, digest: str, *others: Any
) -> Blob:
    name = BlobName(_series_of(service, type_, labels), Identity(time_nanos, digest))
    return Blob(id_, name, *others)


@lru_cache(maxsize=1 << 14)
def _series_of(service: str, type_: str, labels: str) -> Series:
    return Series(service, type_, parse_labels(labels))
