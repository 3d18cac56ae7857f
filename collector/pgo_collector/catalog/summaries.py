"""Summaries of selections for the pages: number and age of profiles, their versions and instances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.selection_sql import selected
from pgo_collector.catalog.tables import BLOBS, DAY, IS_COMBINED, LABELS, ORIGINS, SERIES
from pgo_collector.model.selection import Selection
from pgo_collector.model.times import DAY_NANOS

INSTANCE, VERSION = "instance", "version"
_MOST_VALUES = 12


@dataclass(frozen=True, slots=True)
class LabelValue:
    """A value of a label, the number of its profiles, and the time of the last of them, in ns since 1970."""

    text: str
    profiles: int
    end_nanos: int


@dataclass(frozen=True, slots=True)
class LabelValues:
    """The number of values of a label, and the values with the latest profiles."""

    count: int
    latest: tuple[LabelValue, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The live blobs of a selection.

    `profiles` is their number, `combined` the number of combined ones among them, `begin_nanos` and
    `end_nanos` the times of the first and the last profile in ns since 1970, `duration_nanos` the sum of the
    durations, `size` their bytes on disk, and `samples` the sum of their samples. `instances` and `versions`
    are the values of the labels `instance` and `version`.
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

    @property
    def newest_version(self) -> str:
        """Return the version with the latest profile; empty if no profile has one."""
        return self.versions.latest[0].text if self.versions.latest else ""


class Summaries:
    """Queries on the catalog for summaries. Methods block, and each is one transaction."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def summary(self, selection: Selection) -> Summary | None:
        """Return the summary of a selection; None if it has no blobs."""
        duration = sa.cast(
            BLOBS.c.duration_nanos, sa.Float
        )  # the sum of two hostile ones may overflow 64 bits
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

    def newest(self, selection: Selection) -> int | None:
        """Return the time of the last profile of a selection, in ns since 1970; None if it has no blobs."""
        newest = sa.select(sa.func.max(BLOBS.c.end_nanos)).where(selected(selection))
        with self._catalog.reading() as connection:
            found: int | None = connection.execute(newest).scalar()
            return found

    def days(self, services: Sequence[str], first: int) -> dict[str, dict[int, int]]:
        """Return how many live blobs each service has of each UTC day from `first` on, in days since 1970."""
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


def newest_version(summaries: Summaries, selection: Selection) -> str:
    """Return the version with the latest profile of a selection; empty if no profile has one."""
    summary = summaries.summary(selection)
    return summary.newest_version if summary else ""


def _values(connection: sa.Connection, selection: Selection, key: str) -> LabelValues:
    """Return the values of a label in the series of the blobs, and in those from which roll-ups made them."""
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
