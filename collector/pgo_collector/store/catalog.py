"""The catalog: which blobs there are, which of them are live, and which profiles each one counts.

Every function is one transaction. It can be lost: `reconcile` rebuilds it from the blobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from pgo_collector.engine.tasks import Facts, LeftOut
from pgo_collector.errors import CatalogUnreadable
from pgo_collector.store.blobs import BlobName, Identity, Series

_metadata = sa.MetaData()

_blobs = sa.Table(
    "blobs",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("time_nanos", sa.BigInteger, nullable=False),
    sa.Column("duration_nanos", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    # The size of the .inputs beside it, and so 0 unless the blob is a combined one.
    sa.Column("inputs_size", sa.BigInteger, nullable=False),
    sa.Column("live", sa.Boolean, nullable=False),
    sa.Index("blobs_live", "service", "type", "live"),
)

# Every profile that was ever answered for, and the one live blob that counts it now.
_profiles = sa.Table(
    "profiles",
    _metadata,
    sa.Column("service", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, primary_key=True),
    sa.Column("time_nanos", sa.BigInteger, primary_key=True),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("blob_id", sa.ForeignKey("blobs.id"), nullable=False, index=True),
)

# The merge that merged/ holds, by the fingerprint of what it merges.
_merges = sa.Table(
    "merges",
    _metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("etag", sa.Text, nullable=False),
    sa.Column("left_out", sa.Text, nullable=False),
)

# What merged/ holds beside that merge: of each format asked for the last form, with its etag and the merge's.
_conversions = sa.Table(
    "conversions",
    _metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("merge", sa.Text, nullable=False),
    sa.Column("etag", sa.Text, nullable=False),
)

# The weighted merges that merged/ holds, of the blobs with the fingerprint `inputs`: the last of each format
# and weight.
_weighted = sa.Table(
    "weighted",
    _metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("inputs", sa.Text, nullable=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("weight", sa.Text, nullable=False),
    sa.Column("etag", sa.Text, nullable=False),
    sa.Column("left_out", sa.Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Blob:
    """A row of blobs, without what only people ask for."""

    id: int
    name: BlobName
    inputs_size: int
    live: bool


@dataclass(frozen=True, slots=True)
class Merge:
    """A row of merges; `etag` is the sha256 of the merged protobuf, hex."""

    series: Series
    fingerprint: str
    etag: str
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class WeightedMerge:
    """A row of weighted merges; `inputs` is the fingerprint of the plain merge of the same blobs."""

    series: Series
    fingerprint: str
    inputs: str
    format: str
    weight: str
    etag: str
    left_out: tuple[LeftOut, ...]


class Catalog:
    """The rows, in SQLite. Methods block; writes come from one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Opens the catalog, made if it is missing. Raises CatalogUnreadable."""
        self._engine = sa.create_engine(f"sqlite:///{path}", isolation_level=None)
        event.listen(self._engine, "connect", _set_up)
        event.listen(self._engine, "begin", _begin)
        self._writer = self._engine.execution_options(writes=True)
        try:
            with self._writer.begin() as connection:
                _metadata.create_all(connection)
        except sa.exc.DatabaseError as error:
            self.close()
            raise CatalogUnreadable(
                f"catalog {path}: {error.orig}; `pgo-collector reindex` makes it anew from the blobs"
            ) from error

    def close(self) -> None:
        """Closes the file."""
        self._engine.dispose()

    def live(self, series: Series) -> list[Blob]:
        """The blobs that count, in canonical order: by time, then by digest."""
        where = (_blobs.c.service == series.service) & (_blobs.c.type == series.type) & _blobs.c.live
        return self._select(where, _blobs.c.time_nanos, _blobs.c.digest)

    def rows(self) -> list[Blob]:
        """Every row, live or not."""
        return self._select(sa.true())

    def retired(self) -> list[Blob]:
        """The blobs that count no more and are still to be deleted."""
        return self._select(~_blobs.c.live)

    def counting(self, series: Series, identity: Identity) -> BlobName | None:
        """The blob that counts a profile; None if none does."""
        query = (
            sa.select(_blobs)
            .join(_profiles)
            .where(
                _profiles.c.service == series.service,
                _profiles.c.type == series.type,
                _profiles.c.time_nanos == identity.time_nanos,
                _profiles.c.digest == identity.digest,
            )
        )
        with self._engine.begin() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _name(row)

    def owners(self, series: Series) -> dict[Identity, int]:
        """Of every profile that is counted, the id of the blob that counts it."""
        query = sa.select(_profiles.c.time_nanos, _profiles.c.digest, _profiles.c.blob_id).where(
            _profiles.c.service == series.service, _profiles.c.type == series.type
        )
        with self._engine.begin() as connection:
            return {Identity(time, digest): blob for time, digest, blob in connection.execute(query)}

    def add(self, *blobs: tuple[BlobName, Facts]) -> None:
        """Blobs with one profile each are live and count it."""
        with self._writer.begin() as connection:
            for name, facts in blobs:
                _count(connection, _put(connection, name, facts, 0), name.series, [name.identity])

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
        with self._writer.begin() as connection:
            new = _put(connection, name, facts, inputs_size)
            every = [{"blob": blob} for blob in {new, *retired}]
            connection.execute(sa.delete(_profiles).where(_profiles.c.blob_id == sa.bindparam("blob")), every)
            connection.execute(
                sa.update(_blobs).where(_blobs.c.id == sa.bindparam("blob")).values(live=_blobs.c.id == new),
                every,
            )
            _count(connection, new, name.series, inputs)

    def forget(self, blobs: Iterable[Blob]) -> None:
        """Drops rows of retired blobs, whose files are gone."""
        every = [{"blob": blob.id} for blob in blobs]
        if every:
            with self._writer.begin() as connection:
                connection.execute(sa.delete(_blobs).where(_blobs.c.id == sa.bindparam("blob")), every)

    def merge(self, fingerprint: str) -> Merge | None:
        """The merge of that fingerprint, if it is the last one made."""
        with self._engine.begin() as connection:
            row = connection.execute(
                sa.select(_merges).where(_merges.c.fingerprint == fingerprint)
            ).one_or_none()
        if row is None:
            return None
        return Merge(Series(row.service, row.type), row.fingerprint, row.etag, _left_out(row.left_out))

    def conversion(self, fingerprint: str) -> str | None:
        """The etag of the conversion of that fingerprint, if it is there."""
        query = sa.select(_conversions.c.etag).where(_conversions.c.fingerprint == fingerprint)
        with self._engine.begin() as connection:
            return connection.execute(query).scalar_one_or_none()

    def weighted(self, fingerprint: str) -> WeightedMerge | None:
        """The weighted merge of that fingerprint, if it is there."""
        query = sa.select(_weighted).where(_weighted.c.fingerprint == fingerprint)
        with self._engine.begin() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return WeightedMerge(
            series=Series(row.service, row.type),
            fingerprint=row.fingerprint,
            inputs=row.inputs,
            format=row.format,
            weight=row.weight,
            etag=row.etag,
            left_out=_left_out(row.left_out),
        )

    def fingerprints(self) -> set[str]:
        """Of all merges, conversions and weighted merges that are remembered."""
        query = sa.union(*(sa.select(table.c.fingerprint) for table in (_merges, _conversions, _weighted)))
        with self._engine.begin() as connection:
            return set(connection.execute(query).scalars())

    def remember(self, merge: Merge) -> None:
        """Takes the place of the merge that its series had before, and of what else was made of others."""
        series = merge.series
        with self._writer.begin() as connection:
            connection.execute(sa.delete(_merges).where(*_of(_merges, series)))
            connection.execute(
                sa.delete(_conversions).where(*_of(_conversions, series), _conversions.c.merge != merge.etag)
            )
            connection.execute(
                sa.delete(_weighted).where(*_of(_weighted, series), _weighted.c.inputs != merge.fingerprint)
            )
            row = {"fingerprint": merge.fingerprint, "etag": merge.etag, "left_out": _listed(merge.left_out)}
            connection.execute(sa.insert(_merges).values(**series._asdict(), **row))

    def remember_conversion(self, merge: Merge, format_: str, fingerprint: str, etag: str) -> None:
        """Takes the place of the one that the series of the merge had before in that format."""
        with self._writer.begin() as connection:
            same = (*_of(_conversions, merge.series), _conversions.c.format == format_)
            connection.execute(sa.delete(_conversions).where(*same))
            row = {"fingerprint": fingerprint, "format": format_, "merge": merge.etag, "etag": etag}
            connection.execute(sa.insert(_conversions).values(**merge.series._asdict(), **row))

    def remember_weighted(self, merge: WeightedMerge) -> None:
        """Takes the place of those of its series that are of other blobs, or have its format and weight."""
        alike = (_weighted.c.format == merge.format) & (_weighted.c.weight == merge.weight)
        gone = alike | (_weighted.c.inputs != merge.inputs)
        row = {
            "fingerprint": merge.fingerprint,
            "inputs": merge.inputs,
            "format": merge.format,
            "weight": merge.weight,
            "etag": merge.etag,
            "left_out": _listed(merge.left_out),
        }
        with self._writer.begin() as connection:
            connection.execute(sa.delete(_weighted).where(*_of(_weighted, merge.series), gone))
            connection.execute(sa.insert(_weighted).values(**merge.series._asdict(), **row))

    def _select(self, where: sa.ColumnElement[bool], *order: sa.ColumnElement[Any]) -> list[Blob]:
        query = sa.select(_blobs)
        with self._engine.begin() as connection:
            rows = connection.execute(query.where(where).order_by(*order)).all()
        return [Blob(row.id, _name(row), row.inputs_size, row.live) for row in rows]


def _put(connection: sa.Connection, name: BlobName, facts: Facts, inputs_size: int) -> int:
    """The id of the row of that name, made or made live."""
    values = {
        "service": name.series.service,
        "type": name.series.type,
        "time_nanos": facts.time_nanos,
        "duration_nanos": facts.duration_nanos,
        "digest": facts.digest,
        "size": facts.size,
        "samples": facts.samples,
        "inputs_size": inputs_size,
        "live": True,
    }
    known = connection.execute(sa.select(_blobs.c.id).where(_blobs.c.name == str(name))).scalar_one_or_none()
    if known is None:
        added = sa.insert(_blobs).values(name=str(name), **values).returning(_blobs.c.id)
        return int(connection.execute(added).scalar_one())
    connection.execute(sa.update(_blobs).where(_blobs.c.id == known).values(values))
    return int(known)


def _count(connection: sa.Connection, blob: int, series: Series, inputs: Iterable[Identity]) -> None:
    rows = [
        {"service": series.service, "type": series.type, "blob_id": blob, **identity._asdict()}
        for identity in inputs
    ]
    connection.execute(sa.insert(_profiles), rows)


def _of(table: sa.Table, series: Series) -> tuple[sa.ColumnElement[bool], ...]:
    """What the rows of a series have in common."""
    return table.c.service == series.service, table.c.type == series.type


def _listed(left_out: Iterable[LeftOut]) -> str:
    return json.dumps([asdict(entry) for entry in left_out])


def _left_out(text: str) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(**entry) for entry in json.loads(text))


def _name(row: Any) -> BlobName:
    return BlobName(Series(row.service, row.type), Identity(row.time_nanos, row.digest))


def _set_up(connection: Any, _: object) -> None:
    """FULL: a commit is on disk before the client hears of it."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """The driver would begin only at the first change; this way what is read before belongs to it too."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
