"""Catalogs of a million profiles in SQLite and ten million in PostgreSQL: how long it takes to find a few."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, product
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import sqlalchemy as sa
from pgo_collector.catalog import tables
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.database import Database
from pgo_collector.catalog.postgresql import PostgreSQL
from pgo_collector.catalog.selection_sql import selected
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.model.facts import Facts
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import BlobName, Identity, Series

from tests.bench.measure import progress
from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.interop.postgres_cluster import running_postgres
from tests.oracle.builder import seeded

# In SQLite, and in PostgreSQL, where ten times the services send as many each.
_PROFILES, _SHARED_PROFILES = 1_000_000, 10_000_000
_SERVICES, _SHARED_SERVICES = 40, 400
_REGIONS = [f"region-{number}" for number in range(5)]
_INSTANCES = [f"pod-{number}" for number in range(10)]
_DAY = 86_400 * 10**9
_DAYS = 7
_BATCH = 10_000
_TIMES = 200
_SIZE, _SAMPLES, _DURATION = 27_000, 800, 10**10


class Fleet(NamedTuple):
    """Profiles of some services, `count` in all, at times that are spread over the days."""

    services: int
    profiles: int

    @property
    def series(self) -> list[Series]:
        """Return the series, one for each service, region and instance."""
        return [
            Series(f"service-{service}", CPU, (("instance", f"{region}-{instance}"), ("region", region)))
            for service, region, instance in product(range(self.services), _REGIONS, _INSTANCES)
        ]

    @property
    def series_count(self) -> int:
        """Return the number of series."""
        return self.services * len(_REGIONS) * len(_INSTANCES)

    def identities(self) -> Iterator[Identity]:
        """Yield the profiles: of one series after another, again and again, from the first day on."""
        for number in range(self.profiles):
            digest = hashlib.sha256(number.to_bytes(4)).hexdigest()
            yield Identity((_DAYS * _DAY * number) // self.profiles or 1, digest)


def sections(rig: Rig) -> list[Section]:
    """Measure both tables."""
    return [_in_sqlite(rig), _in_postgresql(rig)]


def _in_sqlite(rig: Rig) -> Section:
    fleet = Fleet(_SERVICES, rig.count(_PROFILES))
    path = rig.scratch / "catalog.sqlite3"
    began, cpu = time.perf_counter(), time.process_time()
    database = SQLite(path)
    database.open()
    catalog = Catalog(database)
    profiles = _profiles(fleet)
    while batch := list(islice(profiles, _BATCH)):
        catalog.add(*batch)
    cpu = time.process_time() - cpu
    progress(f"catalog: {fleet.profiles} profiles are in it after {time.perf_counter() - began:.0f} s")
    rows = _rows(database, fleet, "< 5 ms", time.process_time)
    database.close()
    size = path.stat().st_size / fleet.profiles
    return Section(
        "A catalog of a million profiles",
        f"""{table(_HEAD, rows)}

{_described(fleet)}
Times are by the clock, in the process, but for the mean CPU time. The file has {size:.0f} bytes a
profile; adding one took {1000 * cpu / fleet.profiles:.2f} ms of CPU, {_BATCH:,} at a time.""",
    )


def _in_postgresql(rig: Rig) -> Section:
    fleet = Fleet(_SHARED_SERVICES, rig.count(_SHARED_PROFILES))
    with running_postgres(scale=0) as cluster:
        address = f"postgres@127.0.0.1:{cluster.port}/postgres"
        database = PostgreSQL(
            f"postgresql://{address}", connections=1, connect_seconds=60, statement_seconds=600
        )
        database.open()
        engine = sa.create_engine(f"postgresql+psycopg://{address}", isolation_level="AUTOCOMMIT")
        began = time.perf_counter()
        with engine.connect() as connection:
            _copy_blobs(connection, fleet)
            progress(f"catalog: {fleet.profiles} are copied after {time.perf_counter() - began:.0f} s")
            section = _measured(database, connection, fleet, rig.count(_PROFILES))
        engine.dispose()
        database.close()
    return section


def _measured(database: Database, connection: sa.Connection, fleet: Fleet, named: int) -> Section:
    """Measure a catalog that has the blobs of a fleet; it names `named` profiles then, for their size."""
    connection.exec_driver_sql("VACUUM (ANALYZE) blobs, series, labels")
    _explain(connection, _any_day(fleet)())
    rows = _rows(database, fleet, "< 10 ms", _with_backend(database))
    _copy_profiles(connection, fleet, named)
    parts = []
    for name, profiles in (("blobs", fleet.profiles), ("profiles", named)):
        sizes = connection.execute(
            sa.select(sa.func.pg_table_size(name), sa.func.pg_indexes_size(name))
        ).one()
        figures = [size / profiles for size in (*sizes, sum(sizes))]
        parts.append([f"{name}, of {profiles:,} profiles", *(f"{figure:.0f}" for figure in figures)])
    return Section(
        "A catalog of ten million profiles in PostgreSQL",
        f"""{table(_HEAD, rows)}

{_described(fleet)}
Times are by the clock, in a process on the same machine as PostgreSQL 15, which has 128 MB of shared
buffers; the mean CPU time is that of both. The profiles came in the order of their times (COPY), and the
tables were vacuumed.

