"""Grafana selects samples by the ids of traces and spans, and profiles by those that exemplars have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pgo_collector.routes.pyroscope import querier_pb2 as messages
from pprof_proto.profile_pb2 import Profile

from tests.collector.datadog import tracer_profile
from tests.collector.pushing import assert_pushed, one, push
from tests.collector.queries.test_ids import ROOTS, SPANS, TRACES
from tests.collector.querying import CPU, SAMPLES, call, post
from tests.faults.stacks import EPOCH, SECOND, profile_of
from tests.merge.stacked import heap_of
from tests.server import Server

SHOP = '{service_name="shop"}'
NOW_MS = EPOCH // 10**6
# The span of a request of a program with Datadog's tracer, which writes it as a number with a sign.
DATADOG_SPAN = (1 << 64) - 5


@pytest.fixture(scope="module")
def spanned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a collector with spans of Grafana's and of Datadog's clients, and what has none."""
    with Server(tmp_path_factory.mktemp("spanned")) as server:
        query = {"service": "shop", "labels": "region=eu,pod=a"}
        assert server.submit(SPANS.read_bytes(), query=query).status_code == 204
        for number in range(4):
            query = {"service": "plain", "labels": f"region={'eu' if number % 2 else 'us'},pod={number}"}
            profile = profile_of(f"f{number}", time_nanos=EPOCH + number * SECOND)
            assert server.submit(profile, query=query).status_code == 204
        samples = [
            ("slow", {"wall-time": 900}, DATADOG_SPAN - (1 << 64)),
            ("slower", {"wall-time": 500}, DATADOG_SPAN - (1 << 64)),
            ("quick", {"wall-time": 1000}, 7),
        ]
        content = tracer_profile(samples, {"wall-time": "nanoseconds"})
        assert_pushed(push(server, one(content, "traced", "wall", pod="b")))
        for number in range(3):
            heap = heap_of({"main.held": [1, 4096, 1, 1024]}, time_nanos=EPOCH + number * SECOND)
            assert server.submit(heap, query={"service": "held", "type": "heap"}).status_code == 204
        yield server


def graph(server: Server, method: str = "SelectMergeStacktraces", **fields: Any) -> messages.FlameGraph:
    asked = {"profile_typeID": SAMPLES, "label_selector": SHOP, **fields}
    return call(server, method, messages.SelectMergeStacktracesResponse, **asked).flamegraph


def points(server: Server, kind: str, **fields: Any) -> list[messages.Point]:
    """Return the points of the only series."""
    asked = {"profile_typeID": kind, "step": 3600.0, "exemplar_type": "EXEMPLAR_TYPE_INDIVIDUAL", **fields}
    (series,) = call(server, "SelectSeries", messages.SelectSeriesResponse, **asked).series
    return [*series.points]


def exemplar(server: Server, kind: str, **fields: Any) -> messages.Exemplar:
    ((found,),) = (point.exemplars for point in points(server, kind, **fields))
    return found


def labels_of(found: messages.Exemplar) -> dict[str, str]:
    return {each.name: each.value for each in found.labels}


def test_flame_graphs_are_of_the_samples_with_the_ids(spanned: Server) -> None:
    totals = [9, 15, 19]
    assert graph(spanned).total == sum(totals) + 1
    for trace, span, total in zip(TRACES, ROOTS, totals, strict=True):
        assert graph(spanned, trace_id_selector=[trace.upper()]).total == total
        assert graph(spanned, span_selector=[span]).total == total
        assert graph(spanned, "SelectMergeSpanProfile", span_selector=[span]).total == total
    assert graph(spanned, span_selector=ROOTS[:2], trace_id_selector=TRACES).total == 24
    assert graph(spanned, span_selector=ROOTS[:1], trace_id_selector=TRACES[1:]) == messages.FlameGraph()
    # Others in the same selection have no such samples.
    assert graph(spanned, label_selector="", span_selector=ROOTS).total == sum(totals)
    tree = call(
        spanned,
        "SelectMergeSpanProfile",
        messages.SelectMergeStacktracesResponse,
        profile_typeID=SAMPLES,
        label_selector=SHOP,
        span_selector=ROOTS[:1],
        format="PROFILE_FORMAT_TREE",
    )
    assert tree.tree
    assert not tree.HasField("flamegraph")


def test_nothing_with_an_id_is_an_empty_answer(spanned: Server) -> None:
    unknown: list[dict[str, Any]] = [
        {"span_selector": ["0123456789abcdef"]},
        {"trace_id_selector": ["f" * 32]},
        {"profile_id_selector": ["f" * 32]},
    ]
    for fields in unknown:
        body = messages.SelectMergeStacktracesRequest(profile_typeID=CPU, label_selector=SHOP, **fields)
        answer = post(spanned, "SelectMergeStacktraces", body.SerializeToString())
        assert (answer.status_code, answer.content) == (200, b"")


def test_profiles_and_comparisons_are_of_the_samples_with_the_ids(spanned: Server) -> None:
    asked = messages.SelectMergeProfileRequest(
        profile_typeID=SAMPLES, label_selector=SHOP, trace_id_selector=TRACES[:1]
    )
    answer = post(spanned, "SelectMergeProfile", asked.SerializeToString())
    assert sum(sample.value[0] for sample in Profile.FromString(answer.content).sample) == 9
    sides = [
        messages.SelectMergeStacktracesRequest(
            profile_typeID=SAMPLES, label_selector=SHOP, span_selector=[span]
        )
        for span in ROOTS[:2]
    ]
    compared = call(spanned, "Diff", messages.DiffResponse, left=sides[0], right=sides[1]).flamegraph
    assert (compared.leftTicks, compared.rightTicks) == (9, 15)


