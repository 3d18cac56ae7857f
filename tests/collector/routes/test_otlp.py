"""OTLP over HTTP: what a request of profiles stores, and what it is answered."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from backports import zstd
from pgo_collector.routes.otlp.export_pb2 import ExportRequest
from pprof_proto.profile_pb2 import Profile

from tests.collector.datadog import lz4_of
from tests.collector.exporting import (
    EXPORT,
    JSON,
    PERIOD,
    Export,
    as_json,
    assert_exported,
    export,
    of_stack,
    refused,
    rejected,
)
from tests.collector.pushing import basic, labels_of, stored
from tests.faults.stacks import EPOCH, SECOND, profile_of, tally
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

INVALID = 3
ONE, SOME = "of-one", "of-some"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collector with settings of its own, and keys for some services."""
    settings = {
        "PGOF_OTLP_LABELS": "k8s.*",
        "PGOF_OTLP_SAMPLE_LABELS": "*",
        "PGOF_OTLP_PROFILES": "3",
    }
    server = Server(tmp_path_factory.mktemp("strict"), settings)
    server.submit_keys.write_text(f"{server.submit_key}\n{ONE} service=checkout\n{SOME} service=a,b\n")
    with server:
        yield server


def merged(server: Server, service: str, type_: str = "process_cpu") -> Profile:
    answer = server.merge(query={"service": service, "type": type_})
    assert answer.status_code == 200, answer.text
    return Profile.FromString(gzip.decompress(answer.content))


def stacks_of(profile: Profile) -> dict[tuple[str, ...], list[int]]:
    """Return the values of each stack of function names, the leaf first."""
    names = {each.id: profile.string_table[each.name].decode() for each in profile.function}
    lines = {each.id: [names[line.function_id] for line in each.line] for each in profile.location}
    return {
        tuple(name for location in sample.location_id for name in lines[location]): [*sample.value]
        for sample in profile.sample
    }


_PACKED: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "lz4": lz4_of,
}


@pytest.mark.parametrize("is_json", [False, True], ids=["protobuf", "JSON"])
@pytest.mark.parametrize("encoding", ["", "gzip", "zstd", "lz4"])
def test_an_exported_profile_is_stored_once(shared: Server, *, is_json: bool, encoding: str) -> None:
    service = f"otlp-{is_json}-{encoding}"
    request = ExportRequest.FromString(of_stack("a", service, 3))
    body = as_json(request) if is_json else request.SerializeToString()
    headers = {"Content-Encoding": encoding} if encoding else {}
    if is_json:
        headers |= JSON
    for _ in range(2):  # as a sender that lost the answer
        answer = export(shared, _PACKED[encoding](body), **headers)
        if is_json:
            assert (answer.status_code, answer.json()) == (200, {})
            assert answer.headers["Content-Type"] == "application/json"
        else:
            assert_exported(answer)
    profile = merged(shared, service)
    assert stacks_of(profile) == {("a",): [3, 3 * PERIOD]}
    assert (profile.time_nanos, profile.duration_nanos, profile.period) == (EPOCH, 5 * SECOND, PERIOD)


@pytest.mark.parametrize("before", [False, True], ids=["1.10", "1.9"])
def test_both_wires_give_the_same_profile(shared: Server, *, before: bool) -> None:
    service = f"wire-{before}"
    request = Export(before=before)
    request.resource({"service.name": service})
    request.profile()
    binary = request.mapping("main", "abc")
    for thread in ("7", "8"):  # two samples that become one
        request.sample(
            [("leaf", "/a.c", 1), ("root", "/b.c", 2)],
            timestamps=2,
            values=[5, 6],
            mapping=binary,
            attributes={"thread.id": thread, "thread.name": "worker", "cpu.logical_number": 3},
        )
    assert_exported(export(shared, request.body))
    profile = merged(shared, service)
    assert stacks_of(profile) == {("leaf", "root"): [22, 22 * PERIOD]}
    texts = profile.string_table
    (label,) = profile.sample[0].label
    assert (texts[label.key], texts[label.str]) == (b"thread.name", b"worker")
    (mapping,) = profile.mapping
    assert (texts[mapping.filename], texts[mapping.build_id]) == (b"main", b"abc")
    assert (mapping.has_functions, mapping.has_filenames, mapping.has_line_numbers) == (True, True, True)
    assert not mapping.has_inline_frames


