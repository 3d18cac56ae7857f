"""Summaries of selections for the pages: number and age of profiles, their versions and instances."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.selection_sql import selected, selected_series
from pgo_collector.catalog.tables import (
    BLOBS,
    DAY,
    IS_COMBINED,
    IS_LIVE,
    LABELS,
    ORIGINS,
    SERIES,
    floored,
)
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.times import DAY_NANOS

INSTANCE, VERSION = "instance", "version"
_MOST_VALUES = 12


@dataclass(frozen=True, slots=True)
class LabelValue:
    """A value of a label, the number of its profiles, and the times of the first and the last of them.

    The times are in ns since 1970.
    """

    text: str
    profiles: int
    begin_nanos: int
    end_nanos: int


@dataclass(frozen=True, slots=True)
class LabelValues:
    """The number of values of a label, and some of them."""

    count: int
    listed: tuple[LabelValue, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The live blobs of a selection.

    `profiles` is their number, `combined` the number of combined ones among them, `begin_nanos` and
    `end_nanos` the times of the first and the last profile in ns since 1970, `duration_nanos` the sum of the
    durations, `size` their bytes on disk, and `samples` the sum of their samples. `instances` and `versions`
    are the values of the labels `instance` and `version`, and list those with the latest profiles.
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
        return self.versions.listed[0].text if self.versions.listed else ""


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
        """Return the time of a selection's last profile up to now, in ns since 1970; None without one.

        Hosts whose clocks are ahead may have sent profiles from after now.
        """
        until_now = BLOBS.c.end_nanos <= time.time_ns()
        newest = sa.select(sa.func.max(BLOBS.c.end_nanos)).where(selected(selection), until_now)
        with self._catalog.reading() as connection:
            found: int | None = connection.execute(newest).scalar()
            return found

    def label_values(self, selection: Selection, key: str, most: int, search: str = "") -> LabelValues:
        """Return the values of a label in a selection that contain a text, those with most profiles first.

        At most `most` are listed. ASCII letters are searched for in any case.
        """
        with self._catalog.reading() as connection:
            return _values(connection, selection, key, most=most, search=search, is_by_number=True)

    def without_label(self, selection: Selection, key: str) -> int:
        """Return the number of a selection's live blobs that hold profiles without a label."""
        without = replace(selection, matchers=(*selection.matchers, Matcher(key, frozenset([""]))))
        with self._catalog.reading() as connection:
            count = sa.select(sa.func.count()).select_from(BLOBS).where(selected(without))
            return int(connection.execute(count).scalar_one())

    def seen_before(self, selection: Selection, key: str, values: Collection[str]) -> set[str]:
        """Return which values of a label series of a selection have that have profiles from before it begins.

        Profiles in combined blobs whose labels a roll-up dropped aren't looked at.
        """
        if selection.begin is None:
            return set()
        earlier = (BLOBS.c.series_id == LABELS.c.series_id) & IS_LIVE & (BLOBS.c.time_nanos < selection.begin)
        query = (
            sa.select(LABELS.c.value)
            .distinct()
            .where(LABELS.c.key == key, LABELS.c.value.in_(values), sa.exists().where(earlier))
            .where(LABELS.c.series_id.in_(selected_series(selection)))
        )
        with self._catalog.reading() as connection:
            return {*connection.execute(query).scalars()}

    def steps(self, selection: Selection, begin: int, width: int) -> dict[int, int]:
        """Return how many live blobs of a selection begin in each step of time.

        Steps have `width` ns, and are counted from `begin` on, in ns since 1970. Blobs that begin earlier, as
        combined ones may, are in step 0.
        """
        first, first_left = divmod(begin, width)
        from_begin = sa.case((BLOBS.c.time_nanos < begin, begin), else_=BLOBS.c.time_nanos)
        whole, left = floored(from_begin, width)
        step = whole - sa.literal(first) - sa.case((left < first_left, 1), else_=0)
        query = sa.select(step, sa.func.count()).where(selected(selection)).group_by(step)
        found: defaultdict[int, int] = defaultdict(int)
        with self._catalog.reading() as connection:
            for number, count in connection.execute(query):
                found[int(number)] += count
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


def _values(
    connection: sa.Connection,
    selection: Selection,
    key: str,
    *,
    most: int = _MOST_VALUES,
    search: str = "",
    is_by_number: bool = False,
) -> LabelValues:
    """Return the values of a label in the series of the blobs, and in those from which roll-ups made them.

    The values with the latest profiles up to now come first, or the ones with the most.
    """
    chosen = [LABELS.c.key == key, selected(selection)]
    if search:
        chosen.append(LABELS.c.value.icontains(search, autoescape=True))
    columns = BLOBS.c.id, BLOBS.c.time_nanos, BLOBS.c.end_nanos, LABELS.c.value
    blobs = sa.select(*columns).select_from(BLOBS).where(*chosen)
    own = blobs.join(LABELS, LABELS.c.series_id == BLOBS.c.series_id)
    origins = blobs.join(ORIGINS, ORIGINS.c.blob_id == BLOBS.c.id).join(
        LABELS, LABELS.c.series_id == ORIGINS.c.series_id
    )
    found = sa.union(own, origins).subquery()  # a blob counts once for each of its values
    profiles, latest = sa.func.count(), sa.func.max(found.c.end_nanos)
    until_now = sa.case((found.c.end_nanos <= time.time_ns(), found.c.end_nanos), else_=0)
    query = (
        sa.select(found.c.value, profiles, sa.func.min(found.c.time_nanos), latest, sa.func.count().over())
        .group_by(found.c.value)
        .order_by(*([profiles.desc()] if is_by_number else []), sa.func.max(until_now).desc(), found.c.value)
        .limit(most)
    )
    rows = connection.execute(query).all()
    listed = tuple(LabelValue(*row[:-1]) for row in rows)
    return LabelValues(rows[0][-1] if rows else 0, listed)
