"""Histograms and heat maps of latencies, and merges, tables and flame graphs of some latencies only."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pgo_collector.model.profile_types import LATENCY_TYPES
from pprof_merge import decode

from tests.collector.own_service import OwnService
from tests.collector.queries.test_queries import HOUR, MIDNIGHT, asked, refused, store, written
from tests.merge.go_top import go_top, pprof
from tests.merge.stacked import stacked
from tests.merge.tracked import BELOW, MS, US, Events, delayed, tracked
from tests.server import Server

pytestmark = pytest.mark.any_store

if TYPE_CHECKING:
    from collections.abc import Iterator

CALM = [
    delayed("main;exec_query;LWLockAcquire", 3 * MS, 4),
    delayed("main;XLogFlush;fsync", 1200 * US, 40),
    delayed(BELOW, 5 * US, 2_000),
]
STORM = [
    delayed("main;exec_query;LWLockAcquire", 70 * MS, 25, pid=7),
    delayed("main;XLogFlush;fsync", 1200 * US, 35),
    delayed(BELOW, 5 * US, 1_000),
]
OFFCPU = {"service": "db", "type": "offcpu"}


def events(profiles: list[list[Events]]) -> dict[int, int]:
    """Return the number of events in each bucket."""
    found: dict[int, int] = {}
    for event in (event for profile in profiles for event in profile):
        assert event.latency is not None
        found[event.latency] = found.get(event.latency, 0) + event.waits
    return dict(sorted(found.items()))


def buckets(answer: dict[str, Any]) -> dict[int, int]:
    return {each["from_ns"]: each["count"] for each in answer["buckets"] if each["count"]}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Store two calm hours and a storm of one service, and profiles of others."""
    with Server(tmp_path_factory.mktemp("latencies")) as server:
        for hour, profile in enumerate((CALM, CALM, STORM)):
            content = tracked(profile, time_nanos=MIDNIGHT + hour * HOUR + 1)
            store(server, content, **OFFCPU, labels=f"instance=db-{hour % 2}")
        store(server, tracked(CALM, time_nanos=MIDNIGHT + 1), service="web", type="offcpu")
        store(server, stacked({"main.f": 1}), service="other", type="offcpu")
        store(server, stacked({"main.f": 1}), service="db")
        yield server


@pytest.mark.parametrize("type_", LATENCY_TYPES)
def test_every_tracker_has_a_type_of_its_own(shared: Server, type_: str) -> None:
    query = {"service": f"tracked-{type_}", "type": type_}
    store(shared, tracked(CALM, tracker=type_), **query)
    listed = {each["service"]: each["types"] for each in asked(shared, "/v1/services")["services"]}
    assert [each["type"] for each in listed[query["service"]]] == [type_]
    assert buckets(asked(shared, "/v1/histogram", **query)) == events([CALM])
    for format_, why in (("go", "Go's compiler needs samples in"), ("llvm", "not CPU time")):
        refusal = shared.merge(format_=format_, query=query)
        assert refusal.status_code == 422
        assert why in refusal.json()["detail"]


def test_a_histogram_is_the_sum_of_the_profiles(fleet: Server) -> None:
    answer = asked(fleet, "/v1/histogram", **OFFCPU)
    assert buckets(answer) == events([CALM, CALM, STORM])
    assert [each["to_ns"] for each in answer["buckets"]][:-1] == [
        each["from_ns"] for each in answer["buckets"]
    ][1:]
    assert sum(each["share"] for each in answer["buckets"]) == pytest.approx(1)
    stats = answer["stats"]
    assert stats["count"] == sum(events([CALM, CALM, STORM]).values())
    total = sum(event.delay for event in (*CALM, *CALM, *STORM))
    assert stats["total_ns"] == sum(each["total_ns"] for each in answer["buckets"]) == total
    assert stats["average_ns"] == pytest.approx(total / stats["count"])
    assert (stats["min_ns"], stats["max_ns"]) == (4096, 1 << 27)
    assert 2500 <= stats["p50_ns"] <= 10_000
    assert 35 * MS <= stats["p999_ns"] <= 140 * MS
    assert (answer["profiles"], answer["unlabelled"], answer["others"]) == (3, 0, {})
    assert answer["base"] is answer["differences"] is None


