"""Reading and writing the rows of blobs, and of the series and profiles that belong to them.

The statements of a submit are prepared: what SQLAlchemy does around one takes longer than running it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import starmap
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeVar

import sqlalchemy as sa

from pgo_collector.catalog.statements import PreparedInsert, PreparedQuery
from pgo_collector.catalog.tables import BLOBS, IS_LIVE, LABELS, ORIGINS, PROFILES, SERIES
from pgo_collector.model.facts import Facts
from pgo_collector.model.series import SHORT_LABELS, BlobName, Identity, Series

_MARK_BITS = 40
# The columns that name a profile, in BLOBS and PROFILES.
_PROFILE = ("series_id", "time_nanos", "digest")
# The rows that are fetched at a time.
_PART = 4096
# Values in one statement; SQLite limits them.
_BATCH = 500
T = TypeVar("T")
_NONE_KNOWN: Mapping[Series, int] = MappingProxyType({})


class Blob(NamedTuple):
    """A blob's row. `size` is in bytes, with the .inputs; `end_nanos` is the time of its last profile."""

    id: int
    name: BlobName
    inputs_size: int
    live: bool
    size: int
    end_nanos: int


NAMED_BLOBS = BLOBS.join(SERIES, BLOBS.c.series_id == SERIES.c.id)
NAMED = (SERIES.c.service, SERIES.c.type, SERIES.c.labels)
# The arguments of `_blob`.
_BLOB_COLUMNS = (
    BLOBS.c.id, *NAMED, BLOBS.c.time_nanos, BLOBS.c.digest,
    BLOBS.c.inputs_size, BLOBS.c.live, BLOBS.c.size + BLOBS.c.inputs_size, BLOBS.c.end_nanos,
)  # fmt: skip


def _same(table: sa.FromClause, *columns: str) -> list[sa.ColumnElement[bool]]:
    return [table.c[column] == sa.bindparam(column) for column in columns]


def _put(insert: Any, where: sa.ColumnElement[bool] | None = None) -> Any:
    """Return the insert of a blob that updates the one with the same name, if `where` holds."""
    new = insert.inline()  # an id is returned only where it is asked for
    changed = ("end_nanos", "duration_nanos", "size", "samples", "inputs_size", "live")
    return new.on_conflict_do_update(
        index_elements=_PROFILE,
        set_={column: new.excluded[column] for column in changed},
        where=where,
    )


def _put_and_return(insert: Any) -> Any:
    return _put(insert).returning(BLOBS.c.id)


def _claim(insert: Any) -> Any:
    """Return the insert of a blob that does nothing if there is one with the same name."""
    return insert.inline().on_conflict_do_nothing(index_elements=_PROFILE)


_FIND_SERIES = sa.select(SERIES.c.id).where(*_same(SERIES, "service", "type", "labels"))
_KNOWN_SERIES = PreparedQuery(_FIND_SERIES)
_NEW_SERIES = PreparedInsert(
    SERIES, "service", "type", "labels", "rolled_up", then=lambda insert: insert.returning(SERIES.c.id)
)
_NEW_LABELS = PreparedInsert(LABELS, "series_id", "key", "value")
_SERIES_WITH = [
    sa.select(column).distinct().where(key == sa.bindparam("blob"))
    for column, key in (
        (BLOBS.c.series_id, BLOBS.c.id),
        (PROFILES.c.series_id, PROFILES.c.blob_id),
        (ORIGINS.c.series_id, ORIGINS.c.blob_id),
    )
]
_IS_EMPTY = sa.select(SERIES.c.id).where(
    SERIES.c.id == sa.bindparam("series"),
    *(~sa.exists().where(table.c.series_id == SERIES.c.id) for table in (BLOBS, PROFILES, ORIGINS)),
)
_BLOB = [column.name for column in BLOBS.c if not column.primary_key]
_PUT_BLOBS = PreparedInsert(BLOBS, *_BLOB, then=partial(_put, where=IS_LIVE))
_PUT_BLOB = PreparedInsert(BLOBS, *_BLOB, then=_put_and_return)
_CLAIM_BLOB = PreparedInsert(BLOBS, *_BLOB, then=_claim)
_NEW_PROFILES = PreparedInsert(
    PROFILES,
    *_PROFILE,
    computed={"blob_id": sa.select(BLOBS.c.id).where(*_same(BLOBS, *_PROFILE)).scalar_subquery()},
)
_OWN_SERIES = SERIES.alias("own_series")
_SAME_BYTES = PROFILES.alias("same_bytes")
_FIRST = (
    sa.select(sa.func.min(_SAME_BYTES.c.time_nanos))
    .where(_SAME_BYTES.c.series_id == _OWN_SERIES.c.id, *_same(_SAME_BYTES, "digest"))
    .scalar_subquery()
)
_COUNTING = PreparedQuery(
    sa.select(_OWN_SERIES.c.id, _FIRST, *_BLOB_COLUMNS)
    .select_from(
        _OWN_SERIES.outerjoin(
            PROFILES,
            sa.and_(PROFILES.c.series_id == _OWN_SERIES.c.id, *_same(PROFILES, "time_nanos", "digest")),
        )
        .outerjoin(BLOBS, BLOBS.c.id == PROFILES.c.blob_id)
        .outerjoin(SERIES, SERIES.c.id == BLOBS.c.series_id)
    )
    .where(*_same(_OWN_SERIES, "service", "type", "labels"))
)

