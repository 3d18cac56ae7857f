"""The querier's calls, made by Connect's real client for Node, as Grafana's data source makes them."""

from __future__ import annotations

import base64
import gzip
import subprocess
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message
from pgo_collector.routes.pyroscope import querier_pb2 as messages
from pprof_proto.profile_pb2 import Profile

from tests.collector.querying import CPU
from tests.faults.stacks import EPOCH, profile_of
from tests.interop.test_pyroscope import NODE, PROGRAMS, installed
from tests.server import Server

_PATIENCE_SECONDS = 300.0
_CALLS = (
    "ProfileTypes", "LabelNames", "LabelValues", "Series", "GetProfileStats", "SelectSeries",
    "SelectMergeStacktraces", "SelectMergeProfile", "Diff",
)  # fmt: skip


def schema() -> str:
    """Return the messages and the service as one file, as base64.

    A profile is the message itself, as in Pyroscope's schema: ours has its bytes, since a worker writes them.
    """
    file, profile = FileDescriptorProto(), FileDescriptorProto()
    messages.DESCRIPTOR.CopyToProto(file)
    Profile.DESCRIPTOR.file.CopyToProto(profile)
    by_name = {message.name: message for message in file.message_type}
    wrapper = by_name["PprofProfile"]
    wrapper.name, wrapper.field[0].type = "PprofAnswer", FieldDescriptorProto.TYPE_MESSAGE
    wrapper.field[0].type_name = ".querier.v1.PprofProfile"
    by_name["SelectMergeStacktracesResponse"].field[-1].type_name = ".querier.v1.PprofAnswer"
    for message in profile.message_type:
        for field in message.field:
            field.type_name = field.type_name.replace(".perftools.profiles.", ".querier.v1.Pprof")
            if field.name == "string_table":
                field.type = FieldDescriptorProto.TYPE_STRING
        message.name = f"Pprof{message.name}"
        file.message_type.append(message)
    querier = file.service.add(name="QuerierService")
    for name in _CALLS:
        output = "PprofProfile" if name == "SelectMergeProfile" else f"{name}Response"
        querier.method.add(
            name=name, input_type=f".querier.v1.{name}Request", output_type=f".querier.v1.{output}"
        )
    return base64.b64encode(file.SerializeToString()).decode()


def called(server: Server, form: str, key: str, *calls: tuple[str, Message]) -> list[str]:
    """Return what the client prints for each call: `ok` and an answer, or an error."""
    lines = [f"{name} {base64.b64encode(request.SerializeToString()).decode()}" for name, request in calls]
    finished = subprocess.run(
        [NODE, PROGRAMS / "querier.mjs", installed("pyroscope-nodejs"), server.base_url, key, form],
        input="\n".join([schema(), *lines]),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=True,
    )
    return finished.stdout.splitlines()


def answer_in(line: str) -> bytes:
    assert line.startswith("ok"), line
    return base64.b64decode(line.removeprefix("ok").strip())


