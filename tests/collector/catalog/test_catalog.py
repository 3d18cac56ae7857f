"""The catalog: the cost of its queries in steps of SQLite's machine, which are the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pgo_collector.catalog.catalog import Catalog, Combined
from pgo_collector.catalog.leases import NO_LEASE
from pgo_collector.catalog.rows import BlobTable
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.errors import CatalogBusy
from pgo_collector.model.facts import Facts
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import BlobName, Identity, Series
from sqlalchemy import event

from tests.faults.stacks import DAY, EPOCH

pytestmark = pytest.mark.sqlite

DAYS = 100
PODS = 20


class Steps:
    """Counts the steps of SQLite's machine in all connections that are opened."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self, connection: Any, _: object) -> None:
        connection.set_progress_handler(self._step, 1)

    def _step(self) -> None:
        self.count += 1


@pytest.fixture
def steps() -> Iterator[Steps]:
    steps = Steps()
    event.listen(sa.Engine, "connect", steps.watch)
    yield steps
    event.remove(sa.Engine, "connect", steps.watch)


@pytest.fixture
def catalog(steps: Steps, tmp_path: Path) -> Iterator[Catalog]:
    """Return a catalog with a profile of each pod and day, and the cost of adding them."""
    database = SQLite(tmp_path / "catalog")
    database.open()
    catalog = Catalog(database)
    names = [
        BlobName(
            Series("default", "cpu", (("pod", f"{pod}"), ("version", f"{pod % 2}"))),
            Identity(EPOCH + day * DAY + pod, f"{day * PODS + pod:064x}"),
        )
        for day in range(DAYS)
        for pod in range(PODS)
    ]
    catalog.add(*((name, Facts(name.identity.time_nanos, 1, name.identity.digest, 1, 1)) for name in names))
    assert steps.count
    yield catalog
    database.close()


@pytest.mark.parametrize(
    "matchers",
    [(), (Matcher("version", frozenset("1"), is_negated=True),)],
    ids=["all", "label"],
)
def test_a_day_costs_the_same_however_many_there_are(
    catalog: Catalog, steps: Steps, matchers: tuple[Matcher, ...]
) -> None:
    def cost(begin: int, end: int) -> int:
        before = steps.count
        selection = Selection("default", "cpu", matchers, EPOCH + begin * DAY, EPOCH + end * DAY)
        assert not catalog.state(selection).coarse.blobs
        return steps.count - before

    first, last = cost(0, 1), cost(DAYS - 1, DAYS)
    assert 0 < last < 2 * first


def test_a_table_has_the_same_blobs_in_the_same_order(catalog: Catalog) -> None:
    """Also of more series than one statement names, and more blobs than are fetched at a time."""
    names = [
        BlobName(
            Series("wide", "cpu", (("pod", f"{n % 1100}"),)), Identity(EPOCH - n // 3, f"{n * n % 9973:064x}")
        )
        for n in range(5000)
    ]
    catalog.add(*((name, Facts(name.identity.time_nanos, 1, name.identity.digest, 1, 1)) for name in names))
    of_pod = catalog.live(Selection("default", "cpu", (Matcher("pod", frozenset("7")),)))
    combined = Combined(of_pod[0].name, Facts(EPOCH, 1, "f" * 64, 1, 1), 1, [blob.name for blob in of_pod])
    catalog.replace(NO_LEASE, combined, [blob.id for blob in of_pod])
    for selection in (
        Selection("default", "cpu"),
        Selection("default", "cpu", (Matcher("version", frozenset("1")),), EPOCH + DAY, EPOCH + 9 * DAY),
        Selection("wide", "cpu"),
        Selection("none", "cpu"),
    ):
        state, table = catalog.resolve(selection)
        assert state == catalog.state(selection)
        assert table == catalog.live_table(selection) == BlobTable.of(catalog.live(selection))


def counts(catalog: Catalog) -> dict[str, int]:
    """Return the number of rows in each table of series."""
    with catalog.reading() as connection:
        return {
            name: connection.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one()  # noqa: S608
            for name in ("series", "labels")
        }


def test_a_series_goes_with_its_last_profile(catalog: Catalog) -> None:
    assert counts(catalog) == {"series": PODS, "labels": 2 * PODS}
    of_pod = catalog.live(Selection("default", "cpu", (Matcher("pod", frozenset("7")),)))
    catalog.drop(of_pod[1:])
    assert counts(catalog) == {"series": PODS, "labels": 2 * PODS}
    catalog.drop(of_pod[:1])
    assert counts(catalog) == {"series": PODS - 1, "labels": 2 * PODS - 2}
    assert len(catalog.live(Selection("default", "cpu"))) == (PODS - 1) * DAYS


def test_a_series_stays_for_profiles_that_a_roll_up_moved_to_another(catalog: Catalog) -> None:
    """Profiles are still known by the series' name, so that a retry isn't counted twice."""
    of_pod = catalog.live(Selection("default", "cpu", (Matcher("pod", frozenset("7")),)))
    first = of_pod[0].name
    rolled_up = BlobName(first.series.rolled_up({"version"}), Identity(EPOCH, "f" * 64))
    facts = Facts(EPOCH, 1, "f" * 64, 1, 1)
    combined = Combined(rolled_up, facts, 1, [blob.name for blob in of_pod])
    catalog.replace(NO_LEASE, combined, [blob.id for blob in of_pod])
    catalog.drop_retired(NO_LEASE, of_pod)
    assert counts(catalog)["series"] == PODS + 1
    counting = catalog.counting_blob(first)
    assert counting is not None
    catalog.retire(NO_LEASE, [counting])
    assert counts(catalog)["series"] == PODS  # its own stays until its file is deleted
    catalog.drop_retired(NO_LEASE, [counting])
    assert counts(catalog) == {"series": PODS - 1, "labels": 2 * PODS - 2}


def test_a_change_that_meets_another_collectors_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Conflict(Exception):
        sqlstate = "40P01"

    database = SQLite(tmp_path / "catalog")
    database.open()
    catalog, left = Catalog(database), iter(range(2))
    note = database.changes.note

    def meet(*of: Any) -> None:
        if next(left, None) is not None:
            raise sa.exc.OperationalError("INSERT", {}, Conflict())
        note(*of)

    monkeypatch.setattr(database.changes, "note", meet)
    name, facts = BlobName(Series("default", "cpu"), Identity(EPOCH, f"{1:064x}")), Facts(1, 1, "", 1, 1)
    catalog.add((name, facts))
    assert [blob.name for blob in catalog.live(Selection("default", "cpu"))] == [name]
    catalog.retire(NO_LEASE, catalog.live(Selection("default", "cpu")))
    with pytest.raises(CatalogBusy, match="is being deleted: try again"):
        catalog.add((name, facts))
    database.close()