def test_values_without_timestamps_tell_the_wire_too(shared: Server) -> None:
    for before in (False, True):
        request = Export(before=before)
        request.resource({"service.name": f"bare-{before}"})
        request.profile(("off_cpu", "nanoseconds"), ("", "", 0))
        request.sample([("wait", "", 0)], values=[2**40])
        assert_exported(export(shared, request.body))
        ((type_, labels),) = stored(shared, f"bare-{before}")
        assert (type_, labels["profile_name"]) == ("other", "off_cpu")
        assert stacks_of(merged(shared, f"bare-{before}", "other")) == {("wait",): [2**40]}


def test_as_many_values_as_timestamps_are_values_if_they_are_no_attributes(shared: Server) -> None:
    request = Export(before=True)
    request.resource({"service.name": "counted"})
    request.profile(("off_cpu", "nanoseconds"), ("", "", 0))
    request.sample([("wait", "", 0)], timestamps=1, values=[10**6])
    assert_exported(export(shared, request.body))
    assert stacks_of(merged(shared, "counted", "other")) == {("wait",): [10**6]}


def ancient() -> bytes:
    """Return a request of 1.7, whose samples say where in a list of locations they begin, and how many."""
    sample = b"\x08\x00\x10\x01\x1a\x01\x05"  # begins at 0, one location, the value 5
    scopes = field(2, field(2, field(2, sample)))
    dictionary = ExportRequest.FromString(of_stack("a", "ancient")).dictionary
    dictionary.ClearField("stack_table")  # it is of 1.8
    return field(1, scopes) + field(2, dictionary.SerializeToString())


def field(number: int, content: bytes) -> bytes:
    """Return a message or string as a field."""
    length, size = bytearray(), len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + length + content


def contradictory() -> bytes:
    """Return a request with a sample of 1.10 and one of 1.9."""
    current, before = (ExportRequest.FromString(of_stack("a", "mixed", before=b)) for b in (False, True))
    for request, is_before in ((current, False), (before, True)):
        sample = request.resource_profiles[0].scope_profiles[0].profiles[0].samples[0]
        if is_before:
            sample.MergeFromString(field(3, b"\0"))  # another attribute
        else:
            sample.values.append(1)
    current.resource_profiles.extend(before.resource_profiles)
    return current.SerializeToString()


def without_dictionary() -> bytes:
    request = ExportRequest.FromString(of_stack("a", "none"))
    request.ClearField("dictionary")
    return request.SerializeToString()


def without_stacks() -> bytes:
    request = ExportRequest.FromString(of_stack("a", "none"))
    request.dictionary.ClearField("stack_table")
    return request.SerializeToString()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (ancient(), "version 1.7"),
        (without_dictionary(), "version 1.6"),
        (without_stacks(), "version 1.7"),
        (contradictory(), "others as in 1.9"),
        (b"hello", "isn't an ExportProfilesServiceRequest"),
        (b"\x1f\x8bhello", "gzip"),
        (zstd.compress(b"hello")[:-1], "zstd"),
    ],
    ids=["1.7", "1.6", "no stacks", "both", "text", "broken gzip", "broken zstd"],
)
def test_what_is_of_no_known_version_is_refused_with_its_version(
    shared: Server, body: bytes, said: str
) -> None:
    assert said in refused(export(shared, body), 400, INVALID)


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress, lz4_of])
def test_what_inflates_to_too_much_is_refused_by_the_setting(
    shared: Server, pack: Callable[[bytes], bytes]
) -> None:
    assert "PGOF_MAX_INFLATED_BYTES" in refused(export(shared, pack(bytes(16 << 20))), 413, INVALID)


def test_json_of_1_7_is_refused_with_its_version(shared: Server) -> None:
    message = json.loads(as_json(ExportRequest.FromString(of_stack("a", "old"))))
    profile = message["resourceProfiles"][0]["scopeProfiles"][0]["profiles"][0]
    profile["sample"] = profile.pop("samples")
    answer = export(shared, json.dumps(message).encode(), **JSON)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/json")
    assert answer.json()["code"] == INVALID
    assert "version 1.7" in answer.json()["message"]


