"""Answers for Grafana: flame graphs, profiles and series of stored profiles, checked against our own API."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from pgo_collector.routes.pyroscope import querier_pb2 as messages
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.collector.pushing import JSON, assert_pushed, one, push, refused, without_start_lines
from tests.collector.querying import CPU, SAMPLES, ask_json, call, post
from tests.constants import QUERY_NODES, QUERY_POINTS
from tests.faults.stacks import DAY, EPOCH, SECOND, profile_of, tally
from tests.server import Server, bearer

NOW_MS = EPOCH // 10**6
MEMORY = "memory:inuse_space:bytes:space:bytes"
ONE_MS = 10_000_000  # the CPU time of each profile of `profile_of`


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, go_profiles: list[bytes]) -> Iterator[Server]:
    """Return a collector with real profiles of one service, and small ones of three others."""
    server = Server(tmp_path_factory.mktemp("filled"))
    server.merge_keys.write_text(f"{server.merge_key}\nkey-of-shop service=shop\n")
    server.environment |= {QUERY_NODES: "5000", QUERY_POINTS: "12"}
    server.start()
    for profile in go_profiles[:4]:
        assert server.submit(profile, query={"service": "api"}).status_code == 204
    for number, region in enumerate(["eu", "eu", "us"]):
        profile = profile_of(f"shop{number}", time_nanos=EPOCH + number * 10 * SECOND)
        query = {"service": "shop", "labels": f"region={region},pod=p{number}"}
        assert server.submit(profile, query=query).status_code == 204
    # A Go program and, beside it, eBPF, whose profiles a compiler can't use.
    assert server.submit(profile_of("main"), query={"service": "both"}).status_code == 204
    for service in ("both", "script"):
        assert_pushed(push(server, one(without_start_lines(profile_of("main")), service)))
    yield server
    server.kill()


def stacktraces(server: Server, selector: str, kind: str = CPU, **fields: Any) -> messages.FlameGraph | None:
    answer = call(
        server,
        "SelectMergeStacktraces",
        messages.SelectMergeStacktracesResponse,
        profile_typeID=kind,
        label_selector=selector,
        **fields,
    )
    return answer.flamegraph if answer.HasField("flamegraph") else None


def drawn(server: Server, selector: str, kind: str = CPU, **fields: Any) -> messages.FlameGraph:
    graph = stacktraces(server, selector, kind, **fields)
    assert graph is not None
    return graph


def bars_of(
    levels: Sequence[Sequence[int]], names: Sequence[str], sides: int = 1
) -> Iterator[tuple[tuple[str, ...], list[int], list[int]]]:
    """Yield the chain of names of each bar, from the root, and its totals and own values.

    Check that each bar stands within its caller's, and beside those of its level.
    """
    above: list[tuple[tuple[str, ...], list[int], list[int]]] = []
    for level in levels:
        width = 3 * sides + 1
        assert len(level) % width == 0
        here, ends = [], [0] * sides
        for at in range(0, len(level), width):
            bar = [*level[at : at + width]]
            begins = [end + gap for end, gap in zip(ends, bar[: 3 * sides : 3], strict=True)]
            totals, own = bar[1 : 3 * sides : 3], bar[2 : 3 * sides : 3]
            assert min(bar[: 3 * sides]) >= 0
            ends = [begin + total for begin, total in zip(begins, totals, strict=True)]
            chain: tuple[str, ...] = (names[bar[-1]],)
            if above:
                (caller,) = [
                    known
                    for known, first, last in above
                    if all(a <= b and c <= d for a, b, c, d in zip(first, begins, ends, last, strict=True))
                    and any(totals)
                ][:1]
                chain = (*caller, *chain)
            here.append((chain, begins, ends))
            yield chain, totals, own
        above = here


def flat_and_cum(graph: messages.FlameGraph) -> tuple[Counter[str], Counter[str]]:
    """Return the own value of each function, and what its outermost calls take."""
    flat, cum = Counter[str](), Counter[str]()
    for (*callers, name), (total,), (own,) in bars_of([level.values for level in graph.levels], graph.names):
        flat[name] += own
        if name not in callers:
            cum[name] += total
    return flat, cum


@pytest.mark.parametrize(
    ("selector", "service"), [('{service_name="api"}', "api"), ('{service_name=~"sh.*"}', "shop")]
)
def test_a_flame_graph_has_the_numbers_of_the_table(filled: Server, selector: str, service: str) -> None:
    graph = drawn(filled, selector, max_nodes=5000)
    assert graph.names[0] == "total"
    assert [*graph.levels[0].values] == [0, graph.total, 0, 0]
    table = filled.ask("/v1/top", service=service, by="function", n="1000").json()
    assert table["sample_type"] == {"type": "cpu", "unit": "nanoseconds"}
    assert graph.total == table["total"]
    flat, cum = flat_and_cum(graph)
    assert graph.max_self == max(
        own for _, _, (own,) in bars_of([level.values for level in graph.levels], graph.names)
    )
    assert len(table["rows"]) == table["names"] < 1000
    assert {row["name"]: (row["flat"], row["cum"]) for row in table["rows"]} == {
        name: (flat[name], cum[name]) for name in cum if name != "total"
    }


def test_services_and_types_are_added_up(filled: Server) -> None:
    one_service = drawn(filled, '{service_name="api"}', SAMPLES)
    graph = drawn(filled, "", SAMPLES)
    # Six small profiles; that of `both` and those of eBPF have the same function.
    assert graph.total == one_service.total + 6
    flat, _ = flat_and_cum(graph)
    assert (flat["main"], flat["shop2"]) == (3, 1)


def test_small_calls_are_in_other(filled: Server) -> None:
    whole = drawn(filled, '{service_name="api"}', max_nodes=5000)
    graph = drawn(filled, '{service_name="api"}', max_nodes=10)
    assert graph.total == whole.total
    bars = [*bars_of([level.values for level in graph.levels], graph.names)]
    assert sum(chain[-1] not in {"total", "other"} for chain, *_ in bars) == 10
    assert sum(own for _, _, (own,) in bars) == whole.total
    assert any(chain[-1] == "other" for chain, *_ in bars)


@pytest.mark.parametrize(
    "kind",
    [
        "memory:inuse_space:bytes:space:bytes",
        "memory:alloc_objects:count:space:bytes",
        "memory:inuse_space:bytes:inuse_space:bytes",
        "goroutine:goroutine:count:goroutine:count",
        "goroutines:goroutine:count:goroutine:count",
        "mutex:contentions:count:contentions:count",
        "block:delay:nanoseconds:contentions:count",
        "block:delay:nanoseconds:contentions:count:delta",
    ],
)
def test_profile_types_have_pyroscopes_names(filled: Server, kind: str) -> None:
    name, *parts = kind.split(":")[:5]

    def edit(parsed: Profile) -> None:
        numbers = range(len(parsed.string_table), len(parsed.string_table) + len(parts))
        parsed.string_table.extend(part.encode() for part in parts)
        type_, unit, period, period_unit = numbers
        del parsed.sample_type[:]
        parsed.sample_type.add(type=type_, unit=unit)
        parsed.period_type.type, parsed.period_type.unit = period, period_unit
        parsed.sample[0].value[:] = [42]

    service = kind.replace(":", ".")
    profile = edited(profile_of("leaf"), edit)
    assert_pushed(push(filled, one(profile, service, name, __delta__="false")))
    graph = drawn(filled, f'{{service_name="{service}"}}', kind)
    assert (graph.total, [*graph.names]) == (42, ["total", "leaf"])
    listed = call(filled, "ProfileTypes", messages.ProfileTypesResponse).profile_types
    assert name.removesuffix("s") in {each.name for each in listed if each.sample_type == parts[0]}


def test_values_that_add_up_to_more_than_64_bits_are_refused(filled: Server) -> None:
    def edit(parsed: Profile) -> None:
        parsed.sample.add().CopyFrom(parsed.sample[0])
        parsed.sample[1].location_id[:] = []
        for sample in parsed.sample:
            sample.value[:] = [1, (1 << 63) - 1]

    huge = gzip.compress(edited(profile_of("huge"), edit))
    assert filled.submit(huge, query={"service": "huge", "type": "wall"}).status_code == 204
    kind = "wall:cpu:nanoseconds:cpu:nanoseconds"
    asked = messages.SelectMergeStacktracesRequest(profile_typeID=kind).SerializeToString()
    assert "64 bits" in refused(post(filled, "SelectMergeStacktraces", asked), 400, "invalid_argument")
    assert "64 bits" in refused(render(filled, query=kind), 400, "invalid_argument")
    # As in a merge, sums wrap.
    assert [*points(filled, profile_typeID=kind, label_selector="")[()].values()] == [-2.0]


def test_stacks_are_selected_by_the_calls_that_they_begin_with(filled: Server) -> None:
    selector = '{service_name="api"}'
    whole = drawn(filled, selector, max_nodes=5000)
    levels = [level.values for level in whole.levels]
    chain, (expected,), _ = next(bar for bar in bars_of(levels, whole.names) if len(bar[0]) == 4)
    site = messages.StackTraceSelector(call_site=[messages.Location(name=name) for name in chain[1:]])
    graph = drawn(filled, selector, stack_trace_selector=site)
    assert graph.total == expected
    chains = {bar[0] for bar in bars_of([level.values for level in graph.levels], graph.names)}
    assert all(each[: len(chain)] == chain[: len(each)] for each in chains)
    profile = Profile.FromString(merged(filled, label_selector=selector, stack_trace_selector=site))
    assert sum(sample.value[0] for sample in profile.sample) == expected
    absent = messages.StackTraceSelector(call_site=[messages.Location(name="absent")])
    assert stacktraces(filled, selector, stack_trace_selector=absent) is None
    assert merged(filled, label_selector=selector, stack_trace_selector=absent) == b""
    body = messages.SelectSeriesRequest(profile_typeID=CPU, step=1.0, stack_trace_selector=site)
    refusal = refused(post(filled, "SelectSeries", body.SerializeToString()), 400, "invalid_argument")
    assert "call_site" in refusal


def test_too_many_nodes_are_refused_with_the_name_of_the_setting(filled: Server) -> None:
    for asked in (5001, (1 << 63) - 1):
        body = messages.SelectMergeStacktracesRequest(profile_typeID=CPU, max_nodes=asked)
        answer = post(filled, "SelectMergeStacktraces", body.SerializeToString())
        assert "the limit is 5,000" in refused(answer, 400, "invalid_argument")
    for asked in (0, -1):
        assert drawn(filled, "", max_nodes=asked).total


@pytest.mark.parametrize(
    "fields",
    [
        {"label_selector": '{service_name="absent"}'},
        {"label_selector": '{service_name="shop"}', "profile_typeID": MEMORY},
        {"profile_typeID": "process_cpu:absent:count:cpu:nanoseconds"},
        {"start": 1, "end": 2},
    ],
)
def test_nothing_found_is_an_empty_answer(filled: Server, fields: dict[str, Any]) -> None:
    fields = {"profile_typeID": CPU, **fields}
    for form in (messages.PROFILE_FORMAT_FLAMEGRAPH, messages.PROFILE_FORMAT_PPROF):
        answer = call(
            filled, "SelectMergeStacktraces", messages.SelectMergeStacktracesResponse, format=form, **fields
        )
        assert not answer.ListFields()
    series = call(filled, "SelectSeries", messages.SelectSeriesResponse, step=15.0, **fields)
    assert not series.series
    body = messages.SelectMergeProfileRequest(**fields)
    profile = post(filled, "SelectMergeProfile", body.SerializeToString())
    assert (profile.status_code, profile.content) == (200, b"")
    assert ask_json(filled, "SelectMergeProfile", **fields).get("sample") is None


def merged(server: Server, **fields: Any) -> bytes:
    """Return the profile that both calls answer with."""
    body = messages.SelectMergeProfileRequest(profile_typeID=CPU, **fields)
    answer = post(server, "SelectMergeProfile", body.SerializeToString())
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/proto"), answer.text
    asked = messages.SelectMergeStacktracesRequest(
        profile_typeID=CPU, format=messages.PROFILE_FORMAT_PPROF, **fields
    )
    other = post(server, "SelectMergeStacktraces", asked.SerializeToString())
    assert messages.SelectMergeStacktracesResponse.FromString(other.content).pprof.profile == answer.content
    return answer.content


def test_a_profile_is_the_merge_with_one_sample_type(filled: Server) -> None:
    ours = Profile.FromString(gzip.decompress(filled.merge(query={"service": "api"}).content))
    theirs = Profile.FromString(merged(filled, label_selector='{service_name="api"}'))
    assert [theirs.string_table[each.type] for each in theirs.sample_type] == [b"cpu"]
    assert [[*sample.value] for sample in theirs.sample] == [[sample.value[1]] for sample in ours.sample]
    assert [*theirs.location] == [*ours.location]
    everything = Profile.FromString(merged(filled))
    assert sum(sample.value[0] for sample in everything.sample) == drawn(filled, "").total


def test_a_profile_as_json_has_its_strings_as_text(filled: Server) -> None:
    asked = {"profileTypeID": CPU, "labelSelector": '{service_name="shop"}'}
    profile = ask_json(filled, "SelectMergeProfile", **asked)
    assert {"shop0", "shop1", "shop2", "cpu"} <= {*profile["stringTable"]}
    assert [sample["value"] for sample in profile["sample"]] == [[str(ONE_MS)]] * 3
    answer = ask_json(
        filled, "SelectMergeStacktraces", profile_typeID=CPU, label_selector=asked["labelSelector"],
        format="PROFILE_FORMAT_PPROF",
    )  # fmt: skip
    assert answer == {"pprof": {"profile": profile}}


def test_a_large_profile_is_refused_with_the_name_of_the_setting(
    stopped: Server, go_profiles: list[bytes]
) -> None:
    stopped.environment["PGOF_MAX_OUTPUT_BYTES"] = "400000"
    stopped.start()
    assert stopped.submit(go_profiles[0], query={"service": "api"}).status_code == 204
    asked = messages.SelectMergeProfileRequest(profile_typeID=CPU).SerializeToString()
    assert post(stopped, "SelectMergeProfile", asked).status_code == 200
    as_json = post(stopped, "SelectMergeProfile", f'{{"profileTypeID": "{CPU}"}}'.encode(), **JSON)
    assert "PGOF_MAX_OUTPUT_BYTES" in refused(as_json, 400, "invalid_argument")
    stopped.environment["PGOF_MAX_OUTPUT_BYTES"] = "4000"
    stopped.restart()
    for method in ("SelectMergeProfile", "SelectMergeStacktraces"):
        answer = post(stopped, method, asked)
        assert "PGOF_MAX_OUTPUT_BYTES" in refused(answer, 400, "invalid_argument")


PGO = messages.StackTraceSelector(go_pgo=messages.GoPGO(keep_locations=5, aggregate_callees=True))


@pytest.mark.parametrize("service", ["api", "both"])
def test_a_profile_for_go_is_the_one_that_builds_the_same(filled: Server, service: str) -> None:
    """So the line of the leaf, which decides what is inlined where, isn't lost."""
    made = merged(filled, label_selector=f'{{service_name="{service}"}}', stack_trace_selector=PGO)
    ours = filled.merge(query={"service": service, "format": "go"})
    assert made == gzip.decompress(ours.content)


