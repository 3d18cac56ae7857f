"""Roll-ups and retention: which profiles are combined, which are deleted, and that no others are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from tests.collector.queries.test_snapshots import renamed
from tests.faults.stacks import DAY, SECOND, large_profile, profile_of, tally
from tests.merge.stacked import HEAP, heap_of

if TYPE_CHECKING:
    from collections import Counter

    from tests.server import Server

NOON = time.time_ns() // DAY * DAY + DAY // 2


@pytest.fixture
def store(server: Server) -> Callable[..., None]:
    """Submit a profile that was taken `days` ago, `second` seconds after noon."""

    def submit(name: str, days: int, second: int = 0, **query: str) -> None:
        profile = profile_of(name, time_nanos=NOON - days * DAY + second * SECOND)
        assert server.submit(profile, query=query).status_code == 204

    return submit


def kept(server: Server, **settings: str) -> None:
    """Restart the collector with other settings; wait for its first run of upkeep."""
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
    store("wall", 5, type="wall")
    store("wall", 5, 1, type="wall")
    before = merged(server)
    kept(server, rollup_days="3")
    assert merged(server) == before == {f"{d}{b}": 3 for d in (1, 5, 6) for b in ("", " b")} | {"alone": 1}
    assert len(server.blobs(".inputs")) == 5
    assert len(server.blobs()) == 4 + 6 + 1 + 1
    assert merged(server, labels="a=b") == {"1 b": 3, "5 b": 3, "6 b": 3}
    assert merged(server, type="wall") == {"wall": 2}
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


def test_snapshots_are_not_rolled_up(server: Server) -> None:
    """No view could tell from their sum what was held, or counted meanwhile."""
    waits = ("contentions", "count"), ("delay", "nanoseconds")
    measured = {
        **dict.fromkeys(("heap", "memory"), HEAP),
        **{type_: ((type_, "count"),) for type_ in ("goroutine", "threadcreate")},
        **dict.fromkeys(("allocs", "other"), HEAP),
        **dict.fromkeys(("block", "mutex"), waits),
    }
    types = [*measured]
    for type_, of_type in measured.items():
        for second in range(3):
            time_nanos = NOON - 5 * DAY + second * SECOND
            snapshot = heap_of({"main;cache": (1 + second, 1 + second, 1, 1)}, time_nanos=time_nanos)
            # With a duration it is a difference that Go has made.
            for service, duration in (("default", 0), ("seconds", SECOND)):
                profile = renamed(snapshot, *of_type, duration=duration)
                answer = server.submit(profile, query={"type": type_, "service": service})
                assert answer.status_code == 204, answer.text
    kept(server, rollup_days="3")
    combined = {blob.parts[-4:-2] for blob in server.blobs(".inputs")}
    assert combined == {("seconds", type_) for type_ in types[4:]}
    assert len(server.blobs()) == 3 * len(types) + 3 * 4 + 4
    shown = server.ask("/v1/top", type="heap", sample_type="alloc_space").json()
    assert (shown["total"], shown["basis"]["snapshots"]) == (2, 3)


def test_the_days_about_1970_are_two(server: Server) -> None:
    for time_nanos in (-(1 << 63), 1 - (1 << 63), -DAY, -1, 1, DAY - 1):
        profile = profile_of(str(time_nanos), time_nanos=time_nanos)
        assert server.submit(profile).status_code == 204
    kept(server, rollup_days="3")
    days = sorted(blob.parent.name for blob in server.blobs())
    assert days == ["1677-09-21", "1969-12-31", "1970-01-01"]
    assert len(merged(server)) == 6


def test_labels_that_stay_are_a_setting(server: Server, store: Callable[..., None]) -> None:
    for pod in "xyz":
        store(pod, 5, labels=f"version=1,pod={pod}")
        store(f"{pod} 2", 5, 1, labels=f"version=2,pod={pod}")
        store(f"{pod} young", 1, labels=f"version=1,pod={pod}")
    store("bare", 5, 2, labels="version=1")
    store("alone", 6, labels="pod=x")
    before = merged(server)
    kept(server, rollup_days="3", rollup_labels="version, zone")
    assert merged(server) == before
    assert len(server.blobs()) == 2 + 1 + 3

    def coarse(**query: str) -> str | None:
        headers: Mapping[str, str] = server.merge(query=query).headers
        return headers.get("PGO-Coarse")

    assert merged(server, labels="version=2") == {"x 2": 1, "y 2": 1, "z 2": 1}
    assert coarse(labels="version=2") is coarse() is None
    first = {"x": 1, "y": 1, "z": 1, "bare": 1}
    one = '1;labels="pod"'
    for pods, young, said in (("=x", "x", one), ("!=x|y", "z", one), ("=", "", one), ("!=w", "xyz", None)):
        labels = f"version=1,pod{pods}"
        assert merged(server, labels=labels) == first | {f"{pod} young": 1 for pod in young}
        assert coarse(labels=labels) == said
    assert merged(server, labels="pod=x")["alone"] == 1
    assert coarse(labels="pod=x") == '2;labels="pod"'
    assert server.merge(query={"labels": "pod=w"}).status_code == 404
    assert coarse(labels="pod=x,version=1", last="3d") is None
    top = server.ask("/v1/top", labels="pod=x").json()
    assert (top["coarse"], top["coarse_labels"]) == (2, ["pod"])
    listed = server.ask("/v1/profiles", labels="version=2").json()["profiles"]
    assert [(entry["labels"], entry["dropped_labels"]) for entry in listed] == [({"version": "2"}, ["pod"])]
    assert server.ask("/v1/report", labels="pod=x").headers["PGO-Coarse"] == '2;labels="pod"'
    for limit, many in (("0", 2), ("3", 2), ("2", 1)):  # the single profile comes first
        query = {"service": "default", "type": "cpu", "labels": "pod=x", "limit": limit}
        assert server.ask("/api/0/profiles/merge", **query).headers["PGO-Coarse"] == f'{many};labels="pod"'


def test_a_retry_of_a_rolled_up_profile_is_known_by_its_labels(
    server: Server, store: Callable[..., None]
) -> None:
    for pod in "xy":
        store("same", 5, labels=f"pod={pod}")
    kept(server, rollup_days="3", rollup_labels="version")
    whole = {"same": 2}
    assert len(server.blobs()) == 1
    for pod in "xy":
        store("same", 5, labels=f"pod={pod}")  # sent once more
    assert merged(server) == whole
    store("same", 5, labels="pod=z")  # late
    store("late", 5, 1, labels="zone=eu")
    whole |= {"same": 3, "late": 1}
    kept(server)
    assert len(server.blobs()) == 1

    def check() -> None:
        for labels in ("", "pod=x", "pod=z", "pod=", "zone=eu", "zone=", "pod=x,zone="):
            assert merged(server, labels=labels) == whole
        for labels in ("pod=w", "pod=,zone=", "pod=x,zone=eu"):
            assert server.merge(query={"labels": labels}).status_code == 404

    check()
    server.stop()
    server.reindex()
    server.start()
    check()
    for pod in "xyz":
        store("same", 5, labels=f"pod={pod}")
    assert merged(server) == whole
    kept(server, keep_combined_days="3")
    assert server.merge().status_code == 404


def test_fewer_labels_may_stay_later(server: Server, store: Callable[..., None]) -> None:
    for number in range(4):
        store(f"{number}", 5, number, labels=f"pod={number},version={number % 2},zone=eu")
    kept(server, rollup_days="3", rollup_labels="version,zone")
    assert len(server.blobs()) == 2
    kept(server, rollup_labels="zone")
    assert len(server.blobs()) == 1
    assert merged(server, labels="pod=3") == dict.fromkeys("0123", 1)
    answer = server.merge(query={"labels": "pod=2,version=0,zone=eu"})
    assert answer.headers["PGO-Coarse"] == '1;labels="pod,version"'
    kept(server, rollup_labels="*")
    assert merged(server, labels="version=1,zone=eu") == dict.fromkeys("0123", 1)


def test_many_dropped_labels_make_no_endless_path(server: Server, store: Callable[..., None]) -> None:
    for number in range(12):
        store(f"{number}", 5, number, labels=f"{number:0200}=x")
    kept(server, rollup_days="3", rollup_labels="version")
    assert merged(server) == {f"{number}": 1 for number in range(12)}
    count = len(server.blobs())
    assert count in {2, 3}  # a bucket takes shorter names
    assert not server.events("upkeep failed")
    kept(server)
    assert len(server.blobs()) == count


@pytest.mark.folder
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


@pytest.mark.folder
def test_the_oldest_profiles_go_while_all_are_too_large(server: Server, store: Callable[..., None]) -> None:
    for days in range(6):
        store(f"{days}", days)
    sizes = [path.stat().st_size for path in server.blobs()]
    kept(server, keep_megabytes=f"{sum(sorted(sizes)[:4]) / (1 << 20)}")
    assert set(merged(server)) in ({"0", "1", "2", "3"}, {"0", "1", "2"})
    assert {line["blobs"] for line in server.events("profiles expired")} <= {2, 3}
    kept(server, keep_megabytes=f"{sum(path.stat().st_size for path in server.blobs()) / (1 << 20)}")
    assert not server.events("profiles expired")
    kept(server, keep_days="1.5", keep_megabytes=f"{1 / (1 << 20)}")
    assert server.merge().status_code == 404


BOUNDS = ("keep_days", "keep_megabytes", "keep_combined_days", "rollup_days")


@pytest.mark.parametrize(
    "bounds", [BOUNDS, *(pytest.param((bound,), marks=pytest.mark.exhaustive) for bound in BOUNDS)]
)
def test_a_bound_that_nothing_reaches_deletes_nothing(
    server: Server, store: Callable[..., None], bounds: tuple[str, ...]
) -> None:
    store("x", 90_000)
    store("y", 1)
    kept(server, **dict.fromkeys(bounds, "1e30"))
    assert merged(server) == {"x": 1, "y": 1}
    assert server.run("expired").stdout == ""


def test_a_profile_that_went_may_come_again(server: Server, store: Callable[..., None]) -> None:
    store("x", 9)
    store("y", 1)
    kept(server, keep_days="7")
    store("x", 9)
    assert merged(server) == {"x": 1, "y": 1}


def test_a_roll_up_that_is_refused_keeps_no_other_service_waiting(
    server: Server, store: Callable[..., None]
) -> None:
    """The merge of one service's day takes longer than a task may take: seconds, for 72 MB of comments."""
    for number in range(12):
        profile = large_profile(f"large {number}", number, time_nanos=NOON - 5 * DAY)
        assert server.submit(profile, query={"service": "a"}).status_code == 204
    for second in range(3):
        store("small", 5, second, service="b")
    server.stop()
    server.environment.update({"PGOF_ROLLUP_DAYS": "3", "PGOF_TASK_SECONDS": "0.5"})
    server.start()
    reason = server.wait_for_log("upkeep failed")["reason"]
    assert "PGOF_TASK_SECONDS" in reason
    # A busy machine may have come to the next round.
    assert {(left["service"], left["type"]) for left in server.events("service upkeep failed")} == {
        ("a", "cpu")
    }
    assert [event["service"] for event in server.events("days rolled up")] == ["b"]
    assert merged(server, service="b") == {"small": 3}