def test_a_selection_and_all_services(fleet: Server) -> None:
    assert buckets(asked(fleet, "/v1/histogram", **OFFCPU, labels="instance=db-1")) == events([CALM])
    answer = asked(fleet, "/v1/histogram", service="*", type="offcpu")
    assert buckets(answer) == events([CALM, CALM, STORM, CALM])
    assert [*answer["others"]] == ["other"]
    assert "samples/count, cpu/nanoseconds" in answer["others"]["other"]


def test_two_windows_are_compared(fleet: Server) -> None:
    storm = {"from": written(MIDNIGHT + 2 * HOUR), "base_to": written(MIDNIGHT + 2 * HOUR)}
    query = {**OFFCPU, **storm, "base_from": written(MIDNIGHT)}
    answer = asked(fleet, "/v1/histogram", **query)
    assert buckets(answer) == events([STORM])
    assert buckets(answer["base"]) == events([CALM, CALM])
    assert answer["stats"]["p99_ns"] > 8 * answer["base"]["stats"]["p99_ns"]
    differences = {each["from_ns"]: each["difference"] for each in answer["differences"]}
    assert sum(differences.values()) == pytest.approx(0)
    assert max(differences, key=lambda bound: differences[bound]) == 1 << 26
    assert "base is the selection itself" in refused(fleet, "/v1/histogram", 400, **OFFCPU, base_service="db")


def test_a_heat_map_has_the_histogram_of_every_step(fleet: Server) -> None:
    answer = asked(fleet, "/v1/heatmap", **OFFCPU)
    assert [buckets(point) for point in answer["points"]] == [events([part]) for part in (CALM, CALM, STORM)]
    assert [point["time"][11:16] for point in answer["points"]] == ["00:00", "01:00", "02:00"]
    assert answer["points"][2]["stats"]["max_ns"] == 1 << 27
    (day,) = asked(fleet, "/v1/heatmap", **OFFCPU, step="day")["points"]
    assert buckets(day) == events([CALM, CALM, STORM])
    minutes = asked(fleet, "/v1/heatmap", **OFFCPU, step="minute")["points"]
    assert len(minutes) == 121
    assert minutes[1] == {**minutes[1], "buckets": [], "unlabelled": 0}
    assert minutes[1]["stats"]["p50_ns"] is None


def test_a_combine_changes_no_histogram(own: OwnService) -> None:
    for hour, profile in enumerate((CALM, STORM)):
        store(own, tracked(profile, time_nanos=MIDNIGHT + hour * HOUR + 1), **OFFCPU)
    before = asked(own, "/v1/histogram", **OFFCPU)
    assert own.combine(query=OFFCPU).status_code == 200
    assert asked(own, "/v1/histogram", **OFFCPU) == {**before, "profiles": 1}
    heat = asked(own, "/v1/heatmap", **OFFCPU)
    assert heat["coarse"] == 1
    assert buckets(heat["points"][0]) == events([CALM, STORM])


def test_a_merge_of_some_latencies_is_that_of_go(fleet: Server, tmp_path: Path) -> None:
    whole = gzip.decompress(fleet.merge(query=OFFCPU).content)
    pprof(whole, tmp_path, "-proto", "-output=focused", "-tagfocus=latency=1ms:")
    theirs = (tmp_path / "focused").read_bytes()
    answer = fleet.merge(query={**OFFCPU, "latency_from": "1ms"})
    ours = decode(answer.content).samples.values.sum(axis=0)
    assert ours.tolist() == decode(theirs).samples.values.sum(axis=0).tolist()
    table = go_top(gzip.decompress(theirs), tmp_path, "delay", "nanoseconds")
    top = asked(fleet, "/v1/top", **OFFCPU, latency_from="1ms", n="1000")
    assert {row["name"]: (row["flat"], row["cum"]) for row in top["rows"]} == table
    folded = fleet.merge(format_="folded", query={**OFFCPU, "latency_from": "33ms", "latency_to": "1s"})
    assert folded.text.strip() == f"main;exec_query;LWLockAcquire {25 * 70 * MS}"


