"""The inventory: lists of the stored services and profiles, page by page, and how much is stored."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import sqlalchemy as sa

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.rows import series_of
from pgo_collector.catalog.selection_sql import in_scope, selected
from pgo_collector.catalog.tables import BLOBS, LABELS, SERIES
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import BlobName, Identity, Scope

# Label keys that are listed for a service. Clients make labels up, so there may be any number.
MOST_KEYS = 100
# Names compared with one that isn't stored: how much longer or shorter, how many, and how alike at least. The
# time of a comparison grows with the square of the length, so longer names have no name like them.
_APART, _MOST_COMPARED, _LIKE, _LONGEST_COMPARED = 8, 200, 0.75, 48


@dataclass(frozen=True, slots=True)
class StoredType:
    """The live blobs of one type of a service.

    `profiles` is their number, `combined` the number of combined ones among them, `begin_nanos` and
    `end_nanos` the times of the first and the last profile in ns since 1970, and `size` their bytes on disk.
    """

    type: str
    profiles: int
    combined: int
    begin_nanos: int
    end_nanos: int
    size: int


@dataclass(frozen=True, slots=True)
class StoredService:
    """A service with live blobs; `labels` has the number of values of each of up to MOST_KEYS keys."""

    service: str
    types: tuple[StoredType, ...]
    labels: dict[str, int]


class Totals(NamedTuple):
    """The number of live blobs, and their bytes on disk."""

    profiles: int
    size: int


class Position(NamedTuple):
    """A profile's place in the list. It stays valid when other profiles come or go.

    It has no number of the catalog's, which would tell how much is stored of services that a key isn't for.
    """

    time_nanos: int
    digest: str
    service: str
    labels: str


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """A live blob in the list; times and duration in ns, `size` in bytes."""

    position: Position
    name: BlobName
    end_nanos: int
    duration_nanos: int
    size: int
    samples: int
    is_combined: bool


class Inventory:
    """Queries on the catalog for lists. Methods block, and each is one transaction."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def usage(self, service: str, since_nanos: int) -> tuple[int, int]:
        """Return how many live profiles a service has from `since_nanos` on, and the bytes of all of them.

        The bytes include profiles from before `since_nanos`.
        """
        recent = sa.func.count().filter(BLOBS.c.time_nanos >= since_nanos)
        size = sa.func.coalesce(sa.func.sum(BLOBS.c.size + BLOBS.c.inputs_size), 0)
        series = sa.select(SERIES.c.id).where(SERIES.c.service == service)
        query = sa.select(recent, size).where(BLOBS.c.series_id.in_(series), BLOBS.c.live)
        with self._catalog.reading() as connection:
            count, total = connection.execute(query).one()
        return int(count), int(total)

    def nearest_service(self, service: str, scope: Scope) -> str | None:
        """Return the name of the service in a scope that is spelled most like a name without live blobs.

        None if the name has live blobs, is long, or no name is like it. Other letter cases count as the same
        letters. Of many names, those that begin the same are looked at.
        """
        if len(service) > _LONGEST_COMPARED:
            return None
        has_live = sa.exists().where(BLOBS.c.series_id == SERIES.c.id, BLOBS.c.live)
        length = sa.func.length(SERIES.c.service)
        query = (
            sa.select(SERIES.c.service)
            .where(in_scope(scope), has_live, length.between(len(service) - _APART, len(service) + _APART))
            .group_by(SERIES.c.service)
            .order_by(
                SERIES.c.service != service,
                sa.func.substr(SERIES.c.service, 1, 2) != service[:2],
                SERIES.c.service,
            )
            .limit(_MOST_COMPARED)
        )
        with self._catalog.reading() as connection:
            names = list(connection.execute(query).scalars())
        if service in names:
            return None
        by_letters = {name.casefold(): name for name in names}
        near = get_close_matches(service.casefold(), by_letters, 1, _LIKE)
        return by_letters[near[0]] if near else None

    def totals(self) -> dict[str, Totals]:
        """Return the totals of `single` and of `combined` profiles. Reads every blob's row."""
        combined = sa.func.count().filter(BLOBS.c.inputs_size > 0), _size(BLOBS.c.inputs_size > 0)
        single = sa.func.count().filter(BLOBS.c.inputs_size == 0), _size(BLOBS.c.inputs_size == 0)
        with self._catalog.reading() as connection:
            row = connection.execute(sa.select(*single, *combined).where(BLOBS.c.live)).one()
        return {"single": Totals(*row[:2]), "combined": Totals(*row[2:])}

    def services(self, scope: Scope, limit: int, after: str = "") -> list[StoredService]:
        """Return services in a scope that have live blobs, sorted: up to `limit` after the name `after`."""
        has_live = sa.exists().where(BLOBS.c.series_id == SERIES.c.id, BLOBS.c.live)
        page = (
            sa.select(SERIES.c.service)
            .distinct()
            .where(SERIES.c.service > after, has_live, in_scope(scope))
            .order_by(SERIES.c.service)
            .limit(limit)
        )
        with self._catalog.reading() as connection:
            names = list(connection.execute(page).scalars())
            types, labels = _types(connection, names), _labels(connection, names)
        return [StoredService(name, tuple(types[name]), labels[name]) for name in names]

    def profiles(
        self, selection: Selection, limit: int, after: Position | None = None
    ) -> list[StoredProfile]:
        """Return a selection's live blobs, the latest first: up to `limit` that come after a position."""
        place = (BLOBS.c.time_nanos, BLOBS.c.digest, SERIES.c.service, SERIES.c.labels)
        query = (
            sa.select(BLOBS, SERIES.c.service, SERIES.c.type, SERIES.c.labels)
            .join(SERIES, BLOBS.c.series_id == SERIES.c.id)
            .where(selected(selection), sa.true() if after is None else sa.tuple_(*place) < sa.tuple_(*after))
            .order_by(*(column.desc() for column in place))
            .limit(limit)
        )
        with self._catalog.reading() as connection:
            return [_profile(row) for row in connection.execute(query)]


