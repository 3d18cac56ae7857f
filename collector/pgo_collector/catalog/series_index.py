"""The series index: which series have live profiles in a range of time, and the labels that they have.

It serves label browsers, which show all series at once: a hundred thousand in half a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import sqlalchemy as sa

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.rows import Blob, read_newest
from pgo_collector.catalog.selection_sql import in_scope, selected, series_in_scope
from pgo_collector.catalog.statements import is_one_of
from pgo_collector.catalog.tables import BLOBS, IS_COMBINED, IS_LIVE, LABELS, ORIGINS, SERIES
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import Scope


class StoredSeries(NamedTuple):
    """A series with live profiles: its id in the catalog, its service and its type."""

    id: int
    service: str
    type: str


class SeriesIndex:
    """Queries on the catalog for the series and labels of the services in a scope.

    Methods block, and each is one transaction. Where a roll-up dropped labels, the series are those from
    which it was made. `ids` are those of series; None stands for all in the scope.
    """

    def __init__(self, catalog: Catalog, scope: Scope) -> None:
        self._catalog = catalog
        self._scope = scope

    def series(self, begin: int | None, end: int | None) -> list[StoredSeries]:
        """Return the series with a live profile from `begin` on and before `end`, in ns since 1970."""
        own = sa.exists().where(BLOBS.c.series_id == SERIES.c.id, _between(begin, end))
        inside = (
            sa.exists()
            .where(ORIGINS.c.series_id == SERIES.c.id, ORIGINS.c.blob_id == BLOBS.c.id)
            .where(_overlaps(begin, end))
        )
        query = sa.select(SERIES.c.id, SERIES.c.service, SERIES.c.type).where(
            in_scope(self._scope), ~SERIES.c.rolled_up, own | _has_combined(begin, end) | inside
        )
        with self._catalog.reading() as connection:
            return [StoredSeries(*row) for row in connection.execute(query)]

    def values_by_series(self, key: str) -> dict[int, str]:
        """Return the value of a label in each series that has it."""
        query = sa.select(LABELS.c.series_id, LABELS.c.value).where(
            LABELS.c.key == key, self._of_scope(LABELS.c.series_id)
        )
        with self._catalog.reading() as connection:
            return {series: value for series, value in connection.execute(query)}  # noqa: C416 - of rows

    def keys(self, ids: Collection[int] | None) -> list[str]:
        """Return the keys of the labels of these series."""
        return self._distinct(LABELS.c.key, ids)

    def values(self, ids: Collection[int] | None, key: str) -> list[str]:
        """Return the values of a label in these series."""
        return self._distinct(LABELS.c.value, ids, LABELS.c.key == key)

    def newest(self, selections: Iterable[Selection]) -> list[Blob]:
        """Return the newest live blob of each selection that has one."""
        with self._catalog.reading() as connection:
            return [
                blob for selection in selections for blob in read_newest(connection, selected(selection), 1)
            ]

    def times(self, ids: Collection[int] | None) -> tuple[int, int] | None:
        """Return the times of the first and the last live profile, in ns since 1970; None without one."""
        query = sa.select(sa.func.min(BLOBS.c.time_nanos), sa.func.max(BLOBS.c.end_nanos)).where(
            IS_LIVE, self._of_scope(BLOBS.c.series_id)
        )
        if ids is not None:
            query = query.where(is_one_of(BLOBS.c.series_id, ids))
        with self._catalog.reading() as connection:
            first, last = connection.execute(query).one()
        return None if first is None else (first, last)

    def _distinct(
        self, column: sa.Column[str], ids: Collection[int] | None, *where: sa.ColumnElement[bool]
    ) -> list[str]:
        of_scope = self._of_scope(LABELS.c.series_id)
        query = sa.select(column).distinct().where(of_scope, *where).order_by(column)
        if ids is not None:
            query = query.where(is_one_of(LABELS.c.series_id, ids))
        with self._catalog.reading() as connection:
            return list(connection.execute(query).scalars())

    def _of_scope(self, series: sa.Column[int]) -> sa.ColumnElement[bool]:
        """Return the condition that a column has the id of a series in the scope."""
        return sa.true() if self._scope.is_every else series.in_(series_in_scope(self._scope))


def _between(begin: int | None, end: int | None) -> sa.ColumnElement[bool]:
    """Return the condition that a row of BLOBS is live and begins in a range of time."""
    since = sa.true() if begin is None else BLOBS.c.time_nanos >= begin
    return IS_LIVE & since & (sa.true() if end is None else BLOBS.c.time_nanos < end)


def _overlaps(begin: int | None, end: int | None) -> sa.ColumnElement[bool]:
    """Return the condition that a row is a live combined blob with a part of its time in the range."""
    since = sa.true() if begin is None else BLOBS.c.end_nanos >= begin
    return IS_LIVE & IS_COMBINED & since & (sa.true() if end is None else BLOBS.c.time_nanos < end)


def _has_combined(begin: int | None, end: int | None) -> sa.ColumnElement[bool]:
    return SERIES.c.id.in_(sa.select(BLOBS.c.series_id).where(_overlaps(begin, end)))