def test_another_development_version_is_refused(shared: Server) -> None:
    body = of_stack("a", "versioned")
    assert_exported(export(shared, body, OTLP_Profiles_Development_Version="1"))
    said = refused(export(shared, body, OTLP_Profiles_Development_Version="2"), 400, INVALID)
    assert "OTLP-Profiles-Development-Version: 2" in said


def test_an_empty_request_is_a_success(shared: Server) -> None:
    for body in (b"", gzip.compress(b""), ExportRequest().SerializeToString()):
        assert_exported(export(shared, body))
    request = Export()
    request.resource({"service.name": "empty"})
    request.profile()
    assert_exported(export(shared, request.body))
    assert not stored(shared, "empty")


def test_another_message_is_not_taken_for_an_empty_one(shared: Server) -> None:
    assert "neither resource_profiles nor" in refused(export(shared, b"\x1a\x03abc"), 400, INVALID)
    answer = export(shared, b'{"resourceSpans": []}', **JSON)
    assert answer.status_code == 400
    assert "neither resourceProfiles nor" in answer.json()["message"]
    assert export(shared, b"{}", **JSON).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Type": "application/grpc"}, 415),
        ({"Content_Encoding": "snappy"}, 415),
        ({"Authorization": "Bearer wrong"}, 401),
    ],
)
def test_headers_that_are_refused(shared: Server, headers: Mapping[str, str], status: int) -> None:
    answer = export(shared, of_stack("a", "headers"), **headers)
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/x-protobuf"
    if status == 415:
        assert "application/x-protobuf" in answer.headers["Accept-Post"]


def test_the_other_content_type_of_protobuf_is_answered_in_kind(shared: Server) -> None:
    answer = export(shared, of_stack("a", "kind"), Content_Type="application/protobuf; charset=utf-8")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/protobuf")


@pytest.mark.parametrize("path", ["/v1/profiles", "/v1experimental/profiles"])
def test_paths_that_no_version_uses_take_nothing(shared: Server, path: str) -> None:
    answer = shared.client.post(path, content=of_stack("a", "path"), headers=bearer(shared.submit_key))
    assert answer.status_code in {404, 405}


def test_services_and_labels_come_from_attributes(shared: Server) -> None:
    request = Export()
    request.resource(
        {
            "service.name": "team/checkout",
            "service.version": "1.4",
            "service.instance.id": "web-1",
            "k8s.pod.name": "pod-7",
            "process.pid": 4711,
            "deployment.environment.name": "prod",
        }
    )
    request.profile()
    request.sample([("a", "", 0)], timestamps=1)
    assert_exported(export(shared, request.body, X_Scope_OrgID="eu"))
    ((type_, labels),) = stored(shared, "team-checkout")
    assert type_ == "process_cpu"
    assert labels == {
        "version": "1.4",
        "instance": "web-1",
        "k8s_pod_name": "pod-7",
        "deployment_environment_name": "prod",
        "service_name": "team/checkout",
        "tenant": "eu",
    }


def test_the_same_samples_of_several_processes_count_each(shared: Server) -> None:
    """No label tells these processes apart. What is sent again counts once."""
    request = Export()
    for pid in (1, 2, 3):
        request.resource({"service.name": "workers", "host.name": "a", "process.pid": pid})
        request.profile()
        request.sample([("work", "/w.c", 3), ("main", "/w.c", 9)], timestamps=2)
    for _ in range(2):
        assert_exported(export(shared, request.body))
    assert stacks_of(merged(shared, "workers")) == {("work", "main"): [6, 6 * PERIOD]}
    assert len(merged(shared, "workers").string_table) < 12  # a merge has only the strings that it uses


def test_a_resource_without_a_service_is_named_by_its_program_or_the_key(strict: Server) -> None:
    for key, service in ((strict.submit_key, "unknown_service-redis-server"), (ONE, "checkout")):
        request = Export()
        request.resource({"process.executable.name": "redis-server"})
        request.profile()
        request.sample([("a", "", 0)], timestamps=1)
        assert_exported(export(strict, request.body, key))
        assert stored(strict, service)