def test_a_profile_for_go_is_of_one_service_that_go_can_use(filled: Server) -> None:
    def refusal(selector: str, kind: str = CPU) -> str:
        body = messages.SelectMergeStacktracesRequest(
            profile_typeID=kind,
            label_selector=selector,
            format=messages.PROFILE_FORMAT_PPROF,
            stack_trace_selector=PGO,
        )
        answer = post(filled, "SelectMergeStacktraces", body.SerializeToString())
        return refused(answer, 400, "invalid_argument")

    assert "matches 3 services" in refusal("{}")
    assert "no start lines" in refusal('{service_name="script"}')
    assert merged(filled, label_selector='{service_name="absent"}', stack_trace_selector=PGO) == b""


def points(server: Server, **fields: Any) -> dict[tuple[str, ...], dict[int, float]]:
    """Return the points of each series, by the values of its labels."""
    asked = {"profile_typeID": CPU, "label_selector": '{service_name="shop"}', "step": 10.0, **fields}
    answer = call(server, "SelectSeries", messages.SelectSeriesResponse, **asked)
    found = {}
    for series in answer.series:
        times = [point.timestamp for point in series.points]
        assert times == sorted({*times})
        key = tuple(label.value for label in series.labels)
        found[key] = {point.timestamp: point.value for point in series.points}
    return found