TIMES: dict[str, Any] = {"start": EPOCH // 10**6 - 1000, "end": EPOCH // 10**6 + 1000}
SHOP, ABSENT = '{service_name="shop"}', '{service_name="absent"}'
FORMS = pytest.mark.parametrize("form", ["proto", "json"])


@pytest.fixture
def filled(server: Server) -> Server:
    """Return a collector with two profiles of the service shop."""
    for name in ("a", "b"):
        query = {"service": "shop", "labels": f"pod={name}"}
        assert server.submit(profile_of(name), query=query).status_code == 204
    return server


@pytest.mark.system
@FORMS
def test_grafanas_client_lists_what_is_stored(filled: Server, form: str) -> None:
    types, names, values, series, stats = called(
        filled, form, filled.merge_key,
        ("ProfileTypes", messages.ProfileTypesRequest(**TIMES)),
        ("LabelNames", messages.LabelNamesRequest(matchers=["{}"], **TIMES)),
        ("LabelValues", messages.LabelValuesRequest(name="pod", matchers=[SHOP], **TIMES)),
        ("Series", messages.SeriesRequest(label_names=["service_name"], **TIMES)),
        ("GetProfileStats", messages.GetProfileStatsRequest()),
    )  # fmt: skip
    assert CPU in {
        each.ID for each in messages.ProfileTypesResponse.FromString(answer_in(types)).profile_types
    }
    assert {"pod", "service_name"} <= {*messages.LabelNamesResponse.FromString(answer_in(names)).names}
    assert messages.LabelValuesResponse.FromString(answer_in(values)).names == ["a", "b"]
    (labels,) = messages.SeriesResponse.FromString(answer_in(series)).labels_set
    assert [(label.name, label.value) for label in labels.labels] == [("service_name", "shop")]
    assert messages.GetProfileStatsResponse.FromString(answer_in(stats)).data_ingested


def stacktraces(selector: str, **fields: Any) -> tuple[str, Message]:
    request = messages.SelectMergeStacktracesRequest(
        profile_typeID=CPU, label_selector=selector, **TIMES, **fields
    )
    return "SelectMergeStacktraces", request


def graph_in(line: str) -> messages.FlameGraph:
    return messages.SelectMergeStacktracesResponse.FromString(answer_in(line)).flamegraph


@pytest.mark.system
@FORMS
def test_grafanas_client_reads_flame_graphs_and_series(filled: Server, form: str) -> None:
    graph, small, nothing, sums, refused = called(
        filled, form, filled.merge_key,
        stacktraces(SHOP, max_nodes=16384),
        stacktraces(SHOP, max_nodes=1),
        stacktraces(ABSENT),
        ("SelectSeries", messages.SelectSeriesRequest(
            profile_typeID=CPU, label_selector=SHOP, group_by=["pod"], step=15.0, **TIMES
        )),
        stacktraces("{"),
    )  # fmt: skip
    flame = graph_in(graph)
    assert ([*flame.names], flame.total, flame.max_self) == (["total", "a", "b"], 2 * 10**7, 10**7)
    assert [[*level.values] for level in flame.levels] == [
        [0, 2 * 10**7, 0, 0],
        [0, 10**7, 10**7, 1, 0, 10**7, 10**7, 2],
    ]
    assert [*graph_in(small).names] == ["total", "a", "other"]
    assert answer_in(nothing) == b""
    found = messages.SelectSeriesResponse.FromString(answer_in(sums)).series
    assert [(each.labels[0].value, [point.value for point in each.points]) for each in found] == [
        ("a", [1e7]), ("b", [1e7])
    ]  # fmt: skip
    assert refused.startswith("InvalidArgument: label selector: '{' can't be read")
    (denied,) = called(filled, form, "wrong", ("ProfileTypes", messages.ProfileTypesRequest()))
    assert denied.startswith("Unauthenticated: the key that was sent is no key")


@pytest.mark.system
@FORMS
def test_profilecli_gets_the_profile_for_go(filled: Server, form: str) -> None:
    """The calls are those of `profilecli query go-pgo`: the second is that of older versions."""
    pgo = messages.StackTraceSelector(go_pgo=messages.GoPGO(keep_locations=5, aggregate_callees=True))
    by_name: dict[str, Any] = {"profile_typeID": CPU, "stack_trace_selector": pgo, **TIMES}
    new, old, whole, none = called(
        filled, form, filled.merge_key,
        stacktraces(SHOP, format=messages.PROFILE_FORMAT_PPROF, stack_trace_selector=pgo),
        ("SelectMergeProfile", messages.SelectMergeProfileRequest(label_selector=SHOP, **by_name)),
        stacktraces(SHOP, format=messages.PROFILE_FORMAT_PPROF),
        ("SelectMergeProfile", messages.SelectMergeProfileRequest(label_selector=ABSENT, **by_name)),
    )  # fmt: skip
    ours = filled.merge(query={"service": "shop", "format": "go"})
    expected = Profile.FromString(gzip.decompress(ours.content))
    new_answer = messages.SelectMergeStacktracesResponse.FromString(answer_in(new))
    assert Profile.FromString(new_answer.pprof.profile) == expected
    assert Profile.FromString(answer_in(old)) == expected
    merged = messages.SelectMergeStacktracesResponse.FromString(answer_in(whole)).pprof.profile
    assert {b"a", b"b", b"cpu"} <= {*Profile.FromString(merged).string_table}
    assert answer_in(none) == b""
