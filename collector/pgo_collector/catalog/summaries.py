"""Summaries: how much of what is selected there is, how fresh it is, and where it comes from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.selecting import selected
from pgo_collector.catalog.tables import BLOBS, DAY, IS_COMBINED, LABELS, ORIGINS, SERIES
from pgo_collector.model.selection import Selection
from pgo_collector.model.times import DAY_NANOS

INSTANCE, VERSION = "instance", "version"
_MOST_VALUES = 12


@dataclass(frozen=True, slots=True)
class LabelValue:
    """A value of a label, the number of its profiles, and when the last of them was taken, in ns."""

    text: str
    profiles: int
    end_nanos: int


@dataclass(frozen=True, slots=True)
class LabelValues:
    """How many values of a label there are, and the latest of them."""

    count: int
    latest: tuple[LabelValue, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The live blobs of a selection: how many, and how many of them combined; the times of the first and the
    last profile, and the sum of their durations, in ns; the bytes on disk; the samples in all of them.

    `instances` and `versions` are the values of these labels.
    """

    profiles: int
    combined: int
    begin_nanos: int
    end_nanos: int
    duration_nanos: int
    size: int
    samples: int
    instances: LabelValues
    versions: LabelValues


class Summaries:
    """Reads the catalog; methods block, and each is one transaction."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def of(self, selection: Selection) -> Summary | None:
        """Of a selection; None if there is nothing in it."""
        duration = sa.cast(BLOBS.c.duration_nanos, sa.Float)  # two that clients made up may be over 64 bits
        blobs = sa.select(
            sa.func.count().label("profiles"),
            sa.func.count().filter(IS_COMBINED).label("combined"),
            sa.func.min(BLOBS.c.time_nanos).label("begin_nanos"),
            sa.func.max(BLOBS.c.end_nanos).label("end_nanos"),
            sa.func.sum(duration).label("duration_nanos"),
            sa.func.sum(BLOBS.c.size + BLOBS.c.inputs_size).label("size"),
            sa.func.sum(BLOBS.c.samples).label("samples"),
        ).where(selected(selection))
        with self._catalog.reading() as connection:
            row = connection.execute(blobs).one()
            if not row.profiles:
                return None
            return Summary(
                profiles=row.profiles,
                combined=row.combined,
                begin_nanos=row.begin_nanos,
                end_nanos=row.end_nanos,
                duration_nanos=int(row.duration_nanos),
                size=int(row.size),
                samples=int(row.samples),
                instances=_values(connection, selection, INSTANCE),
                versions=_values(connection, selection, VERSION),
            )

    def days(self, services: Sequence[str], first: int) -> dict[str, dict[int, int]]:
        """How many live blobs of each service were taken on each UTC day, by its number, from `first` on."""
        query = (
            sa.select(SERIES.c.service, DAY, sa.func.count())
            .join(BLOBS, BLOBS.c.series_id == SERIES.c.id)
            .where(BLOBS.c.live, BLOBS.c.time_nanos >= first * DAY_NANOS, SERIES.c.service.in_(services))
            .group_by(SERIES.c.service, DAY)
        )
        found: defaultdict[str, dict[int, int]] = defaultdict(dict)
        with self._catalog.reading() as connection:
            for service, of_day, count in connection.execute(query):
                found[service][int(of_day)] = count
        return found


def _values(connection: sa.Connection, selection: Selection, key: str) -> LabelValues:
    """Those of the blobs' own series, and of the series from which roll-ups made some of them."""
    own = sa.select(BLOBS.c.id, BLOBS.c.end_nanos, BLOBS.c.series_id).where(selected(selection))
    origins = (
        sa.select(BLOBS.c.id, BLOBS.c.end_nanos, ORIGINS.c.series_id)
        .join(ORIGINS, ORIGINS.c.blob_id == BLOBS.c.id)
        .where(selected(selection))
    )
    of_blobs = sa.union(own, origins).subquery()
    found = (
        sa.select(of_blobs.c.id, of_blobs.c.end_nanos, LABELS.c.value)
        .join(LABELS, LABELS.c.series_id == of_blobs.c.series_id)
        .where(LABELS.c.key == key)
        .distinct()
        .subquery()
    )
    count = sa.select(sa.func.count(found.c.value.distinct()))
    latest = sa.func.max(found.c.end_nanos)
    query = (
        sa.select(found.c.value, sa.func.count(), latest)
        .group_by(found.c.value)
        .order_by(latest.desc(), found.c.value)
        .limit(_MOST_VALUES)
    )
    values = tuple(LabelValue(*row) for row in connection.execute(query))
    return LabelValues(connection.execute(count).scalar_one(), values)