def test_a_series_has_a_point_for_each_step_with_profiles(filled: Server) -> None:
    at = [NOW_MS + step * 10_000 for step in range(3)]
    times = {"start": NOW_MS, "end": NOW_MS + 60_000}
    assert points(filled, **times) == {(): dict.fromkeys(at, float(ONE_MS))}
    assert points(filled, **times, group_by=["region"]) == {
        ("eu",): dict.fromkeys(at[:2], float(ONE_MS)),
        ("us",): {at[2]: float(ONE_MS)},
    }
    # A profile counts at the end of its step, and none after the end of the range.
    assert points(filled, **times, step=15.0) == {
        (): {at[0]: ONE_MS, NOW_MS + 15_000: ONE_MS, NOW_MS + 30_000: ONE_MS}
    }
    assert points(filled, start=NOW_MS, end=NOW_MS + 20_000, step=3600.0) == {
        (): {at[0]: ONE_MS, NOW_MS + 20_000: 2 * ONE_MS}
    }
    assert points(filled, start=NOW_MS - 1, end=NOW_MS + 60_000, step=3600.0) == {
        (): {NOW_MS + 60_000: 3 * ONE_MS}
    }
    mean = messages.TIME_SERIES_AGGREGATION_TYPE_AVERAGE
    assert points(filled, start=NOW_MS - 1, end=NOW_MS + 60_000, step=3600.0, aggregation=mean) == {
        (): {NOW_MS + 60_000: ONE_MS}
    }


