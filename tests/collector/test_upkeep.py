"""Roll-ups and retention: what is combined, what goes, and that nothing else does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.faults.stacks import DAY, SECOND, profile_of, tally

if TYPE_CHECKING:
    from collections import Counter

    from tests.server import Server

NOON = time.time_ns() // DAY * DAY + DAY // 2


@pytest.fixture
def store(server: Server) -> Callable[..., None]:
    """Sends a profile that was taken so many days ago, at noon and as many seconds later as `second` says."""

    def submit(name: str, days: int, second: int = 0, **query: str) -> None:
        profile = profile_of(name, time_nanos=NOON - days * DAY + second * SECOND)
        assert server.submit(profile, query=query).status_code == 204

    return submit


def kept(server: Server, **settings: str) -> None:
    """The collector with other settings, after its first run of upkeep."""
    server.stop()
    server.environment.update({f"PGOF_{name.upper()}": value for name, value in settings.items()})
    server.start()
    server.wait_for_log("upkeep done")


def merged(server: Server, **query: str) -> Counter[str]:
    return tally(server.merge(query=query).content)


def test_old_days_of_a_series_become_one_profile_each(server: Server, store: Callable[..., None]) -> None:
    for days in (1, 5, 6):
        for second in range(3):
            store(f"{days}", days, second)
            store(f"{days} b", days, second, labels="a=b")
    store("alone", 9)
    store("heap", 5, type="heap")
    store("heap", 5, 1, type="heap")
    before = merged(server)
    kept(server, rollup_days="3")
    assert merged(server) == before == {f"{d}{b}": 3 for d in (1, 5, 6) for b in ("", " b")} | {"alone": 1}
    assert len(server.blobs(".inputs")) == 5
    assert len(server.blobs()) == 4 + 6 + 1 + 1
    assert merged(server, labels="a=b") == {"1 b": 3, "5 b": 3, "6 b": 3}
    assert merged(server, type="heap") == {"heap": 2}
    store("5", 5, 1)  # sent once more
    store("5", 5, 7)  # late
    assert merged(server)["5"] == 4
    kept(server)
    assert merged(server)["5"] == 4
    assert len(server.blobs()) == 12
    server.stop()
    server.reindex()
    server.start()
    assert merged(server) == before | {"5": 4}
    store("5", 5, 7)
    assert merged(server)["5"] == 4


def test_profiles_go_when_they_are_too_old(server: Server, store: Callable[..., None]) -> None:
    for days in (1, 5, 9):
        store(f"{days}", days)
        store(f"{days} c", days, service="combined")
    server.combine(query={"service": "combined"})
    listed = server.run("expired")
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "0 bytes in all\n")
    server.environment["PGOF_KEEP_DAYS"] = "7"
    listed = server.run("expired")
    assert [line.split("\t")[0] for line in listed.stdout.splitlines()] == ["age"]
    assert merged(server)["9"] == 1
    kept(server)
    assert merged(server) == {"1": 1, "5": 1}
    assert merged(server, service="combined") == {"1 c": 1, "5 c": 1, "9 c": 1}
    kept(server, keep_combined_days="0.1")
    assert server.merge(query={"service": "combined"}).status_code == 404
    server.stop()
    server.reindex()
    server.start()
    assert merged(server) == {"1": 1, "5": 1}
    assert len(list((server.data / "blobs").rglob("*/cpu/*"))) == len(server.blobs()) == 2


def test_the_oldest_go_while_all_are_too_large(server: Server, store: Callable[..., None]) -> None:
    for days in range(6):
        store(f"{days}", days)
    sizes = [path.stat().st_size for path in server.blobs()]
    kept(server, keep_megabytes=f"{sum(sorted(sizes)[:4]) / (1 << 20)}")
    assert set(merged(server)) in ({"0", "1", "2", "3"}, {"0", "1", "2"})
    assert {line["blobs"] for line in server.events("deleted by age or size")} <= {2, 3}


def test_a_profile_that_went_may_come_again(server: Server, store: Callable[..., None]) -> None:
    store("x", 9)
    store("y", 1)
    kept(server, keep_days="7")
    store("x", 9)
    assert merged(server) == {"x": 1, "y": 1}
