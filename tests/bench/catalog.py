"""A catalog of a million profiles: how long it takes to find a few of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from itertools import islice, product
from statistics import median, quantiles

from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.model.blob_names import BlobName, Identity
from pgo_collector.model.facts import Facts
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import Series

from tests.bench.measure import progress
from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.oracle.builder import seeded

_PROFILES = 1_000_000
_SERVICES = [f"service-{number}" for number in range(40)]
_REGIONS = [f"region-{number}" for number in range(5)]
_INSTANCES = [f"pod-{number}" for number in range(10)]
_SERIES = [
    Series(service, CPU, (("instance", f"{region}-{instance}"), ("region", region)))
    for service, region, instance in product(_SERVICES, _REGIONS, _INSTANCES)
]
_DAY = 86_400 * 10**9
_DAYS = 7
_BATCH = 10_000
_TIMES = 200


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    count = rig.count(_PROFILES)
    path = rig.scratch / "catalog.sqlite3"
    began, cpu = time.perf_counter(), time.process_time()
    database = SQLite(path)
    database.open()
    catalog = Catalog(database)
    profiles = _profiles(count)
    while batch := list(islice(profiles, _BATCH)):
        catalog.add(*batch)
    cpu = time.process_time() - cpu
    progress(f"catalog: {count} profiles are in it after {time.perf_counter() - began:.0f} s")
    random = seeded(1)

    def any_day() -> Selection:
        day = random.randrange(_DAYS)
        region = Matcher("region", frozenset([random.choice(_REGIONS)]))
        return Selection(random.choice(_SERVICES), CPU, (region,), day * _DAY, (day + 1) * _DAY)

    found = median(len(catalog.live(any_day())) for _ in range(_TIMES))
    rows = [
        _row("their fingerprint, by which a merge that is kept is found", any_day, catalog.state),
        _row(f"the rows, {found:.0f} of them", any_day, catalog.live),
    ]
    database.close()
    size = path.stat().st_size / count
    return [
        Section(
            "A catalog of a million profiles",
            f"""{table(("a service's profiles of a type, label and day", "asked", "median", "99 %"), rows)}

{count:,} profiles of {len(_SERIES):,} series: {len(_SERVICES)} services in {len(_REGIONS)} regions with
{len(_INSTANCES)} instances in each, over {_DAYS} days. The region and the day are different each time.
Times are by the clock, in the process. The file has {size:.0f} bytes a profile; adding one took
{1000 * cpu / count:.2f} ms of CPU, {_BATCH:,} at a time.""",
        )
    ]


def _profiles(count: int) -> Iterator[tuple[BlobName, Facts]]:
    """Yield profiles of one series after another, again and again, at times spread over the days."""
    for number in range(count):
        digest = hashlib.sha256(number.to_bytes(4)).hexdigest()
        time_nanos = (_DAYS * _DAY * number) // count or 1
        name = BlobName(_SERIES[number % len(_SERIES)], Identity(time_nanos, digest))
        yield name, Facts(time_nanos, 10**10, digest, 27_000, 800)


def _row(name: str, selection: Callable[[], Selection], find: Callable[[Selection], object]) -> list[str]:
    times = []
    for _ in range(_TIMES):
        chosen = selection()
        began = time.perf_counter()
        find(chosen)
        times.append(time.perf_counter() - began)
    row = [name, "< 5 ms", seconds(median(times)), seconds(quantiles(times, n=100)[98])]
    progress(f"catalog: {' | '.join(row)}")
    return row