def test_series_are_grouped_and_the_largest_are_returned(filled: Server) -> None:
    every = {"label_selector": "", "step": 1e9, "start": NOW_MS - 1, "end": NOW_MS + 10 * DAY}
    totals = points(filled, **every, group_by=["service_name", "absent"])
    assert {key: sum(values.values()) for key, values in totals.items() if key != ("api",)} == {
        ("shop",): 3 * ONE_MS, ("both",): 2 * ONE_MS, ("script",): ONE_MS
    }  # fmt: skip
    assert sum(totals["api",].values()) == drawn(filled, '{service_name="api"}').total
    assert {*points(filled, **every, group_by=["service_name"], limit=2)} == {("api",), ("shop",)}
    assert {*points(filled, **every, group_by=["__profile_type__"])} == {(CPU,)}
    by_unit = points(filled, **every, group_by=["__unit__", "region"])
    assert {*by_unit} == {("nanoseconds",), ("nanoseconds", "eu"), ("nanoseconds", "us")}


@pytest.mark.parametrize("step", [0.0, -1.0, 0.0001, float("nan"), float("inf"), 1e300])
def test_a_step_that_is_none_is_refused(filled: Server, step: float) -> None:
    body = messages.SelectSeriesRequest(profile_typeID=CPU, step=step).SerializeToString()
    assert "step" in refused(post(filled, "SelectSeries", body), 400, "invalid_argument")