{table(("bytes a profile", "rows", "indexes", "both"), parts)}""",
    )


_HEAD = ("a service's profiles of a type, label and day", "asked", "median", "99 %", "CPU")


def _described(fleet: Fleet) -> str:
    size = f"{fleet.profiles:,} profiles of {fleet.series_count:,} series: {fleet.services} services"
    return f"""{size} in {len(_REGIONS)} regions with
{len(_INSTANCES)} instances in each, over {_DAYS} days. Service, region and day are different each time."""


def _rows(database: Database, fleet: Fleet, asked: str, cpu: Callable[[], float]) -> list[list[str]]:
    """Measure ways of finding profiles. Hardly any fingerprint is asked for twice, and so remembered.

    `cpu` returns the CPU time so far of all that finds them, in s.
    """
    any_day = _any_day(fleet)
    catalog = Catalog(database)
    found = median(len(catalog.live(any_day())) for _ in range(_TIMES))
    weeks = (
        Selection(f"service-{number % fleet.services}", CPU, (), 0, _DAYS * _DAY + number)
        for number in count()
    )
    every = fleet.profiles // fleet.services

    def row(
        name: str, asked: str, selection: Callable[[], Selection], find: Callable[[Selection], object]
    ) -> list[str]:
        times, before = [], cpu()
        for _ in range(_TIMES):
            chosen = selection()
            began = time.perf_counter()
            find(chosen)
            times.append(time.perf_counter() - began)
        used = (cpu() - before) / _TIMES
        cells = [name, asked, *map(seconds, (median(times), quantiles(times, n=100)[98], used))]
        progress(f"catalog: {' | '.join(cells)}")
        return cells

    return [
        row("their fingerprint, by which a merge that is kept is found", asked, any_day, catalog.state),
        row(f"the rows, {found:.0f} of them", asked, any_day, catalog.live),
        row(f"the fingerprint of all of a service, {every:,}", "", lambda: next(weeks), catalog.state),
    ]


def _with_backend(database: Database) -> Callable[[], float]:
    """Return a function that returns the CPU time of this process and of its one connection's, in s."""
    with database.reading() as connection:
        pid = connection.execute(sa.select(sa.func.pg_backend_pid())).scalar_one()
    run = Path(f"/proc/{pid}/schedstat")
    return lambda: time.process_time() + int(run.read_text().split()[0]) / 10**9


def _any_day(fleet: Fleet) -> Callable[[], Selection]:
    random = seeded(1)

    def any_day() -> Selection:
        day = random.randrange(_DAYS)
        region = Matcher("region", frozenset([random.choice(_REGIONS)]))
        service = f"service-{random.randrange(fleet.services)}"
        return Selection(service, CPU, (region,), day * _DAY, (day + 1) * _DAY)

    return any_day


def _profiles(fleet: Fleet) -> Iterator[tuple[BlobName, Facts]]:
    series = fleet.series
    for number, identity in enumerate(fleet.identities()):
        name = BlobName(series[number % len(series)], identity)
        yield name, Facts(identity.time_nanos, _DURATION, identity.digest, _SIZE, _SAMPLES)


def _copy_blobs(connection: sa.Connection, fleet: Fleet) -> None:
    """Copy the rows of all blobs, in the order of their times, and those of their series."""
    random, series = seeded(2), fleet.series

    def blobs() -> Iterator[tuple[Any, ...]]:
        for number, (time_nanos, digest) in enumerate(fleet.identities()):
            marks = random.getrandbits(40), random.getrandbits(40)
            of_series = number % len(series) + 1
            facts = time_nanos, _DURATION, _SIZE, _SAMPLES, 0
            yield number + 1, of_series, time_nanos, digest, *facts, "t", *marks

    named = list(enumerate(series, 1))
    _copy_rows(
        connection, tables.SERIES, ((id_, of.service, of.type, of.labels_text, "f") for id_, of in named)
    )
    _copy_rows(connection, tables.LABELS, ((id_, *label) for id_, of in named for label in of.labels))
    _copy_rows(connection, tables.BLOBS, blobs())


def _copy_profiles(connection: sa.Connection, fleet: Fleet, most: int) -> None:
    """Copy the rows that name the first profiles, `most` at most."""
    rows = (
        (number % fleet.series_count + 1, digest, time_nanos, number + 1)
        for number, (time_nanos, digest) in enumerate(islice(fleet.identities(), most))
    )
    _copy_rows(connection, tables.PROFILES, rows)


def _copy_rows(connection: sa.Connection, into: sa.Table, rows: Iterator[Sequence[Any]]) -> None:
    """Copy rows, whose values are in the order of the table's columns; none needs to be escaped."""
    columns = ", ".join(column.name for column in into.c)
    driver = connection.connection.driver_connection
    assert driver is not None
    with driver.cursor().copy(f"COPY {into.name} ({columns}) FROM STDIN") as copy:
        while batch := list(islice(rows, _BATCH)):
            copy.write("".join("\t".join(map(str, row)) + "\n" for row in batch))


def _explain(connection: sa.Connection, selection: Selection) -> None:
    """Print how PostgreSQL finds the sums of a fingerprint, and the rows."""
    blobs = tables.BLOBS
    sums = sa.select(sa.func.count(), sa.func.sum(blobs.c.mark), sa.func.sum(blobs.c.second_mark))
    for query in (sums, sa.select(blobs).order_by(blobs.c.time_nanos, blobs.c.digest)):
        text = query.where(selected(selection)).compile(connection, compile_kwargs={"literal_binds": True})
        for line in connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS) {text}").scalars():
            progress(f"catalog: {line}")