def test_every_part_of_the_latencies_is_kept_as_a_merge_of_its_own(fleet: Server) -> None:
    whole = fleet.merge(query=OFFCPU).headers["ETag"]
    above = fleet.merge(query={**OFFCPU, "latency_from": "1ms"}).headers["ETag"]
    below = fleet.merge(query={**OFFCPU, "latency_to": "1ms"}).headers["ETag"]
    assert len({whole, above, below}) == 3
    assert fleet.merge(query={**OFFCPU, "latency_from": "1000us"}).headers["ETag"] == above
    again = fleet.merge(query={**OFFCPU, "latency_from": "1ms"}, If_None_Match=above)
    assert again.status_code == 304


def test_a_difference_can_be_of_some_latencies(fleet: Server) -> None:
    windows = {"from": written(MIDNIGHT + 2 * HOUR), "base_to": written(MIDNIGHT + 2 * HOUR), "base_from": ""}
    answer = asked(fleet, "/v1/diff", **OFFCPU, **windows, latency_from="1ms", latency_to="2ms")
    assert (answer["now"]["total"], answer["base"]["total"]) == (35 * 1200 * US, 80 * 1200 * US)
    assert {row["name"] for row in answer["rows"]} == {"main", "XLogFlush", "fsync"}


def test_a_function_over_time_can_be_of_some_latencies(fleet: Server) -> None:
    query = {**OFFCPU, "function": "XLogFlush", "latency_from": "1ms", "latency_to": "2ms"}
    points = asked(fleet, "/v1/series", **query)["points"]
    for hour, point in enumerate(points):
        window = {"from": written(MIDNIGHT + hour * HOUR), "to": written(MIDNIGHT + (hour + 1) * HOUR)}
        top = asked(fleet, "/v1/top", **OFFCPU, **window, latency_from="1ms", latency_to="2ms")
        (row,) = [row for row in top["rows"] if row["name"] == "XLogFlush"]
        assert (point["total"], point["flat"], point["cum"]) == (top["total"], row["flat"], row["cum"])
    assert [point["total"] for point in points] == [40 * 1200 * US, 40 * 1200 * US, 35 * 1200 * US]


def test_a_range_with_nothing_in_it(fleet: Server) -> None:
    answer = asked(fleet, "/v1/top", **OFFCPU, latency_from="1000s")
    assert (answer["total"], answer["rows"]) == (0, [])
    assert fleet.merge(query={**OFFCPU, "latency_from": "1000s"}).status_code == 200
    assert asked(fleet, "/v1/top", service="db", latency_from="0ns")["total"] == 0


@pytest.mark.parametrize(
    "wrong",
    ["1", "ms", "-1ms", "1.5ms", "1 ms", "5m", "1e3ns", "9223372036854775808ns", "9" * 30 + "s", "٣ms"],
)
@pytest.mark.parametrize("path", ["/v1/top", "/v1/merge", "/v1/diff", "/v1/series"])
def test_what_is_not_a_latency_is_refused(fleet: Server, path: str, wrong: str) -> None:
    own = {"/v1/diff": {"base_from": "2020-01-01"}, "/v1/series": {"function": "main"}}.get(path, {})
    detail = refused(fleet, path, 400, **OFFCPU, **own, latency_to=wrong)
    assert "not a latency; write a whole number and a unit, ns, us, ms or s, as in 5ms" in detail


def test_ranges_have_two_ends_in_order(fleet: Server) -> None:
    refusal = refused(fleet, "/v1/top", 400, **OFFCPU, latency_from="1ms", latency_to="1000us")
    assert refusal == "latency_to: give a longer latency than in latency_from"
    assert "unknown parameter 'latency'" in refused(fleet, "/v1/top", 400, **OFFCPU, latency="1ms")
    assert "latency_from" in refused(fleet, "/v1/histogram", 400, **OFFCPU, latency_from="1ms")


def test_a_combine_is_of_all_latencies(own: OwnService) -> None:
    store(own, tracked(CALM), **OFFCPU)
    answer = own.combine(query={**OFFCPU, "latency_from": "1ms"})
    assert answer.status_code == 400
    assert "plain sum of all samples" in answer.json()["detail"]