def test_too_many_points_are_refused_with_the_name_of_the_setting(filled: Server) -> None:
    for number in range(14):
        profile = profile_of("many", time_nanos=EPOCH + number * SECOND, type_="delay")
        query = {"service": f"many{number % 2}", "type": "offcpu"}
        assert filled.submit(profile, query=query).status_code == 204
    kind = "offcpu:delay:nanoseconds:delay:nanoseconds"
    selector = '{service_name="many0"}'
    assert len(points(filled, profile_typeID=kind, label_selector=selector, step=1.0)[()]) == 7
    body = messages.SelectSeriesRequest(profile_typeID=kind, step=1.0)
    answer = post(filled, "SelectSeries", body.SerializeToString())
    assert "use a longer step" in refused(answer, 400, "invalid_argument")


_MANY_SPANS = [f"{number:016x}" for number in range(101)]


@pytest.mark.parametrize(
    ("method", "fields", "why"),
    [
        ("SelectMergeStacktraces", {"profileTypeID": "cpu"}, "name:type:unit"),
        ("SelectMergeStacktraces", {}, "name:type:unit"),
        ("SelectMergeStacktraces", {"profileTypeID": CPU, "labelSelector": "{"}, "can't be read"),
        ("SelectMergeStacktraces", {"profileTypeID": CPU, "start": "2", "end": "1"}, "before end"),
        ("SelectMergeStacktraces", {"profileTypeID": CPU, "format": 9}, "FLAMEGRAPH"),
        (
            "SelectMergeStacktraces",
            {"profileTypeID": CPU, "profileIdSelector": ["x"]},
            "profile_id_selector=",
        ),
        ("SelectMergeStacktraces", {"profileTypeID": CPU, "spanSelector": [""]}, "16 hex digits"),
        ("SelectMergeStacktraces", {"profileTypeID": CPU, "traceIdSelector": [16 * "a"]}, "32 hex digits"),
        (
            "SelectMergeStacktraces",
            {"profileTypeID": CPU, "spanSelector": [*_MANY_SPANS]},
            "the limit is 100",
        ),
        (
            "SelectMergeSpanProfile",
            {"profileTypeID": CPU, "spanSelector": [15 * "a" + "\xe4"]},
            "span_selector=",
        ),
        ("SelectMergeProfile", {"profileTypeID": CPU, "traceIdSelector": ["x"]}, "trace_id_selector="),
        ("SelectMergeProfile", {"profileTypeID": CPU, "profileIdSelector": [32 * "-"]}, "32 hex digits"),
        ("SelectSeries", {"profileTypeID": CPU, "step": 1, "exemplarType": 7}, "exemplar_type: 7"),
    ],
)
def test_what_cannot_be_read_is_refused(
    filled: Server, method: str, fields: dict[str, Any], why: str
) -> None:
    answer = filled.client.post(
        f"/querier.v1.QuerierService/{method}", json=fields, headers=JSON | bearer(filled.merge_key)
    )
    assert why in refused(answer, 400, "invalid_argument")