def _size(where: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.coalesce(sa.func.sum(BLOBS.c.size + BLOBS.c.inputs_size).filter(where), 0)


def _types(connection: sa.Connection, services: list[str]) -> dict[str, list[StoredType]]:
    query = (
        sa.select(
            SERIES.c.service,
            SERIES.c.type,
            sa.func.count(),
            sa.func.count().filter(BLOBS.c.inputs_size > 0),
            sa.func.min(BLOBS.c.time_nanos),
            sa.func.max(BLOBS.c.end_nanos),
            sa.func.sum(BLOBS.c.size + BLOBS.c.inputs_size),
        )
        .join(BLOBS, BLOBS.c.series_id == SERIES.c.id)
        .where(BLOBS.c.live, SERIES.c.service.in_(services))
        .group_by(SERIES.c.service, SERIES.c.type)
        .order_by(SERIES.c.type)
    )
    found: defaultdict[str, list[StoredType]] = defaultdict(list)
    for service, *numbers in connection.execute(query):
        found[service].append(StoredType(*numbers))
    return found


def _labels(connection: sa.Connection, services: list[str]) -> dict[str, dict[str, int]]:
    """Return the number of values of each label key, for the first MOST_KEYS keys of each service."""
    has_live = sa.exists().where(BLOBS.c.series_id == SERIES.c.id, BLOBS.c.live)
    rank = sa.func.row_number().over(partition_by=SERIES.c.service, order_by=LABELS.c.key)
    ranked = (
        sa.select(
            SERIES.c.service,
            LABELS.c.key,
            sa.func.count(LABELS.c.value.distinct()).label("values"),
            rank.label("rank"),
        )
        .join(LABELS, LABELS.c.series_id == SERIES.c.id)
        .where(SERIES.c.service.in_(services), has_live)
        .group_by(SERIES.c.service, LABELS.c.key)
        .subquery()
    )
    query = sa.select(ranked.c.service, ranked.c.key, ranked.c["values"]).where(ranked.c.rank <= MOST_KEYS)
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for service, key, values in connection.execute(query.order_by(ranked.c.service, ranked.c.key)):
        found[service][key] = values
    return found


def _profile(row: Any) -> StoredProfile:
    series = series_of(row.service, row.type, row.labels)
    return StoredProfile(
        Position(row.time_nanos, row.digest, row.service, row.labels),
        BlobName(series, Identity(row.time_nanos, row.digest)),
        row.end_nanos,
        row.duration_nanos,
        row.size,
        row.samples,
        row.inputs_size > 0,
    )
