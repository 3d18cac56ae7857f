"""Requests of Pyroscope's probes (3fe6a45): those of `profilecli canary-exporter --query-probe-set=all`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pgo_collector.routes.otlp.export_pb2 import ExportRequest
from pgo_collector.routes.pyroscope import querier_pb2 as messages
from pprof_proto.profile_pb2 import Profile

from tests.collector.exporting import JSON, as_json, assert_exported, export, set_value
from tests.collector.pushing import assert_pushed, one, push
from tests.collector.querying import call, post
from tests.faults.stacks import EPOCH
from tests.server import Server, bearer

SERVICE = "pyroscope-canary-exporter"
LABELS = {"job": "canary-exporter", "instance": "host-1"}
SELECTOR = f'{{service_name="{SERVICE}", job="canary-exporter", instance="host-1"}}'
KIND = "deadmans_switch:made_up:profilos:made_up:profilos"
OTLP_KIND = "otlp_test:otlp_test:count:otlp_test:samples"
TIMES: Mapping[str, Any] = {"start": EPOCH // 10**6, "end": EPOCH // 10**6 + 5000}


def pushed() -> bytes:
    """Return the profile that comes by Push: a sample of func1 in func2, and one of func1."""
    profile = Profile(time_nanos=EPOCH, period=1)
    texts = ["", "made_up", "profilos", "func1", "func2", "profile_id", "00000bac2a5ab0c7"]
    profile.string_table.extend(text.encode() for text in texts)
    profile.sample_type.add(type=1, unit=2)
    profile.period_type.type, profile.period_type.unit = 1, 2
    profile.mapping.add(id=1)
    for id_ in (1, 2):
        profile.function.add(id=id_, name=2 + id_)
        profile.location.add(id=id_, mapping_id=1).line.add(function_id=id_)
    profile.sample.add(location_id=[1, 2], value=[10])
    profile.sample.add(location_id=[1], value=[20]).label.add(key=5, str=6)
    return profile.SerializeToString()


def exported(method: str) -> ExportRequest:
    """Return the profile that comes by OTLP, whose first location isn't empty, as it should be."""
    request = ExportRequest()
    tables = request.dictionary
    tables.string_table.extend(["", "otlp_test", "samples", "count", "func1", "func2"])
    tables.mapping_table.add()
    for name in (0, 4, 5):
        tables.function_table.add(name_strindex=name)
    for function in (1, 2):
        tables.location_table.add().lines.add(function_index=function)
    for locations in ([], [1, 0], [0]):
        tables.stack_table.add(location_indices=locations)
    resource = request.resource_profiles.add()
    attributes = {"service.name": SERVICE, **LABELS, "ingestion_method": method}
    for key, value in attributes.items():
        set_value(resource.resource.attributes.add(key=key), value)
    profile = resource.scope_profiles.add().profiles.add(time_unix_nano=EPOCH, period=1)
    profile.sample_type.type_strindex, profile.sample_type.unit_strindex = 1, 3
    profile.period_type.type_strindex, profile.period_type.unit_strindex = 1, 2
    profile.samples.add(stack_index=1, values=[10])
    profile.samples.add(stack_index=2, values=[20])
    return request


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a collector with what the exporter sends; it sends the same again where it isn't answered."""
    with Server(tmp_path_factory.mktemp("probed")) as server:
        assert_pushed(push(server, one(pushed(), SERVICE, "deadmans_switch", **LABELS)))
        for _ in range(2):
            assert export(server, as_json(exported("otlp_http_json")), **JSON).content == b"{}"
            assert_exported(export(server, exported("otlp_http_protobuf").SerializeToString()))
        yield server


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (KIND, {("func1", "func2"): 10, ("func1",): 20}),
        (OTLP_KIND, {("func2", "func1"): 20, ("func1",): 40}),
    ],
)
def test_profiles_are_whole(probed: Server, kind: str, expected: dict[tuple[str, ...], int]) -> None:
    """Two profiles of OTLP differ only in an attribute that isn't kept: they are two all the same."""
    asked = messages.SelectMergeProfileRequest(label_selector=SELECTOR, profile_typeID=kind, **TIMES)
    found = Profile.FromString(post(probed, "SelectMergeProfile", asked.SerializeToString()).content)
    names = {each.id: found.string_table[each.name].decode() for each in found.function}
    functions = {each.id: names[each.line[0].function_id] for each in found.location}
    stacks = {tuple(functions[id_] for id_ in each.location_id): each.value[0] for each in found.sample}
    assert stacks == expected