def test_a_key_reads_its_services_only(filled: Server) -> None:
    body = messages.SelectMergeStacktracesRequest(profile_typeID=CPU).SerializeToString()
    answer = post(filled, "SelectMergeStacktraces", body, "key-of-shop")
    assert messages.SelectMergeStacktracesResponse.FromString(answer.content).flamegraph.total == 3 * ONE_MS
    for path in ("/pyroscope/render", "/pyroscope/render-diff"):
        assert "key" in refused(filled.client.get(path), 401, "unauthenticated")
    assert render(filled, key="key-of-shop").json()["flamebearer"]["numTicks"] == 3 * ONE_MS
    assert post(filled, "SelectMergeProfile", body, "key-of-shop").status_code == 200


def render(server: Server, path: str = "", key: str = Server.merge_key, **query: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in query.items()}
    if not path:
        named = {"query": CPU, **named}
    return server.client.get(f"/pyroscope/render{path}", params=named, headers=bearer(key))


def test_render_is_the_flame_graph_as_json(filled: Server) -> None:
    graph = drawn(filled, '{service_name="api"}')
    for times in (
        {},
        {"from": "1500000000", "until": "now"},
        {"from": "1500000000000"},
        {"from": "1500000000000000"},
        {"from": "1500000000000000000"},
        {"from": "0"},
        {"from": "915148800"},  # of 1999
        {"from": "915148800000", "format": "pprof"},
        {"from": "now-99y"},
    ):
        answer = render(filled, query=f'{CPU}{{service_name="api"}}', **{"format": "json", **times})
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json"), answer.text
        document = answer.json()
        assert document["version"] == 1
        assert document["flamebearer"] == {
            "names": [*graph.names],
            "levels": [[*level.values] for level in graph.levels],
            "numTicks": graph.total,
            "maxSelf": graph.max_self,
        }
        assert document["metadata"] == {
            "format": "single", "spyName": "", "sampleRate": 10**9, "units": "samples", "name": "cpu"
        }  # fmt: skip
        timeline = document["timeline"]
        if times:
            assert timeline["durationDelta"] >= 15
            assert len(timeline["samples"]) <= 1501
            assert sum(timeline["samples"]) == graph.total
        else:
            assert timeline == {"startTime": 0, "samples": [], "durationDelta": 15, "watermarks": None}
    small = render(filled, max_nodes="3").json()["flamebearer"]
    assert "other" in small["names"]
    empty = render(filled, **{"from": "now-1h", "until": "now"}).json()
    assert empty["flamebearer"] == {"names": [], "levels": [], "numTicks": 0, "maxSelf": 0}
    bodiless = filled.client.head(
        "/pyroscope/render", params={"query": CPU}, headers=bearer(filled.merge_key)
    )
    assert (bodiless.status_code, bodiless.content) == (200, b"")