_TIMES = PreparedQuery(
    sa.select(PROFILES.c.time_nanos)
    .join(SERIES, SERIES.c.id == PROFILES.c.series_id)
    .where(*_same(SERIES, "service", "type", "labels"), *_same(PROFILES, "digest"))
)


class Counting(NamedTuple):
    """The blob that counts each profile, None if none does, and the ids of those of their series that have
    rows.

    `firsts` has the first time of the counted profiles with the same series and bytes as each, in ns since
    1970, if there are any.
    """

    blobs: dict[BlobName, Blob | None]
    series: dict[Series, int]
    firsts: dict[BlobName, int]


def read_counting(connection: sa.Connection, profiles: Sequence[BlobName]) -> Counting:
    """Return which blobs count the profiles with these names."""
    keys = [_key(profile.series) | profile.identity._asdict() for profile in profiles]
    counting = Counting({}, {}, {})
    for profile, rows in zip(profiles, _COUNTING.every(connection, keys), strict=True):
        counting.blobs[profile] = None
        for series, first, *blob in rows:
            counting.series[profile.series] = series
            if first is not None:
                counting.firsts[profile] = first
            counting.blobs[profile] = _blob(*blob) if blob[0] is not None else None
    return counting


def read_times(connection: sa.Connection, profiles: Sequence[tuple[Series, str]]) -> list[list[int]]:
    """Return the times, in ns since 1970, of the counted profiles with each series and digest."""
    keys = [_key(series) | {"digest": digest} for series, digest in profiles]
    return [[time for (time,) in rows] for rows in _TIMES.every(connection, keys)]


def read_blobs(
    connection: sa.Connection,
    where: sa.ColumnElement[bool],
    *order: sa.ColumnElement[Any],
    limit: int | None = None,
) -> Iterator[Blob]:
    """Yield the first `limit` matching blobs in this order, read one by one."""
    query = sa.select(*_BLOB_COLUMNS).select_from(NAMED_BLOBS).where(where).order_by(*order).limit(limit)
    yield from starmap(_blob, connection.execute(query))


def read_in_order(connection: sa.Connection, where: sa.ColumnElement[bool]) -> Iterator[Blob]:
    """Yield the matching blobs in canonical order: by time, then by digest."""
    return read_blobs(connection, where, BLOBS.c.time_nanos, BLOBS.c.digest)


def read_newest(connection: sa.Connection, where: sa.ColumnElement[bool], limit: int) -> Iterator[Blob]:
    """Yield the last `limit` matching blobs in the reverse of canonical order."""
    return read_blobs(connection, where, BLOBS.c.time_nanos.desc(), BLOBS.c.digest.desc(), limit=limit)


class BlobTable(NamedTuple):
    """Columns of n blobs' rows: what a merge needs of them, of which there may be tens of thousands.

    `series_numbers` (n,) int32 are indexes into `series`, `times` (n,) int64 are in ns since 1970, `digests`
    has 32 bytes a blob, and `is_combined` one, 0 or 1.
    """

    series: tuple[Series, ...]
    series_numbers: array[int]
    times: array[int]
    digests: bytes
    is_combined: bytes

    @classmethod
    def of(cls, blobs: Iterable[Blob]) -> Self:
        """Return the table of these blobs, in their order."""
        numbers: dict[Series, int] = {}
        series, times, digests, combined = array("i"), array("q"), bytearray(), bytearray()
        for blob in blobs:
            name = blob.name
            series.append(numbers.setdefault(name.series, len(numbers)))
            times.append(name.identity.time_nanos)
            digests += bytes.fromhex(name.identity.digest)
            combined.append(blob.inputs_size > 0)
        return cls(tuple(numbers), series, times, bytes(digests), bytes(combined))


