"""Labels that the collector gives a meaning to: no sender speaks in the name of another service or type."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from pgo_collector.routes.pyroscope import querier_pb2 as messages
from pprof_proto.profile_pb2 import Profile

from tests.collector import datadog, profefe
from tests.collector.exporting import export, of_stack
from tests.collector.pushing import assert_pushed, ingest, one, push, push_request, stored
from tests.collector.querying import CPU, call, post
from tests.faults.stacks import profile_of
from tests.server import Server

OTHERS_NAME = [
    "service_name=till",
    "service_name=Shop",
    "service_name=%20till",
    "profile_name=process_cpu",
    "start_lines=joined",
    "__name__=memory",
    "__profile_type__=x",
    "__session_id__=7",
    "%20__name__=memory",
]


@pytest.mark.parametrize("labels", OTHERS_NAME)
def test_a_label_that_says_otherwise_is_refused_by_name(shared: Server, labels: str) -> None:
    key = labels.removeprefix("%20").partition("=")[0]
    answer = shared.submit(
        profile_of("a"), query={"service": "refused", "labels": labels.replace("%20", " ")}
    )
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert key in answer.json()["detail"]
    answer = profefe.post(shared, profile_of("a"), service="refused", labels=labels.replace("%20", " "))
    assert answer.status_code == 400
    assert key in answer.json()["error"]
    assert stored(shared, "refused") == []


def test_labels_that_say_what_the_series_does_are_taken(shared: Server) -> None:
    for type_, labels in (("cpu", "service_name=team/agreed"), ("other", "profile_name=fgprof")):
        query = {"service": "team-agreed", "type": type_, "labels": labels.replace("/", "%2F")}
        assert shared.submit(profile_of("a"), query=query).status_code == 204
    assert stored(shared, "team-agreed") == [
        ("cpu", {"service_name": "team/agreed"}),
        ("other", {"profile_name": "fgprof"}),
    ]


@pytest.mark.parametrize("name", ["wall", "memory", "goroutines", "process_cpu"])
def test_the_type_other_has_no_name_of_another_type(shared: Server, name: str) -> None:
    query = {"service": "refused", "type": "other", "labels": f"profile_name={name}"}
    answer = shared.submit(profile_of("a"), query=query)
    assert (answer.status_code, name in answer.json()["detail"]) == (400, True)


@pytest.mark.parametrize("label", ["profile_name", "start_lines", " service_name"])
def test_pushes_with_such_a_label_are_refused(stopped: Server, label: str) -> None:
    stopped.environment["PGOF_OTLP_LABELS"] = "*"
    stopped.start()
    uploaded = {"event": datadog.event("pushed", **{label: "joined"}), "cpu.pprof": profile_of("a")}
    answers = [push(stopped, one(profile_of("a"), "pushed", **{label: "joined"}))]
    if not label.startswith(" "):  # these protocols have no blanks there
        answers += [
            ingest(stopped, profile_of("a"), name=f"pushed{{{label}=joined}}", format="pprof"),
            export(stopped, of_stack("f", "pushed", 1, before=False, **{label: "joined"})),
            datadog.upload(stopped, uploaded),
        ]
    for answer in answers:
        assert (answer.status_code, label.strip() in answer.text) == (400, True), answer.text
    assert stored(stopped, "pushed") == []


def test_a_pushed_service_name_is_the_service(shared: Server) -> None:
    for sent, service in ((" blank ", "blank"), ("\tblank", "blank"), ("///", "unknown_service")):
        labels = {"__name__": "process_cpu", "service_name": sent, "__type__": "x", "sent": quote(sent)}
        assert_pushed(push(shared, push_request((labels, [profile_of("a")])).SerializeToString()))
        assert ("cpu", {"sent": quote(sent)}) in stored(shared, service)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a collector with profiles that were stored when any label was taken."""
    with Server(tmp_path_factory.mktemp("old")) as server:
        for service, type_, label in (
            ("shop", "cpu", "service_name=till"),
            ("shop", "other", "profile_name=process_cpu"),
            ("shop", "cpu", "__name__=memory"),
            ("shop", "cpu", "__session_id__=7"),
            ("till", "cpu", "profile_name=memory"),
            ("team-a", "cpu", "service_name=team%2Fa"),
        ):
            query = {"service": service, "type": type_, "labels": "old=1"}
            assert server.submit(profile_of(f"{service}.{label[:7]}"), query=query).status_code == 204
            folder = server.data / "blobs" / service / type_
            shutil.move(folder / "old=1", folder / label)
            server.kill()
            server.reindex()
            server.start()
        yield server


def values(server: Server, name: str, *matchers: str) -> list[str]:
    return [*call(server, "LabelValues", messages.LabelValuesResponse, name=name, matchers=matchers).names]


def merged_profile(server: Server, selector: str, **fields: Any) -> Profile:
    asked = messages.SelectMergeProfileRequest(profile_typeID=CPU, label_selector=selector, **fields)
    answer = post(server, "SelectMergeProfile", asked.SerializeToString())
    assert answer.status_code == 200, answer.text
    return Profile.FromString(answer.content)


def functions(server: Server, selector: str) -> set[str]:
    merged = merged_profile(server, selector)
    return {merged.string_table[function.name].decode() for function in merged.function}


@pytest.mark.folder
def test_a_stored_label_that_says_otherwise_does_not_count(old: Server) -> None:
    assert values(old, "service_name") == ["shop", "team/a", "till"]
    assert functions(old, '{service_name="till"}') == {"till.profile"}
    assert functions(old, '{service_name="shop"}') == {"shop.service", "shop.__name_", "shop.__sessi"}
    assert functions(old, '{service_name="team/a"}') == {"team-a.service"}
    assert functions(old, '{service_name="till",__session_id__="7"}') == set()


@pytest.mark.folder
def test_a_build_profile_is_of_one_service(old: Server) -> None:
    """`profilecli query go-pgo` asks so."""
    go_pgo = messages.StackTraceSelector(go_pgo=messages.GoPGO(keep_locations=5, aggregate_callees=True))
    assert merged_profile(old, '{service_name="till"}', stack_trace_selector=go_pgo).sample_type


@pytest.mark.folder
def test_types_are_those_of_the_series(old: Server) -> None:
    assert values(old, "__name__", '{service_name="shop"}') == ["other", "process_cpu"]
    assert values(old, "__name__", '{service_name="till"}') == ["process_cpu"]
    names = call(old, "LabelNames", messages.LabelNamesResponse).names
    assert not {"__session_id__", "profile_name"} & {*names}
    assert values(old, "__session_id__") == []
    sets = call(old, "Series", messages.SeriesResponse, matchers=['{service_name="shop"}']).labels_set
    assert {label.name for each in sets for label in each.labels} == {
        "__name__", "__profile_type__", "service_name",
    }  # fmt: skip


@pytest.mark.folder
def test_series_are_grouped_by_the_service_that_they_are_of(old: Server) -> None:
    asked = messages.SelectSeriesRequest(
        profile_typeID=CPU, label_selector="{}", step=10.0, group_by=["service_name", "__session_id__"]
    )
    answer = post(old, "SelectSeries", asked.SerializeToString())
    groups = messages.SelectSeriesResponse.FromString(answer.content).series
    found = [[(label.name, label.value) for label in group.labels] for group in groups]
    assert found == [[("service_name", name)] for name in ("shop", "team/a", "till")]
