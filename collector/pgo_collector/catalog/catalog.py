"""The catalog: which blobs there are, which of them are live, and which profiles each one counts.

Every function is one transaction. It can be lost: `reconcile` rebuilds it from the blobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
import structlog

from pgo_collector.catalog.database import REINDEX, check_database, open_database
from pgo_collector.catalog.fingerprint_cache import FingerprintCache, State, read_fingerprint, read_state
from pgo_collector.catalog.rows import (
    NAMED,
    NAMED_BLOBS,
    Blob,
    add_single_profiles,
    count_profiles,
    drop_empty_series,
    put_blob,
    put_profile,
    read_blobs,
    read_counting,
    read_in_order,
    read_newest,
    series_id,
    series_of,
    series_with,
    uncount_profiles,
)
from pgo_collector.catalog.selecting import selected
from pgo_collector.catalog.tables import BLOBS, DAY, IS_COMBINED, MADE, MERGES, OUTBOX, PROFILES, SERIES
from pgo_collector.model.blob_names import BlobName, Identity
from pgo_collector.model.facts import Event, Facts, LeftOut
from pgo_collector.model.selection import Coarse, Selection
from pgo_collector.model.series import Series
from pgo_collector.model.times import DAY_NANOS

T = TypeVar("T")
_log = structlog.get_logger()

# So many values a statement has; there are limits.
_BATCH = 500
# Of .inputs: the first line, and each other but its time and labels. See `blobs`.
_CHECKSUM_BYTES = 65
_LINE_BYTES = 66
_SERIES_KEY = ("service", "type", "labels")
_WANTED: tuple[sa.ColumnClause[Any], ...] = (
    sa.column("number", sa.Integer),
    *(sa.column(key, sa.Text) for key in _SERIES_KEY),
    sa.column("time_nanos", sa.BigInteger),
    sa.column("digest", sa.Text),
)
# No column has such a number.
_BEYOND = 1 << 63


class Extent(NamedTuple):
    """How many blobs there are, and the times of the first and the last in ns."""

    blobs: int
    first: int
    last: int


class Day(NamedTuple):
    """A day of a series, in days since 1970 (UTC)."""

    series: Series
    number: int


@dataclass(frozen=True, slots=True)
class Merge:
    """A row of merges; for `etag` see `OpenMerge`, `size` is that of the file in bytes, `sha256` its own."""

    fingerprint: str
    etag: str
    size: int
    sha256: str
    left_out: tuple[LeftOut, ...]


class Catalog:
    """The rows, in SQLite. Methods block; writes come from one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Opens the catalog, made if it is missing. Raises CatalogUnreadable."""
        # What SQLite has found to be wrong with the file, which nothing but a reindex mends.
        self.damage: str | None = None
        self._engine = open_database(path, self._note_damage)
        self._writer = self._engine.connect().execution_options(writes=True)
        self._states = FingerprintCache()

    def check(self) -> None:
        """Reads all of the file. Raises CatalogUnreadable if it isn't as SQLite wrote it."""
        with self._engine.begin() as connection:
            check_database(connection)

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()
        self._engine.dispose()

    def _note_damage(self, found: str) -> None:
        if self.damage is None:
            self.damage = f"it is damaged ({found}): {REINDEX}"
            _log.error("the catalog is damaged", reason=found, fix=REINDEX)

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """A transaction for those who read the tables in other ways: see `inventory`."""
        return self._engine.begin()

    @contextmanager
    def writing(self, *blobs: BlobName) -> Iterator[sa.Connection]:
        """A transaction on the one connection that writes: for all changes here, for `arrivals` and `outbox`.

        Those blobs may become live in it, or stop being so.
        """
        try:
            with self._writer.begin():
                yield self._writer
        finally:
            for service, type_ in {name.series[:2] for name in blobs}:
                self._states.changed(service, type_)

    def made_nanos(self) -> int:
        """When it was made, in ns since 1970; what came before then was taken in from the blobs."""
        with self._engine.begin() as connection:
            return int(connection.execute(sa.select(MADE.c.at_nanos)).scalar_one())

    def live(self, selection: Selection, newest: int | None = None) -> list[Blob]:
        """Return the blobs that count, or only so many of the `newest`, in canonical order: by time, then by
        digest.
        """
        with self._engine.begin() as connection:
            if newest is None:
                return [*read_in_order(connection, selected(selection))]
            return [*read_newest(connection, selected(selection), newest)][::-1]

    def with_ids(self, ids: Iterable[int]) -> list[Blob]:
        """The blobs of these ids."""
        with self._engine.begin() as connection:
            return [blob for batch in _batches(ids) for blob in read_blobs(connection, BLOBS.c.id.in_(batch))]

    def count(self, selection: Selection) -> int:
        """How many blobs count."""
        with self._engine.begin() as connection:
            query = sa.select(sa.func.count()).select_from(BLOBS).where(selected(selection))
            return int(connection.execute(query).scalar_one())

    @contextmanager
    def state(self, selection: Selection) -> Iterator[tuple[str, Iterator[Blob]]]:
        """The fingerprint, and the blobs that it is of in canonical order, to be read one after another."""
        with self._engine.begin() as connection:
            yield read_fingerprint(connection, selection), read_in_order(connection, selected(selection))

    def fingerprint(self, selection: Selection) -> str:
        """One text for the same live blobs."""
        return self._state(selection).fingerprint

    def coarse(self, selection: Selection) -> Coarse:
        """Where the selection is finer than what is left."""
        return self._state(selection).coarse

    def _state(self, selection: Selection) -> State:
        if (known := self._states.find(selection)) is not None:
            return known
        changes = self._states.changes(selection)
        with self._engine.begin() as connection:
            state = read_state(connection, selection)
        self._states.keep(selection, changes, state)
        return state

    def services(self) -> list[str]:
        """Those with live blobs, in the order of their names."""
        has_live = sa.exists().where(BLOBS.c.series_id == SERIES.c.id, BLOBS.c.live)
        query = sa.select(SERIES.c.service).distinct().where(has_live).order_by(SERIES.c.service)
        with self._engine.begin() as connection:
            return list(connection.execute(query).scalars())

    @contextmanager
    def rows(self) -> Iterator[Iterator[Blob]]:
        """Every row, live or not, of one series after another and in order of time, to be read one by one."""
        with self._engine.begin() as connection:
            yield read_blobs(connection, sa.true(), BLOBS.c.series_id, BLOBS.c.time_nanos)

    def expired(self, *, combined: bool, before_nanos: float, most_bytes: float) -> list[Blob]:
        """Of the live blobs of either kind those whose last profile was before, and the oldest of the others
        while all take more, in that order; a time or a size that is beyond 64 bits is no bound.
        """
        of_kind = BLOBS.c.live & (IS_COMBINED if combined else BLOBS.c.inputs_size == 0)
        gone = []
        if before_nanos >= -_BEYOND:
            gone.append(BLOBS.c.end_nanos < int(before_nanos))
        if most_bytes < _BEYOND:
            size = sa.func.sum(BLOBS.c.size + BLOBS.c.inputs_size)
            with_newer = size.over(order_by=(BLOBS.c.end_nanos.desc(), BLOBS.c.id.desc()))
            sums = sa.select(BLOBS.c.id, with_newer.label("bytes")).where(of_kind).subquery()
            gone.append(BLOBS.c.id.in_(sa.select(sums.c.id).where(sums.c.bytes > int(most_bytes))))
        if not gone:
            return []
        with self._engine.begin() as connection:
            return [*read_blobs(connection, of_kind & sa.or_(*gone), BLOBS.c.end_nanos, BLOBS.c.id)]

    def days(self, before_nanos: int) -> list[tuple[Day, int]]:
        """The days that were over by then, in order, and how many live blobs a series has of each."""
        query = (
            sa.select(*NAMED, DAY.label("day"), sa.func.count().label("blobs"))
            .select_from(NAMED_BLOBS)
            .where(BLOBS.c.live, before_nanos // DAY_NANOS > DAY)
            .group_by(*NAMED, "day")
            .order_by(*NAMED, "day")
        )
        with self._engine.begin() as connection:
            return [
                (Day(series_of(row.service, row.type, row.labels), row.day), row.blobs)
                for row in connection.execute(query)
            ]

    def live_on(self, day: Day) -> list[Blob]:
        """The live blobs of a day, by time and digest."""
        where = (BLOBS.c.series_id == series_id(day.series)) & BLOBS.c.live & (day.number == DAY)
        with self._engine.begin() as connection:
            return [*read_blobs(connection, where, BLOBS.c.time_nanos, BLOBS.c.digest)]

    def combined(self) -> list[Blob]:
        """The combined blobs that count."""
        with self._engine.begin() as connection:
            return [*read_blobs(connection, BLOBS.c.live & IS_COMBINED)]

    def retired(self, service: str | None = None, type_: str | None = None) -> list[Blob]:
        """The blobs that count no more and are still to be deleted, of one service and type or of all."""
        where = ~BLOBS.c.live
        if service is not None:
            where &= (SERIES.c.service == service) & (SERIES.c.type == type_)
        with self._engine.begin() as connection:
            return [*read_blobs(connection, where)]

    def extents(self, selection: Selection) -> dict[str, Extent]:
        """Of each service, in the order of their names, how many blobs there are and of when."""
        times = (sa.func.min(BLOBS.c.time_nanos), sa.func.max(BLOBS.c.time_nanos))
        query = (
            sa.select(SERIES.c.service, sa.func.count(), *times)
            .select_from(NAMED_BLOBS)
            .where(selected(selection))
            .group_by(SERIES.c.service)
            .order_by(SERIES.c.service)
        )
        with self._engine.begin() as connection:
            return {service: Extent(*numbers) for service, *numbers in connection.execute(query)}

    def owners_of_blobs(self) -> dict[tuple[str, str], int]:
        """How many live blobs a service and type has; those last that have the newest."""
        newest = (
            sa.select(SERIES.c.service, SERIES.c.type, sa.func.count().label("blobs"))
            .select_from(NAMED_BLOBS)
            .where(BLOBS.c.live)
            .group_by(SERIES.c.service, SERIES.c.type)
            .order_by(sa.func.max(BLOBS.c.time_nanos))
        )
        with self._engine.begin() as connection:
            return {(row.service, row.type): row.blobs for row in connection.execute(newest)}

    def counting(self, name: BlobName) -> Blob | None:
        """The blob that counts the profile of that name; None if none does."""
        with self._engine.begin() as connection:
            return read_counting(connection, name)

    def times(self, series: Series, digest: str) -> list[int]:
        """Of the profiles that are counted, the times of those with that digest."""
        where = (PROFILES.c.series_id == series_id(series), PROFILES.c.digest == digest)
        with self._engine.begin() as connection:
            return list(connection.execute(sa.select(PROFILES.c.time_nanos).where(*where)).scalars())

    def owners(self, names: Iterable[BlobName]) -> dict[BlobName, int]:
        """Of those profiles that are counted, the id of the blob that counts each."""
        found: dict[BlobName, int] = {}
        with self._engine.begin() as connection:
            for batch in _batches(names):
                texts = [(index, *_named(name)) for index, name in enumerate(batch)]
                wanted = sa.values(*_WANTED, name="wanted").data(texts).cte("wanted")
                query = (
                    sa.select(wanted.c.number, PROFILES.c.blob_id)
                    .select_from(wanted)
                    .join(SERIES, sa.and_(*(SERIES.c[key] == wanted.c[key] for key in _SERIES_KEY)))
                    .join(
                        PROFILES,
                        sa.and_(
                            PROFILES.c.series_id == SERIES.c.id,
                            PROFILES.c.digest == wanted.c.digest,
                            PROFILES.c.time_nanos == wanted.c.time_nanos,
                        ),
                    )
                )
                found |= {batch[number]: blob for number, blob in connection.execute(query)}
        return found

    def miscounting(self) -> list[Blob]:
        """The live blobs that don't count as many profiles as they have, since rows are lost.

        A single one has itself. Of a combined one the size of its .inputs says it, which has a line for each.
        """
        line = sa.func.length(sa.cast(PROFILES.c.time_nanos, sa.Text)) + _LINE_BYTES
        others = sa.func.max(sa.func.length(SERIES.c.labels), 1) + 1
        text = _CHECKSUM_BYTES + sa.func.sum(
            line + sa.case((PROFILES.c.series_id == BLOBS.c.series_id, 0), else_=others)
        )
        query = (
            sa.select(BLOBS.c.id)
            .select_from(
                BLOBS.outerjoin(PROFILES, PROFILES.c.blob_id == BLOBS.c.id).outerjoin(
                    SERIES, SERIES.c.id == PROFILES.c.series_id
                )
            )
            .where(BLOBS.c.live)
            .group_by(BLOBS.c.id)
            .having(
                sa.case(
                    (BLOBS.c.inputs_size == 0, sa.func.count(PROFILES.c.blob_id) != 1),
                    else_=sa.func.coalesce(text, 0) != BLOBS.c.inputs_size,
                )
            )
        )
        with self._engine.begin() as connection:
            ids = list(connection.execute(query).scalars())
        return self.with_ids(ids)

    def counted_by(self, ids: Iterable[int]) -> dict[int, list[BlobName]]:
        """The profiles that each of these blobs counts."""
        query = sa.select(PROFILES.c.blob_id, *NAMED, PROFILES.c.time_nanos, PROFILES.c.digest).join(
            SERIES, PROFILES.c.series_id == SERIES.c.id
        )
        found: dict[int, list[BlobName]] = {}
        with self._engine.begin() as connection:
            for batch in _batches(ids):
                for blob, *named, time_nanos, digest in connection.execute(
                    query.where(PROFILES.c.blob_id.in_(batch))
                ):
                    name = BlobName(series_of(*named), Identity(time_nanos, digest))
                    found.setdefault(blob, []).append(name)
        return found

    def add(self, *blobs: tuple[BlobName, Facts], events: Iterable[Event] = ()) -> None:
        """Blobs with one profile each are live and count it; and these events are to be delivered."""
        with self.writing(*(name for name, _ in blobs)) as connection:
            add_profiles(connection, blobs, events)

    def add_singles(self, blobs: Sequence[tuple[BlobName, Facts]], events: Iterable[Event] = ()) -> None:
        """As `add`, for blobs by the thousand."""
        with self.writing(*(name for name, _ in blobs)) as connection:
            add_single_profiles(connection, blobs)
            for event in events:
                connection.execute(sa.insert(OUTBOX).values(_waiting(event)))

    def set_size(self, blob: int, size: int) -> None:
        """A blob has that size now, in bytes."""
        with self.writing() as connection:
            connection.execute(sa.update(BLOBS).where(BLOBS.c.id == blob).values(size=size))

    def replace(
        self,
        name: BlobName,
        facts: Facts,
        inputs_size: int,
        inputs: Iterable[BlobName],
        retired: Iterable[int],
    ) -> None:
        """A combined blob goes live in the moment in which those that it replaces, by id, stop being so.

        `inputs` are the profiles that it counts from now on: its own, and all that the retired ones
        counted. It may itself have been live, with fewer.
        """
        inputs = list(inputs)
        end = max(each.identity.time_nanos for each in (*inputs, name))
        with self.writing(name) as connection:
            new = put_blob(connection, name, facts, end, inputs_size)
            every = [{"blob": blob} for blob in {new, *retired}]
            uncount_profiles(connection, [row["blob"] for row in every])
            connection.execute(
                sa.update(BLOBS).where(BLOBS.c.id == sa.bindparam("blob")).values(live=BLOBS.c.id == new),
                every,
            )
            count_profiles(connection, new, name, inputs)

    def drop(self, blobs: Iterable[Blob]) -> None:
        """Drops rows of live blobs, and of all that they count."""
        dropped = [*blobs]
        ids = [blob.id for blob in dropped]
        if ids:
            with self.writing(*(blob.name for blob in dropped)) as connection:
                series = series_with(connection, ids)
                uncount_profiles(connection, ids)
                _delete(connection, ids)
                drop_empty_series(connection, series)

    def forget(self, blobs: Iterable[Blob]) -> None:
        """Drops rows of retired blobs, whose files are gone."""
        ids = [blob.id for blob in blobs]
        if ids:
            with self.writing() as connection:
                series = series_with(connection, ids)
                _delete(connection, ids)
                drop_empty_series(connection, series)

    def drop_empty_series(self) -> None:
        """Drop the series that have no profile, which earlier versions left."""
        with self.writing() as connection:
            drop_empty_series(connection)

    def merge(self, fingerprint: str) -> Merge | None:
        """The merge of that fingerprint, if it is kept."""
        with self._engine.begin() as connection:
            query = sa.select(MERGES).where(MERGES.c.fingerprint == fingerprint)
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return Merge(row.fingerprint, row.etag, row.size, row.sha256, _left_out(row.left_out))

    def merges(self) -> set[str]:
        """The fingerprints of all that are kept."""
        with self._engine.begin() as connection:
            return set(connection.execute(sa.select(MERGES.c.fingerprint)).scalars())

    def remember(self, merge: Merge, most: int) -> set[str]:
        """Keeps a merge, in place of the oldest where there are more than so many; returns what goes."""
        newest = sa.select(MERGES.c.number).order_by(MERGES.c.number.desc()).limit(most)
        gone = sa.delete(MERGES).where(MERGES.c.number.not_in(newest)).returning(MERGES.c.fingerprint)
        row = {**asdict(merge), "left_out": _listed(merge.left_out)}
        with self.writing() as connection:
            connection.execute(sa.delete(MERGES).where(MERGES.c.fingerprint == merge.fingerprint))
            connection.execute(sa.insert(MERGES).values(row))
            return set(connection.execute(gone).scalars())


def add_profiles(
    connection: sa.Connection, profiles: Iterable[tuple[BlobName, Facts]], events: Iterable[Event]
) -> None:
    """As `Catalog.add`, in a transaction that does more."""
    for name, facts in profiles:
        put_profile(connection, name, facts)
    for event in events:
        connection.execute(sa.insert(OUTBOX).values(_waiting(event)))


def _named(name: BlobName) -> tuple[str | int, ...]:
    """The columns of `_WANTED` after the number."""
    series, (time_nanos, digest) = name
    return series.service, series.type, series.labels_text, time_nanos, digest


def _batches(values: Iterable[T]) -> Iterator[list[T]]:
    every = list(values)
    return (every[start : start + _BATCH] for start in range(0, len(every), _BATCH))


def _delete(connection: sa.Connection, ids: Iterable[int]) -> None:
    every = [{"blob": blob} for blob in ids]
    connection.execute(sa.delete(BLOBS).where(BLOBS.c.id == sa.bindparam("blob")), every)


def _waiting(event: Event) -> dict[str, Any]:
    row = {"event": event.id, "created_nanos": event.created_nanos, "body": event.body}
    return {**row, "attempts": 0, "due_nanos": event.created_nanos}


def _listed(left_out: Iterable[LeftOut]) -> str:
    return json.dumps([asdict(entry) for entry in left_out])


def _left_out(text: str) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(**entry) for entry in json.loads(text))
