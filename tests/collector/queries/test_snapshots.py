"""Snapshots, as of Go's heap: every view shows what was held, and what was counted meanwhile."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pprof_merge import decode, encode, merge
from pprof_proto.profile_pb2 import Profile

from tests.collector.pushing import assert_pushed, one, push
from tests.collector.queries.test_queries import asked, store
from tests.collector.routes.test_querier_reads import drawn, points, stacktraces
from tests.collector.visitor import Visitor
from tests.faults.stacks import DAY
from tests.merge.stacked import heap_of
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

MIB = 1 << 20
MINUTE = 60 * 10**9
BEGIN = time.time_ns() // DAY * DAY - DAY + DAY // 2
SHOP = {"service": "shop", "type": "heap"}
MEAN = "the mean over time for each set of labels, summed over 1 set of labels."
# The six snapshots of a process that holds 50 MiB and has allocated 60, 80, … 160 MiB.
SNAPSHOTS = [
    heap_of(
        {"main;cache": (100 + 40 * at, (60 + 20 * at) * MIB, 80, 50 * MIB)}, time_nanos=BEGIN + at * MINUTE
    )
    for at in range(6)
]


def renamed(profile: bytes, *types: tuple[str, str], duration: int = 0) -> bytes:
    """Return a profile whose first values are of these sample types."""
    parsed = Profile.FromString(profile)
    del parsed.sample_type[:]
    parsed.duration_nanos = duration
    for type_, unit in types:
        parsed.string_table.extend((type_.encode(), unit.encode()))
        number = len(parsed.string_table) - 2
        parsed.sample_type.add(type=number, unit=number + 1)
    for sample in parsed.sample:
        sample.value[:] = sample.value[: len(types)]
    return parsed.SerializeToString()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Store the snapshots of one process, and of two of another service, of which one began again."""
    with Server(tmp_path_factory.mktemp("snapshots")) as server:
        for profile in SNAPSHOTS:
            store(server, profile, labels="instance=a", **SHOP)
        for instance, held, counts in (("a", 50, (10, 20, 5, 9)), ("b", 30, (100, 101))):
            for at, count in enumerate(counts):
                values = {"main;cache": (count, count * MIB, 1, held * MIB)}
                profile = heap_of(values, time_nanos=BEGIN + at * MINUTE + 10**9)
                store(server, profile, service="two", type="heap", labels=f"instance={instance}")
        yield server