def test_a_span_of_datadog_is_one(spanned: Server) -> None:
    of_span: dict[str, Any] = {
        "label_selector": '{service_name="traced"}',
        "span_selector": [f"{DATADOG_SPAN:016x}"],
    }
    kinds = call(spanned, "ProfileTypes", messages.ProfileTypesResponse).profile_types
    (kind,) = (each.ID for each in kinds if each.sample_type == "wall-time")
    found = graph(spanned, profile_typeID=kind, **of_span)
    assert (found.total, {*found.names}) == (1400, {"total", "slow", "slower"})
    largest = exemplar(
        spanned, kind, label_selector=of_span["label_selector"], exemplar_type="EXEMPLAR_TYPE_SPAN"
    )
    assert (largest.span_id, largest.trace_id, largest.value) == (f"{DATADOG_SPAN:016x}", "", 1400)


def test_an_exemplar_is_the_largest_profile_of_a_point(spanned: Server) -> None:
    of_plain: dict[str, Any] = {"start": NOW_MS - 1, "end": NOW_MS + 60_000}
    # All are as large: the first of them is the exemplar.
    selector = '{service_name="plain", region="us"}'
    first = exemplar(spanned, SAMPLES, **of_plain, group_by=["region"], label_selector=selector)
    assert labels_of(first) == {"service_name": "plain", "pod": "0"}
    assert (first.timestamp, first.value, first.span_id) == (NOW_MS, 1, "")
    of_plain |= {"start": NOW_MS, "label_selector": '{service_name="plain"}'}
    by_pod = points(spanned, SAMPLES, **of_plain, step=1.0)
    assert [(each.timestamp, each.exemplars[0].timestamp) for each in by_pod] == [
        (time, time) for time in range(NOW_MS, NOW_MS + 4000, 1000)
    ]
    ids = {each.exemplars[0].profile_id for each in by_pod}
    assert len(ids) == 4
    # Each id selects one profile.
    found = [graph(spanned, label_selector="", profile_id_selector=[id_]) for id_ in ids]
    assert [each.total for each in found] == [1] * 4
    assert sorted(each.names[1] for each in found) == ["f0", "f1", "f2", "f3"]
    assert graph(spanned, label_selector="", profile_id_selector=[*ids]).total == 4


def test_an_exemplar_of_spans_has_the_ids_of_the_largest(spanned: Server) -> None:
    found = exemplar(spanned, SAMPLES, label_selector=SHOP, exemplar_type="EXEMPLAR_TYPE_SPAN")
    assert (found.span_id, found.trace_id, found.value) == (ROOTS[2], TRACES[2], 19)
    assert labels_of(found) == {"service_name": "shop", "region": "eu", "pod": "a"}
    whole = exemplar(spanned, SAMPLES, label_selector=SHOP)
    assert (whole.profile_id, whole.value, whole.span_id) == (found.profile_id, 44, "")
    # Without spans there are points, and no exemplars.
    plain = points(spanned, CPU, label_selector='{service_name="plain"}', exemplar_type="EXEMPLAR_TYPE_SPAN")
    assert [len(each.exemplars) for each in plain] == [0]


def test_who_does_not_ask_for_exemplars_gets_none(spanned: Server) -> None:
    for kind in ("EXEMPLAR_TYPE_UNSPECIFIED", "EXEMPLAR_TYPE_NONE"):
        assert not any(
            each.exemplars for each in points(spanned, SAMPLES, label_selector=SHOP, exemplar_type=kind)
        )


def test_what_is_held_has_exemplars_and_what_is_counted_since_the_start_has_none(spanned: Server) -> None:
    held = {"label_selector": '{service_name="held"}'}
    assert exemplar(spanned, "memory:inuse_space:bytes:space:bytes", **held).value == 1024
    counted = points(spanned, "heap:alloc_space:bytes:space:bytes", **held)
    assert not any(each.exemplars for each in counted)


@pytest.mark.folder
def test_combined_profiles_are_no_exemplars(server: Server) -> None:
    for number in range(2):
        assert server.submit(profile_of(f"f{number}", time_nanos=EPOCH + number)).status_code == 204
    assert server.combine().status_code == 200
    assert [len(each.exemplars) for each in points(server, SAMPLES)] == [0]
    assert server.submit(SPANS.read_bytes()).status_code == 204
    assert exemplar_values(server, "EXEMPLAR_TYPE_INDIVIDUAL") == [44]
    # A profile whose rows were read still counts if its blob is damaged later; its spans can't be read.
    (blob,) = (each for each in server.blobs() if each.stat().st_size == len(SPANS.read_bytes()))
    blob.write_bytes(b"damaged")
    assert exemplar_values(server, "EXEMPLAR_TYPE_INDIVIDUAL") == [44]
    assert exemplar_values(server, "EXEMPLAR_TYPE_SPAN") == []


def exemplar_values(server: Server, kind: str) -> list[int]:
    return [each.value for point in points(server, SAMPLES, exemplar_type=kind) for each in point.exemplars]


def test_a_build_can_be_made_of_a_request(spanned: Server) -> None:
    """Grafana never asks so, but a client may."""
    asked = messages.SelectMergeProfileRequest(
        profile_typeID=CPU,
        label_selector=SHOP,
        trace_id_selector=TRACES[:1],
        stack_trace_selector=messages.StackTraceSelector(go_pgo=messages.GoPGO()),
    )
    answer = post(spanned, "SelectMergeProfile", asked.SerializeToString())
    assert answer.status_code == 200
    made = Profile.FromString(answer.content)
    assert sum(sample.value[0] for sample in made.sample) == 9