def test_the_name_that_sdks_give_a_program_without_one_is_no_label(strict: Server) -> None:
    for key, service in ((strict.submit_key, "unknown_service-java"), (ONE, "checkout")):
        request = Export()
        request.resource({"service.name": "unknown_service:java"})
        request.profile()
        request.sample([("a", "", 0)], timestamps=1)
        assert_exported(export(strict, request.body, key))
        found = [labels for _, labels in stored(strict, service)]
        assert found
        assert not any("service_name" in labels for labels in found)


def test_basic_passwords_are_keys(shared: Server) -> None:
    assert_exported(export(shared, of_stack("a", "basic"), **basic("any", shared.submit_key)))


def test_samples_keep_the_attributes_that_are_asked_for(strict: Server) -> None:
    request = Export()
    request.resource({"service.name": "threads"})
    request.profile()
    for thread in (7, 8):
        request.sample([("a", "", 0)], timestamps=1, attributes={"thread.id": thread})
    assert_exported(export(strict, request.body))
    samples = merged(strict, "threads").sample
    assert sorted(sample.label[0].num for sample in samples) == [7, 8]


@pytest.mark.parametrize("form", ["protobuf", "base64", "hex"])
def test_samples_are_selected_by_their_links(shared: Server, form: str) -> None:
    """OTLP has ids as hex in JSON; protobuf's own JSON has them as base64, as Go's programs write it."""
    trace, spans = bytes(range(16)), [bytes([number] * 8) for number in (1, 2)]
    service, request = f"linked-{form}", Export()
    request.resource({"service.name": service})
    request.profile()
    links = request.request.dictionary.link_table
    links.add()
    for number, span in enumerate(spans, start=1):
        links.add(trace_id=trace, span_id=span)
        request.sample([("a", "", 0)], timestamps=number)
        profile = request.request.resource_profiles[0].scope_profiles[0].profiles[0]
        profile.samples[-1].link_index = number
    request.sample([("a", "", 0)], timestamps=4)
    if form == "protobuf":
        assert_exported(export(shared, request.body))
    else:
        parsed = json.loads(as_json(request.request))
        if form == "hex":
            for link, span in zip(parsed["dictionary"]["linkTable"][1:], spans, strict=True):
                link |= {"traceId": trace.hex(), "spanId": span.hex()}
        assert export(shared, json.dumps(parsed).encode(), **JSON).content == b"{}"

    def total(**ids: str) -> int:
        answer = shared.ask("/v1/top", service=service, type_="process_cpu", sample_type="samples", **ids)
        return int(answer.json()["total"])

    assert total() == 7
    assert total(trace_id=trace.hex()) == 3
    assert [total(span_id=span.hex()) for span in spans] == [1, 2]


def test_an_original_in_pprof_is_stored_instead(shared: Server) -> None:
    """A Go program's own profile is one for builds, whatever protocol brings it."""
    request = Export()
    request.resource({"service.name": "original"})
    profile = request.profile()
    profile.original_payload_format, profile.original_payload = "pprof", profile_of("go")
    request.sample([("other", "", 0)], timestamps=1)
    assert_exported(export(shared, request.body))
    assert stored(shared, "original") == [("cpu", {})]
    assert tally(shared.merge(query={"service": "original"}).content) == {"go": 1}


def test_an_original_in_another_format_is_refused_unless_it_has_samples(shared: Server) -> None:
    request = Export()
    request.resource({"service.name": "jfr"})
    profile = request.profile()
    profile.original_payload_format, profile.original_payload = "jfr", b"FLR\0"
    assert "'jfr'" in refused(export(shared, request.body), 400, INVALID)
    request.sample([("java", "", 0)], timestamps=1)
    assert_exported(export(shared, request.body))
    assert stacks_of(merged(shared, "jfr")) == {("java",): [1, PERIOD]}


def test_what_pprof_knows_besides_comes_from_attributes(shared: Server) -> None:
    request = Export()
    request.resource({"service.name": "lossless"}, **{"pprof.scope.default_sample_type": "samples"})
    names = ("comment", "doc_url", "drop_frames", "keep_frames")
    request.profile(attributes={f"pprof.profile.{name}": f"the {name}" for name in names})
    request.sample([("a", "", 0)], timestamps=1)
    assert_exported(export(shared, request.body))
    profile = merged(shared, "lossless")
    texts = profile.string_table
    assert [texts[comment] for comment in profile.comment] == [b"the comment"]
    assert texts[profile.doc_url] == b"the doc_url"
    assert (texts[profile.drop_frames], texts[profile.keep_frames]) == (
        b"the drop_frames",
        b"the keep_frames",
    )
    assert texts[profile.default_sample_type] == b"samples"