@pytest.mark.parametrize(
    ("sample_type", "total"),
    [("inuse_space", 50 * MIB), ("alloc_space", 100 * MIB), ("inuse_objects", 80), ("alloc_objects", 200)],
)
def test_every_view_shows_what_was_held_or_allocated_meanwhile(
    fleet: Server, sample_type: str, total: int
) -> None:
    query = {**SHOP, "sample_type": sample_type}
    top = asked(fleet, "/v1/top", **query)
    assert (top["total"], top["whole"], top["rows"][0]["flat"]) == (total, total, total)
    assert asked(fleet, "/v1/flame", **query)["total"] == total
    function = asked(fleet, "/v1/function", function="cache", **query)
    assert (function["total"], function["flat"]) == (total, total)
    steps = asked(fleet, "/v1/series", function="cache", step="minute", **query)
    is_held = sample_type.startswith("inuse")
    expected = [total] * 6 if is_held else [0, *[total // 5] * 5]
    assert [point["total"] for point in steps["points"]] == expected
    assert [point["flat"] for point in steps["points"]] == expected
    diff = asked(fleet, "/v1/diff", base_service="two", **query)
    assert diff["now"]["total"] == total
    for answer in (top, function, steps, asked(fleet, "/v1/flame", **query), diff["now"]):
        basis = answer["basis"]
        assert (basis["kind"], basis["snapshots"], basis["instances"], basis["restarts"]) == (
            "state" if is_held else "cumulative",
            6,
            1,
            0,
        )
        assert not basis["since_start"]
        assert basis["before"] == {"alloc_space": 60 * MIB, "alloc_objects": 100}.get(sample_type, 0)
        assert basis["text"].endswith(MEAN) if is_held else basis["text"].startswith("Allocated between")


def test_the_formats_for_people_are_views_and_the_merge_is_pprofs(fleet: Server) -> None:
    folded = fleet.merge(query={**SHOP, "format": "folded"}).text
    assert folded == f"main;cache {50 * MIB}\n"
    table = fleet.merge(query={**SHOP, "format": "json"}).json()
    assert table["total"] == [200, 100 * MIB, 80, 50 * MIB]
    shown = fleet.merge(query={**SHOP, "format": "speedscope"}).json()
    assert [each["endValue"] for each in shown["profiles"]] == [200, 100 * MIB, 80, 50 * MIB]
    raw = gzip.decompress(fleet.merge(query=SHOP).content)
    assert raw == encode(merge(map(decode, SNAPSHOTS)))
    assert decode(raw).samples.values.tolist() == [[1200, 660 * MIB, 480, 300 * MIB]]


def test_weights_add_up_what_they_weigh(fleet: Server) -> None:
    folded = fleet.merge(query={**SHOP, "format": "folded", "weight": "instance"}).text
    assert folded == f"main;cache {300 * MIB}\n"


@pytest.mark.parametrize(("sample_type", "total"), [("inuse_space", 80 * MIB), ("alloc_space", 20 * MIB)])
def test_instances_add_up_and_a_restart_is_seen(fleet: Server, sample_type: str, total: int) -> None:
    query = {"service": "two", "type": "heap", "sample_type": sample_type}
    top = asked(fleet, "/v1/top", **query)
    assert top["total"] == total
    assert (top["basis"]["snapshots"], top["basis"]["instances"]) == (6, 2)
    assert top["basis"]["restarts"] == (sample_type == "alloc_space")
    assert ("and 1 restart." in top["basis"]["text"]) == (sample_type == "alloc_space")
    every = asked(fleet, "/v1/top", **{**query, "service": "*"})
    assert every["total"] == total + (50 if sample_type == "inuse_space" else 100) * MIB
    assert every["basis"]["instances"] == 3


def test_pages_say_which_it_is(fleet: Server) -> None:
    visitor = Visitor(fleet)
    for page, query in (
        ("", {}), ("/top", {}), ("/function", {"function": "cache"}), ("/series", {"function": "cache"}),
        ("/diff", {"base_service": "two"}),
    ):  # fmt: skip
        held = visitor.page(f"/ui/services/shop{page}", 200, type_="heap", **query).text
        assert MEAN in held, page
        assert "50.0 MiB" in held
        assert "300 MiB" not in held
        counted = visitor.page(
            f"/ui/services/shop{page}", 200, type_="heap", sample_type="alloc_space", **query
        )
        assert "Allocated between" in counted.text
        assert "Before: 60.0 MiB." in counted.text
    assert (
        "summed over 2 sets of labels, by 6 snapshots and 1 restart."
        in visitor.page("/ui/services/two/top", type_="heap", sample_type="alloc_space").text
    )
    assert (
        "Base: Mean over 6 snapshots"
        in visitor.page("/ui/services/shop/diff", type_="heap", base_service="two").text
    )


def test_the_overview_of_the_fleet_has_what_is_held(fleet: Server) -> None:
    found = asked(fleet, "/v1/fleet", type="heap")
    assert {each["service"]: each["total"] for each in found["services"]} == {
        "shop": 50 * MIB,
        "two": 80 * MIB,
    }
    assert {max(each["days"]) for each in found["services"]} == {50 * MIB, 80 * MIB}
    assert found["functions"][0]["flat"] == 130 * MIB
    assert found["basis"]["kind"] == "state"
    assert (
        "the mean over time for each set of labels, summed over 3 sets of labels"
        in Visitor(fleet).page("/ui/", type_="heap").text
    )


def test_what_is_held_for_days_is_not_more_in_the_overview(fleet: Server) -> None:
    for day in range(4):
        for minute in range(3):
            moment = BEGIN - day * DAY + minute * MINUTE
            profile = renamed(heap_of({"main;wait": (7, 0, 0, 0)}, time_nanos=moment), ("goroutine", "count"))
            store(fleet, profile, service="lasting", type="goroutine")
    found = asked(fleet, "/v1/fleet", type="goroutine")
    (lasting,) = (each for each in found["services"] if each["service"] == "lasting")
    assert (lasting["total"], [day for day in lasting["days"] if day]) == (7, [7, 7, 7, 7])
    (function,) = (row for row in found["functions"] if row["name"] == "wait")
    assert function["flat"] == 7
    plot = Visitor(fleet).page("/ui/", 200, type_="goroutine")
    (legend,) = plot.all("ul", aria_label="Services")
    assert "lasting 7" in " ".join(legend.text.split())


def times(minutes: int = 6, step: float = 60.0) -> dict[str, Any]:
    begin = BEGIN // 10**6 - 1000
    return {"start": begin, "end": begin + minutes * 60_000, "step": step}


@pytest.mark.parametrize("name", ["heap", "memory"])
def test_grafana_gets_what_is_held(fleet: Server, name: str) -> None:
    kind, selector = f"{name}:inuse_space:bytes:space:bytes", '{service_name="shop"}'
    span = {key: value for key, value in times().items() if key != "step"}
    assert drawn(fleet, selector, kind, **span).total == 50 * MIB
    query = {"profile_typeID": kind, "label_selector": selector}
    assert {*points(fleet, **query, **times())[()].values()} == {50.0 * MIB}
    assert {*points(fleet, **query, **times(step=600.0))[()].values()} == {50.0 * MIB}
    mean = points(fleet, **query, **times(step=600.0), aggregation=1)
    assert {*mean[()].values()} == {50.0 * MIB}
    both = {"profile_typeID": kind, "label_selector": ""}
    assert [*points(fleet, **both, **times(step=600.0))[()].values()] == [130.0 * MIB]
    by_instance = points(fleet, **both, **times(step=600.0), group_by=["service_name", "instance"])
    assert sorted(value // MIB for each in by_instance.values() for value in each.values()) == [30, 50, 50]
    rendered = fleet.client.get(
        "/pyroscope/render",
        params={"query": kind + selector, "from": str(BEGIN), "until": str(BEGIN + 5 * MINUTE)},
        headers=bearer(fleet.merge_key),
    ).json()
    assert rendered["flamebearer"]["numTicks"] == 50 * MIB
    assert {*rendered["timeline"]["samples"]} == {50 * MIB}


def test_grafana_gets_what_was_allocated(fleet: Server) -> None:
    kind, selector = "heap:alloc_space:bytes:space:bytes", '{service_name="shop"}'
    assert drawn(fleet, selector, kind).total == 100 * MIB
    found = points(fleet, profile_typeID=kind, label_selector=selector, **times())[()]
    assert [*found.values()] == [0.0, *[20.0 * MIB] * 5]


def test_what_takes_turns_to_send_is_held_at_the_same_time(fleet: Server) -> None:
    """Two instances and a service that send every minute, in other seconds: steps of 15 s have all of it."""
    for at in range(4):
        for service, instance, second in (("turns", "a", 0), ("turns", "b", 20), ("turn", "c", 40)):
            moment = BEGIN + at * MINUTE + second * 10**9
            profile = heap_of({"main;cache": (1, 1, 1, 10)}, time_nanos=moment)
            store(fleet, profile, service=service, type="heap", labels=f"instance={instance}")
    query = {
        "profile_typeID": "heap:inuse_space:bytes:space:bytes",
        "label_selector": '{service_name=~"turn.*"}',
    }
    found = [*points(fleet, **query, **times(step=15.0))[()].values()]
    assert found == [10, 20, *[30] * (len(found) - 4), 20, 10]


def test_a_single_snapshot_is_what_there_is_since_the_start(fleet: Server) -> None:
    store(fleet, SNAPSHOTS[3], service="single", type="heap")
    top = asked(fleet, "/v1/top", service="single", type="heap", sample_type="alloc_space")
    assert (top["total"], top["basis"]["since_start"]) == (120 * MIB, True)
    assert top["basis"]["text"].startswith("Allocated since the start of the program")
    # Grafana asks what came in a range of time.
    query = {
        "profile_typeID": "heap:alloc_space:bytes:space:bytes",
        "label_selector": '{service_name="single"}',
    }
    assert points(fleet, **query, **times()) == {}
    assert stacktraces(fleet, query["label_selector"], query["profile_typeID"]) is None
    held = "heap:inuse_space:bytes:space:bytes"
    assert drawn(fleet, query["label_selector"], held).total == 50 * MIB


def test_processes_with_the_same_labels_are_told_of(fleet: Server) -> None:
    for at in range(6):
        for second, count in ((0, 1000), (20, 5)):
            profile = heap_of(
                {"main;cache": (1, count + at, 1, 8)}, time_nanos=BEGIN + at * MINUTE + second * 10**9
            )
            store(fleet, profile, service="same", type="heap")
    for sample_type in ("inuse_space", "alloc_space"):
        basis = asked(fleet, "/v1/top", service="same", type="heap", sample_type=sample_type)["basis"]
        assert basis["mixed"]
        assert basis["text"].endswith("which makes this wrong: give each a label of its own.")
    two = asked(fleet, "/v1/top", service="two", type="heap", sample_type="alloc_space")
    assert not two["basis"]["mixed"]


def test_goroutines_and_threads_are_held(fleet: Server) -> None:
    for type_ in ("goroutine", "threadcreate"):
        for at, profile in enumerate(SNAPSHOTS):
            counted = renamed(profile, (type_, "count"))
            parsed = Profile.FromString(counted)
            parsed.sample[0].value[:] = [7 + 2 * at]
            store(fleet, parsed.SerializeToString(), service="threads", type=type_)
        assert asked(fleet, "/v1/top", service="threads", type=type_)["total"] == 12


@pytest.mark.parametrize("type_", ["block", "mutex"])
def test_contentions_are_differences_unless_go_has_made_them(fleet: Server, type_: str) -> None:
    waits = ("contentions", "count"), ("delay", "nanoseconds")
    for profile in SNAPSHOTS:
        store(fleet, renamed(profile, *waits), service="waits", type=type_)
        store(fleet, renamed(profile, *waits, duration=10**9), service="seconds", type=type_)
        store(fleet, renamed(profile, *waits), service="deltas", type=f"{type_}_delta")
    found = asked(fleet, "/v1/top", service="waits", type=type_)
    assert (found["total"], found["basis"]["kind"]) == (100 * MIB, "cumulative")
    assert found["basis"]["text"].startswith("Counted between")
    for service, of_type in (("seconds", type_), ("deltas", f"{type_}_delta")):
        summed = asked(fleet, "/v1/top", service=service, type=of_type)
        assert (summed["total"], summed["basis"]["kind"], summed["basis"]["text"]) == (
            660 * MIB,
            "amount",
            "",
        )


def test_clients_that_make_deltas_leave_what_is_in_use_as_it_is(fleet: Server) -> None:
    """godeltaprof and Datadog's tracer for Go do so."""
    for profile in SNAPSHOTS:
        assert_pushed(push(fleet, one(gzip.compress(profile), "sdk", "memory", __delta__="false")))
    query = {"service": "sdk", "type": "memory"}
    assert asked(fleet, "/v1/top", sample_type="alloc_space", **query)["total"] == 660 * MIB
    assert asked(fleet, "/v1/top", sample_type="inuse_space", **query)["total"] == 50 * MIB


def test_differences_among_snapshots_are_left_out(fleet: Server) -> None:
    heap = (
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    )
    for profile in SNAPSHOTS:
        store(fleet, profile, service="mixed", type="heap")
    store(fleet, renamed(SNAPSHOTS[0], *heap, duration=10**9), service="mixed", type="heap")
    answer = fleet.ask("/v1/top", service="mixed", type="heap")
    assert (answer.json()["total"], answer.json()["left_out"]) == (50 * MIB, 1)
    assert "differences where most have snapshots" in answer.headers["PGO-Left-Out"]


def test_a_combined_profile_is_in_no_view_of_snapshots(server: Server) -> None:
    for profile in SNAPSHOTS[:4]:
        store(server, profile, **SHOP)
    assert server.combine(query=SHOP).status_code == 200
    assert server.ask("/v1/top", **SHOP).status_code == 404
    for profile in SNAPSHOTS[4:]:
        store(server, profile, **SHOP)
    answer = server.ask("/v1/top", **SHOP)
    assert (answer.json()["total"], answer.json()["left_out"]) == (50 * MIB, 1)
    assert "the sum of several snapshots" in answer.headers["PGO-Left-Out"]
    allocated = asked(server, "/v1/top", sample_type="alloc_space", **SHOP)["total"]
    assert allocated == 20 * MIB
    (values,) = decode(server.merge(query=SHOP).content).samples.values.tolist()
    assert values[3] == 300 * MIB
    # What is an amount in the same profiles is shown.
    memory = {"service": "sdk", "type": "memory"}
    for profile in SNAPSHOTS:
        store(server, profile, **memory)
    assert server.combine(query=memory).status_code == 200
    assert asked(server, "/v1/top", sample_type="alloc_space", **memory)["total"] == 660 * MIB
    assert server.ask("/v1/top", sample_type="inuse_space", **memory).status_code == 404


@pytest.mark.parametrize("types", [("inuse_objects", "inuse_space"), ("objects", "space")])
def test_nodes_heap_is_what_is_held(fleet: Server, types: tuple[str, str]) -> None:
    """28 MiB that are held once are not 112 after four profiles."""
    service, units = f"node-{types[1]}", ("count", "bytes")
    for at in range(4):
        profile = heap_of({"main;cache": (3, 28 * MIB, 0, 0)}, time_nanos=BEGIN + at * MINUTE)
        body = renamed(profile, *zip(types, units, strict=True))
        answer = fleet.client.post(
            "/ingest",
            params={"name": service, "spyName": "nodespy", "from": BEGIN // 10**9, "format": "pprof"},
            content=gzip.compress(body),
            headers=bearer(fleet.submit_key),
        )
        assert answer.status_code == 200, answer.text
    assert asked(fleet, "/v1/top", service=service, type="heap")["total"] == 28 * MIB
    kind = f"memory:{types[1]}:bytes:space:bytes"
    assert drawn(fleet, f'{{service_name="{service}"}}', kind).total == 28 * MIB