def read_table(connection: sa.Connection, where: sa.ColumnElement[bool]) -> BlobTable:
    """Return the matching blobs in canonical order. This takes a third of the time of `read_in_order`."""
    order = (BLOBS.c.time_nanos, BLOBS.c.digest)
    query = sa.select(BLOBS.c.series_id, *order, BLOBS.c.inputs_size).where(where).order_by(*order)
    numbers: dict[int, int] = {}
    series, times, digests, combined = array("i"), array("q"), bytearray(), bytearray()
    for rows in connection.execute(query).partitions(_PART):
        ids, of_rows, texts, inputs = zip(*rows, strict=True)
        series.extend([numbers.setdefault(each, len(numbers)) for each in ids])
        times.extend(of_rows)
        digests += bytes.fromhex("".join(texts))
        combined += bytes([size > 0 for size in inputs])
    named: dict[int, Series] = {}
    for batch in batches(numbers):
        query = sa.select(SERIES.c.id, *NAMED).where(SERIES.c.id.in_(batch))
        for id_, *columns in connection.execute(query):
            named[id_] = series_of(*columns)
    return BlobTable(tuple(named[id_] for id_ in numbers), series, times, bytes(digests), bytes(combined))


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """Return values in parts, each few enough for one statement."""
    every = list(values)
    return (every[start : start + _BATCH] for start in range(0, len(every), _BATCH))


def series_of(service: str, type_: str, labels: str) -> Series:
    """Return the series with these columns in SERIES. One with short labels, as most have, is cached."""
    parse = _short_series if len(labels) <= SHORT_LABELS else Series.parse
    return parse(service, type_, labels)


_short_series = lru_cache(maxsize=1 << 14)(Series.parse)


def series_id(series: Series) -> sa.ScalarSelect[int]:
    """Return the query for the id of a series."""
    return (
        sa.select(SERIES.c.id)
        .where(
            SERIES.c.service == series.service,
            SERIES.c.type == series.type,
            SERIES.c.labels == series.labels_text,
        )
        .scalar_subquery()
    )


def put_blob(
    connection: sa.Connection, name: BlobName, facts: Facts, end_nanos: int, inputs_size: int
) -> int:
    """Insert a live blob, or make its row live; return the row's id."""
    row = _blob_row(_put_series(connection, name.series), name, facts, end_nanos, inputs_size)
    ((id_,),) = _PUT_BLOB.run(connection, row)
    return int(id_)


def claim_blob(connection: sa.Connection, name: BlobName, facts: Facts, *, may_be_there: bool) -> bool:
    """Take the name of a blob that is going to be stored, with a row that isn't live.

    Return False if there is a live blob of this name, or any blob unless it `may_be_there`.
    """
    series = _put_series(connection, name.series)
    row = _blob_row(series, name, facts, name.identity.time_nanos, 0)
    if _CLAIM_BLOB.run(connection, {**row, "live": False}).rowcount:
        return True
    is_live = connection.execute(sa.select(BLOBS.c.live).where(*_is_named(name))).scalar_one()
    return may_be_there and not is_live


def add_profiles(
    connection: sa.Connection,
    entries: Sequence[tuple[BlobName, Facts]],
    known: Mapping[Series, int] = _NONE_KNOWN,
) -> bool:
    """Insert live blobs with one profile each, which they count. `known` are ids of series that have rows.

    Return False if some of the names are taken by blobs that aren't live: see `names_taken`.
    """
    if not entries:
        return True
    # Sorted, so that two transactions with the same names wait for each other, and not both for ever.
    ordered = sorted(entries, key=lambda entry: entry[0])
    every = dict.fromkeys(name.series for name, _ in ordered)
    missing = [series for series in every if series not in known]
    ids = {**known, **_put_every_series(connection, missing)} if missing else known
    rows = [_blob_row(ids[name.series], name, facts, name.identity.time_nanos, 0) for name, facts in ordered]
    if _PUT_BLOBS.run(connection, rows).rowcount < len(rows):
        return False
    _NEW_PROFILES.run(connection, rows)
    return True


def names_taken(connection: sa.Connection, names: Collection[BlobName]) -> set[BlobName]:
    """Return the names that blobs have which aren't live, and which count no profile: what is being stored or
    deleted.
    """
    return {
        name
        for name in names
        if connection.execute(sa.select(BLOBS.c.id).where(*_is_named(name), ~BLOBS.c.live)).first()
    }


def _is_named(name: BlobName) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        BLOBS.c.series_id == series_id(name.series),
        BLOBS.c.time_nanos == name.identity.time_nanos,
        BLOBS.c.digest == name.identity.digest,
    )


def remove_profiles(connection: sa.Connection, names: Iterable[BlobName]) -> None:
    """Delete the rows that `add_profiles` has inserted, in the same transaction."""
    ids = [connection.execute(sa.select(BLOBS.c.id).where(*_is_named(name))).scalar_one() for name in names]
    if ids:
        series = series_with(connection, ids)
        unassign_profiles(connection, ids)
        delete_blobs(connection, ids)
        drop_empty_series(connection, series)