@pytest.mark.parametrize("table", ["stack", "location", "function", "mapping", "string", "attribute"])
@pytest.mark.parametrize("index", [-1, 99])
def test_an_index_in_no_table_refuses_its_profile_only(shared: Server, table: str, index: int) -> None:
    service = f"bad-{table}{index}"
    request = Export()
    request.resource({"service.name": service})
    for name in ("good", "bad"):
        request.profile()
        binary = request.mapping(name, name)
        request.sample(
            [(name, f"/{name}.c", 1)], timestamps=2, mapping=binary, attributes={"thread.name": name}
        )
    tables = request.request.dictionary
    sample = request.request.resource_profiles[0].scope_profiles[0].profiles[1].samples[0]
    match table:
        case "stack":
            sample.stack_index = index
        case "location":
            tables.stack_table[-1].location_indices[0] = index
        case "function":
            tables.location_table[-1].lines[0].function_index = index
        case "mapping":
            tables.location_table[-1].mapping_index = index
        case "string":
            tables.function_table[-1].name_strindex = index
        case "attribute":
            sample.attribute_indices[0] = index
    count, message = rejected(export(shared, request.body))
    assert (count, f"{table} {index} is not in the dictionary" in message) == (1, True), message
    assert stacks_of(merged(shared, service)) == {("good",): [2, 2 * PERIOD]}


def test_a_sample_must_have_a_count(shared: Server) -> None:
    request = Export()
    request.resource({"service.name": "countless"})
    request.profile()
    request.sample([("a", "", 0)])
    assert "neither values nor timestamps" in refused(export(shared, request.body), 400, INVALID)
    request.sample([("a", "", 0)], timestamps=2, values=[1])
    del request.request.resource_profiles[0].scope_profiles[0].profiles[0].samples[0]
    assert "1 values and 2 timestamps" in refused(export(shared, request.body), 400, INVALID)


@pytest.mark.parametrize("is_json", [False, True])
def test_one_request_has_up_to_so_many_profiles(strict: Server, *, is_json: bool) -> None:
    request, service = Export(), f"many-{is_json}"
    for pod in range(4):
        request.resource({"service.name": service, "k8s.pod.name": str(pod)})
        request.profile()
        request.sample([("a", "", 0)], timestamps=1)
    headers = JSON if is_json else {}
    answer = export(strict, as_json(request.request) if is_json else request.body, **headers)
    assert answer.status_code == 400
    assert b"PGOF_OTLP_PROFILES" in answer.content
    del request.request.resource_profiles[3]
    answer = export(strict, as_json(request.request) if is_json else request.body, **headers)
    assert answer.status_code == 200
    assert [labels["k8s_pod_name"] for _, labels in stored(strict, service)] == ["0", "1", "2"]


def test_a_small_request_stores_few_profiles(shared: Server) -> None:
    request = Export()
    request.resource({"service.name": "minute"})
    for number in range(400):
        request.profile()
        request.sample([("a", "", 0)], values=[number + 1])
    body = gzip.compress(request.body)
    stores = 100 + len(body) // 100
    assert stores < 200
    answer = export(shared, body, Content_Encoding="gzip")
    count, reason = rejected(answer)
    assert count == 400 - stores
    assert f"{len(body):,} bytes store up to {stores} profiles; send the others in more requests" in reason
    listed = shared.ask("/v1/profiles", service="minute", type_="process_cpu", limit="1000").json()
    assert len(listed["profiles"]) == stores


@pytest.mark.parametrize("is_json", [False, True])
def test_resources_and_scopes_without_profiles_are_bounded_too(strict: Server, *, is_json: bool) -> None:
    resources, scopes = ExportRequest(), ExportRequest()
    for _ in range(4):
        resources.resource_profiles.add()
    resource = scopes.resource_profiles.add()
    for _ in range(4):
        resource.scope_profiles.add()
    for request in (resources, scopes):
        body = as_json(request) if is_json else request.SerializeToString()
        answer = export(strict, body, **(JSON if is_json else {}))
        assert (answer.status_code, b"PGOF_OTLP_PROFILES" in answer.content) == (400, True)