def test_lists_have_the_type_the_labels_and_the_service(probed: Server) -> None:
    types = call(probed, "ProfileTypes", messages.ProfileTypesResponse, **TIMES)
    assert KIND in {each.ID for each in types.profile_types}
    names = ["service_name", "__profile_type__"]
    series = call(probed, "Series", messages.SeriesResponse, label_names=names, **TIMES)
    sets = [{label.name: label.value for label in each.labels} for each in series.labels_set]
    assert {"service_name": SERVICE, "__profile_type__": KIND} in sets
    matchers = [f'{{service_name="{SERVICE}"}}']
    labels = call(probed, "LabelNames", messages.LabelNamesResponse, matchers=matchers, **TIMES)
    assert {*labels.names} >= {
        "__name__", "__period_type__", "__period_unit__", "__profile_type__", "__service_name__", "__type__",
        "__unit__", "service_name",
    }  # fmt: skip
    values = call(
        probed, "LabelValues", messages.LabelValuesResponse, name="service_name", matchers=matchers, **TIMES
    )
    assert [*values.names] == [SERVICE]
    stats = call(probed, "GetProfileStats", messages.GetProfileStatsResponse)
    assert stats.data_ingested


def test_a_series_has_one_point(probed: Server) -> None:
    found = call(
        probed,
        "SelectSeries",
        messages.SelectSeriesResponse,
        label_selector=SELECTOR,
        profile_typeID=KIND,
        group_by=["service_name"],
        step=1000,
        **TIMES,
    )
    (series,) = found.series
    assert [(label.name, label.value) for label in series.labels] == [("service_name", SERVICE)]
    assert len(series.points) == 1


def test_flame_graphs_have_three_names_on_three_levels(probed: Server) -> None:
    found = call(
        probed,
        "SelectMergeStacktraces",
        messages.SelectMergeStacktracesResponse,
        label_selector=SELECTOR,
        profile_typeID=KIND,
        **TIMES,
    )
    assert (len(found.flamegraph.names), len(found.flamegraph.levels)) == (3, 3)
    query = {"query": KIND + SELECTOR, "from": TIMES["start"], "until": TIMES["end"]}
    for path, prefixes in (("render", [""]), ("render-diff", ["left", "right"])):
        asked: dict[str, Any] = {
            prefix + (name.capitalize() if prefix else name): value
            for prefix in prefixes
            for name, value in query.items()
        }
        answer = probed.client.get(f"/pyroscope/{path}", params=asked, headers=bearer(probed.merge_key))
        assert answer.status_code == 200, answer.text
        graph = answer.json()["flamebearer"]
        assert (len(graph["names"]), len(graph["levels"])) == (3, 3)


def test_a_span_has_two_names_on_two_levels(probed: Server) -> None:
    found = call(
        probed,
        "SelectMergeSpanProfile",
        messages.SelectMergeStacktracesResponse,
        label_selector=SELECTOR,
        profile_typeID=KIND,
        span_selector=["00000bac2a5ab0c7"],
        **TIMES,
    )
    assert (len(found.flamegraph.names), len(found.flamegraph.levels)) == (2, 2)
    assert found.flamegraph.total == 20


def test_an_exemplar_leads_to_its_profile(probed: Server) -> None:
    found = call(
        probed,
        "SelectSeries",
        messages.SelectSeriesResponse,
        label_selector=SELECTOR,
        profile_typeID=KIND,
        step=5,
        exemplar_type="EXEMPLAR_TYPE_INDIVIDUAL",
        **TIMES,
    )
    ((exemplar,),) = [point.exemplars for series in found.series for point in series.points]
    assert exemplar.value == 30
    graph = call(
        probed,
        "SelectMergeStacktraces",
        messages.SelectMergeStacktracesResponse,
        label_selector=SELECTOR,
        profile_typeID=KIND,
        profile_id_selector=[exemplar.profile_id],
        **TIMES,
    ).flamegraph
    assert (len(graph.names), len(graph.levels)) == (3, 3)