def delete_blobs(connection: sa.Connection, ids: Iterable[int]) -> None:
    """Delete the rows of blobs that count no profile."""
    every = [{"blob": blob} for blob in ids]
    connection.execute(sa.delete(BLOBS).where(BLOBS.c.id == sa.bindparam("blob")), every)


def _blob_row(
    series: int, name: BlobName, facts: Facts, end_nanos: int, inputs_size: int
) -> dict[str, int | str]:
    # Two numbers of 40 bits, hashed from the name; their sums over millions of blobs fit 63 bits.
    number = int.from_bytes(hashlib.sha256(str(name).encode()).digest())
    mask = (1 << _MARK_BITS) - 1
    return {
        "series_id": series,
        **name.identity._asdict(),
        "end_nanos": end_nanos,
        "duration_nanos": facts.duration_nanos,
        "size": facts.size,
        "samples": facts.samples,
        "inputs_size": inputs_size,
        "live": True,
        "mark": number & mask,
        "second_mark": number >> _MARK_BITS & mask,
    }


def assign_profiles(connection: sa.Connection, blob: int, name: BlobName, inputs: Iterable[BlobName]) -> None:
    """Have the blob with this id and name count the profiles `inputs`."""
    by_series: dict[Series, list[Identity]] = {}
    for each in inputs:
        by_series.setdefault(each.series, []).append(each.identity)
    ids = _put_every_series(connection, by_series)
    rows = [
        {"series_id": ids[series], "blob_id": blob, **identity._asdict()}
        for series, identities in by_series.items()
        for identity in identities
    ]
    connection.execute(sa.insert(PROFILES), rows)
    # An input from an earlier roll-up has lost labels. The profiles inside it have theirs, and are inputs
    # too.
    origins = [{"blob_id": blob, "series_id": id_} for series, id_ in ids.items() if not series.dropped]
    if name.series.dropped and origins:
        connection.execute(sa.insert(ORIGINS), origins)


def unassign_profiles(connection: sa.Connection, blobs: Sequence[int]) -> None:
    """Have these blobs count no profiles."""
    every = [{"blob": blob} for blob in blobs]
    for table in (PROFILES, ORIGINS):
        connection.execute(sa.delete(table).where(table.c.blob_id == sa.bindparam("blob")), every)


def series_with(connection: sa.Connection, blobs: Sequence[int]) -> set[int]:
    """Return the ids of the series of these blobs, and of the profiles that they count."""
    found: set[int] = set()
    for blob in blobs:
        for query in _SERIES_WITH:
            found |= {*connection.execute(query, {"blob": blob}).scalars()}
    return found


def drop_empty_series(connection: sa.Connection, series: Iterable[int]) -> None:
    """Drop the rows of those of the series that have neither a blob nor a profile."""
    every = (connection.execute(_IS_EMPTY, {"series": each}).scalar() for each in series)
    empty = [{"series": each} for each in every if each is not None]
    if empty:
        for table, column in ((LABELS, LABELS.c.series_id), (SERIES, SERIES.c.id)):
            connection.execute(sa.delete(table).where(column == sa.bindparam("series")), empty)


def _put_series(connection: sa.Connection, series: Series) -> int:
    """Return the id of a series; insert its row if it is missing."""
    return _put_every_series(connection, [series])[series]


def _put_every_series(connection: sa.Connection, every: Collection[Series]) -> dict[Series, int]:
    """Return the id of each series; insert the rows that are missing."""
    found = _KNOWN_SERIES.every(connection, [_key(series) for series in every])
    return {
        series: int(known[0][0]) if known else _new_series(connection, series)
        for series, known in zip(every, found, strict=True)
    }


def _new_series(connection: sa.Connection, series: Series) -> int:
    ((id_,),) = _NEW_SERIES.run(connection, {**_key(series), "rolled_up": bool(series.dropped)})
    labels = [{"series_id": id_, "key": key, "value": value} for key, value in series.labels]
    if labels:
        _NEW_LABELS.run(connection, labels)
    return int(id_)


def _key(series: Series) -> dict[str, str]:
    """Return the columns that identify a series."""
    return {"service": series.service, "type": series.type, "labels": series.labels_text}


def _blob(  # noqa: PLR0917 - called with thousands of rows
    id_: int,
    service: str,
    type_: str,
    labels: str,
    time_nanos: int,
    digest: str,
    inputs_size: int,
    live: int,
    *others: int,
) -> Blob:
    name = BlobName(series_of(service, type_, labels), Identity(time_nanos, digest))
    return Blob(id_, name, inputs_size, bool(live), *others)