def test_profiles_without_latencies_are_refused(fleet: Server) -> None:
    for path in ("/v1/histogram", "/v1/heatmap"):
        detail = refused(fleet, path, 422, service="db")
        assert "there are no latencies in the selected profiles" in detail
        assert "it measures samples/count, cpu/nanoseconds, not contentions/count and delay" in detail
        assert refused(fleet, path, 404, service="db", type="irq")
        assert "step" in refused(fleet, "/v1/heatmap", 400, **OFFCPU, step="week")


def test_a_go_block_profile_is_in_no_bucket_and_no_disk_tracker(server: Server) -> None:
    of_go = tracked([Events("main;sync.Mutex.Lock", None, 5, 5 * MS)], period_type=("contentions", "count"))
    for type_ in ("block", "blockio"):
        store(server, of_go, service="db", type=type_)
    store(server, tracked(CALM, tracker="block"), service="db", type="blockio")
    answer = asked(server, "/v1/histogram", service="db", type="block")
    assert (answer["stats"]["count"], answer["unlabelled"], answer["buckets"]) == (0, 5, [])
    store(server, tracked(CALM, tracker="block", time_nanos=2), service="db", type="blockio")
    disk = asked(server, "/v1/histogram", service="db", type="blockio")
    assert buckets(disk) == events([CALM, CALM])
    assert (disk["unlabelled"], disk["left_out"]) == (0, 1)


def test_hostile_labels_neither_grow_an_answer_nor_break_one(server: Server) -> None:
    most = (1 << 63) - 1
    hostile = [
        *(Events("main;f", 1 + 97 * number, 1, 10, pid=number) for number in range(20_000)),
        Events("main;f", most, most, most),
        Events("main;g", most, most, most),
        Events("main;g", 5, -9, -most),
    ]
    store(server, tracked(hostile), **OFFCPU)
    store(server, tracked([delayed("main;f", MS, 3)], unit="fortnights", time_nanos=2), **OFFCPU)
    for path in ("/v1/histogram", "/v1/heatmap"):
        answer = server.ask(path, **OFFCPU)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) < 20_000
        assert all(value >= 0 for value in numbers(answer.json()))
    assert asked(server, "/v1/histogram", **OFFCPU)["unlabelled"] == 3
    for path in ("/v1/top", "/v1/heatmap", "/v1/histogram"):
        assert server.ask(path, **OFFCPU, from_="1970-01-01").status_code == 200


def numbers(answer: Any) -> Iterator[float]:
    """Yield all numbers in an answer."""
    if isinstance(answer, dict | list):
        for part in answer.values() if isinstance(answer, dict) else answer:
            yield from numbers(part)
    elif isinstance(answer, int | float):
        yield answer


def test_steps_and_answers_have_bounds(tmp_path: Path) -> None:
    with Server(tmp_path, environment={"PGOF_MAX_OUTPUT_BYTES": "65536"}) as server:
        store(server, tracked(CALM), **OFFCPU)
        store(server, tracked(CALM, time_nanos=1 + 50 * HOUR), **OFFCPU)
        assert buckets(asked(server, "/v1/histogram", **OFFCPU)) == events([CALM, CALM])
        detail = refused(server, "/v1/heatmap", 422, **OFFCPU)
        assert "PGOF_MAX_OUTPUT_BYTES is" in detail
        assert "at most 1,000 are allowed" in refused(server, "/v1/heatmap", 400, **OFFCPU, step="minute")
        assert asked(server, "/v1/heatmap", **OFFCPU, step="day")["points"]


def test_a_key_for_one_service_compares_with_no_other(stopped: Server) -> None:
    stopped.merge_keys.write_text("key-of-db service=db\n")
    stopped.start()
    for service in ("db", "web"):
        store(stopped, tracked(CALM), service=service, type="offcpu")
    base = {"base_service": "web"}
    statuses = [
        stopped.ask(path, key=key, **OFFCPU, **query).status_code
        for path, key, query in (
            ("/v1/histogram", "wrong", {}),
            ("/v1/heatmap", "wrong", {}),
            ("/v1/histogram", "key-of-db", {}),
            ("/v1/heatmap", "key-of-db", {}),
            ("/v1/histogram", "key-of-db", base),
        )
    ]
    assert statuses == [403, 403, 200, 200, 403]