def test_render_diff_has_two_sides(filled: Server) -> None:
    sides = {"leftQuery": f'{CPU}{{region="eu"}}', "rightQuery": f'{CPU}{{service_name="shop"}}'}
    document = render(filled, "-diff", **sides).json()
    bearer_ = document["flamebearer"]
    assert document["metadata"]["format"] == "double"
    assert (document["leftTicks"], document["rightTicks"]) == (2 * ONE_MS, 3 * ONE_MS)
    assert bearer_["numTicks"] == 5 * ONE_MS
    found = defaultdict(list)
    for chain, totals, own in bars_of(bearer_["levels"], bearer_["names"], sides=2):
        found[chain].append((totals, own))
    nothing = [0, 0]
    assert found == {
        ("total",): [([2 * ONE_MS, 3 * ONE_MS], nothing)],
        ("total", "shop0"): [([ONE_MS, ONE_MS],) * 2],
        ("total", "shop1"): [([ONE_MS, ONE_MS],) * 2],
        ("total", "shop2"): [([0, ONE_MS],) * 2],
    }
    one_sided = render(filled, "-diff", **{**sides, "leftQuery": f'{CPU}{{region="absent"}}'}).json()
    assert (one_sided["leftTicks"], one_sided["rightTicks"]) == (0, 3 * ONE_MS)


@pytest.mark.parametrize(
    ("path", "query", "why"),
    [
        ("", {"query": ""}, "query: give a profile type"),
        ("", {"query": "cpu"}, "name:type:unit"),
        ("", {"query": CPU + "{"}, "can't be read"),
        ("", {"from": "yesterday"}, "from=yesterday"),
        ("", {"from": "9" * 20}, "give a time in s or ms"),
        ("", {"from": "now", "until": "now-1h"}, "before end"),
        ("", {"max_nodes": "-1"}, "whole number"),
        ("", {"maxNodes": "9" * 20}, "whole number"),
        ("", {"maxNodes": "999999999"}, "the limit is 5,000"),
        ("-diff", {}, "leftQuery: give"),
        ("-diff", {"leftQuery": CPU, "rightQuery": SAMPLES}, "give the profile type of leftQuery"),
    ],
)
def test_a_render_that_cannot_be_made_is_refused(
    filled: Server, path: str, query: dict[str, str], why: str
) -> None:
    assert why in refused(render(filled, path, **query), 400, "invalid_argument")


def test_a_combined_profile_counts_as_its_parts(stopped: Server) -> None:
    stopped.start()
    for number in range(3):
        profile = profile_of(f"part{number % 2}", time_nanos=EPOCH + number * SECOND)
        assert stopped.submit(profile, query={"service": "shop"}).status_code == 204
    before = drawn(stopped, "")
    assert tally(stopped.combine(query={"service": "shop"}).content) == {"part0": 2, "part1": 1}
    assert drawn(stopped, "") == before
    assert points(stopped, start=NOW_MS + 1500, end=NOW_MS + 60_000) == {(): {NOW_MS + 1500: 3 * ONE_MS}}