def test_a_key_of_other_services_stores_what_it_is_for(strict: Server) -> None:
    request = Export()
    for service in ("a", "c"):
        request.resource({"service.name": service})
        request.profile()
        request.sample([("f", "", 0)], timestamps=1)
    count, message = rejected(export(strict, request.body, SOME))
    assert count == 1
    assert "isn't for service 'c'" in message
    assert stored(strict, "a")
    assert not stored(strict, "c")
    assert refused(export(strict, of_stack("f", "c"), SOME), 403, 7)


def test_ebpf_is_kept_apart_from_merges_for_go(shared: Server) -> None:
    assert shared.submit(profile_of("go"), query={"service": "both"}).status_code == 204
    assert_exported(export(shared, of_stack("ebpf", "both", 5)))
    assert tally(shared.merge(query={"service": "both"}).content) == {"go": 1}
    apart = shared.ask("/v1/report", service="both").json()["kept_apart"]
    assert (apart["profiles"], apart["type"]) == (1, "process_cpu")


def dictionary_bomb(profiles: int, depth: int) -> bytes:
    """Return a small request whose profiles share one deep stack."""
    request = Export()
    frames = [(f"function-{number}-{'x' * 20}", "/a.c", number) for number in range(depth)]
    for pod in range(profiles):
        request.resource({"service.name": "bomb", "k8s.pod.name": str(pod)})
        request.profile()
        request.sample(frames, timestamps=1)
    return request.body


def test_a_small_request_that_expands_is_refused(shared: Server) -> None:
    body = dictionary_bomb(150, 2000)
    assert len(gzip.compress(body)) < 100_000
    count, message = rejected(export(shared, gzip.compress(body), Content_Encoding="gzip"))
    assert "PGOF_MAX_INFLATED_BYTES" in message
    assert len(stored(shared, "bomb")) == 150 - count
    assert 0 < 150 - count < 100


def test_a_deep_stack_of_many_samples_is_refused(shared: Server) -> None:
    request = Export()
    request.resource({"service.name": "deep"})
    request.profile()
    stack = request.stack((request.location(("f", "", 1), 0),) * 9_000)
    for value in range(2_000):  # each a sample of its own, by its label
        request.sample([], timestamps=1, attributes={"thread.name": str(value)})
    for sample in request.request.resource_profiles[0].scope_profiles[0].profiles[0].samples:
        sample.stack_index = stack
    answer = export(shared, request.body)
    assert answer.status_code == 413
    assert b"frames" in answer.content


def test_a_gzip_bomb_is_refused(shared: Server) -> None:
    answer = export(shared, gzip.compress(bytes(50 << 20)), Content_Encoding="gzip")
    assert answer.status_code == 413
    assert b"PGOF_MAX_INFLATED_BYTES" in answer.content


def test_stored_labels_are_listed(shared: Server) -> None:
    assert_exported(export(shared, of_stack("a", "listed", k8s_node_name="n")))
    (entry,) = shared.ask("/v1/profiles", service="listed", type_="process_cpu").json()["profiles"]
    assert labels_of(entry) == {"k8s_node_name": "n"}


def test_the_route_is_described(shared: Server) -> None:
    described = shared.client.get("/v1/openapi.json").json()["paths"][EXPORT]["post"]
    assert [*described["requestBody"]["content"]] == ["application/x-protobuf"]


def test_what_is_stored_outlives_a_reindex(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        assert_exported(export(server, of_stack("a", "kept")))
        server.kill()
        server.reindex()
        server.start()
        assert stored(server, "kept") == [("process_cpu", {})]


def test_exports_are_counted_as_submits(stopped: Server) -> None:
    stopped.environment["PGOF_METRICS_OPEN"] = "true"
    stopped.start()
    for _ in range(2):
        assert_exported(export(stopped, of_stack("a", "counted")))
    assert export(stopped, b"hello").status_code == 400
    lines = stopped.client.get("/metrics").text.splitlines()
    assert 'pgo_collector_submits_total{outcome="stored",reason=""} 1.0' in lines
    assert 'pgo_collector_submits_total{outcome="duplicate",reason=""} 1.0' in lines
    assert any('outcome="refused"' in line for line in lines)
