"""Push, as Pyroscope's newer SDKs and Grafana Alloy call it: what it stores, and what it refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from google.protobuf import json_format
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited, taken_at
from tests.collector.pushing import (
    JSON,
    PUSH,
    as_json,
    assert_pushed,
    basic,
    one,
    push,
    push_request,
    refused,
    stored,
    without_start_lines,
)
from tests.faults.stacks import EPOCH, large_profile, profile_of, tally
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

SUBMIT_KEY = Server.submit_key


def cpu_tally(server: Server, service: str) -> dict[str, int]:
    answer = server.merge(query={"service": service})
    assert answer.status_code == 200, answer.text
    return dict(tally(answer.content))


@pytest.mark.parametrize("is_json", [False, True], ids=["protobuf", "JSON"])
@pytest.mark.parametrize("is_gzip", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("is_bare", [False, True], ids=["gzip profile", "bare profile"])
def test_a_pushed_profile_is_in_the_merge(
    shared: Server, *, is_json: bool, is_gzip: bool, is_bare: bool
) -> None:
    service = f"form-{is_json}-{is_gzip}-{is_bare}"
    profile = profile_of("a")
    labels = {"__name__": "process_cpu", "service_name": service, "region": "eu", "__session_id__": "7"}
    request = push_request((labels, [gzip.decompress(profile) if is_bare else profile]))
    body = as_json(request) if is_json else request.SerializeToString()
    headers = {"Content-Encoding": "gzip"} if is_gzip else {}
    if is_json:
        headers |= {"Content-Type": "application/json; charset=utf-8", "Connect-Protocol-Version": "1"}
    for _ in range(2):  # as a client that lost the answer
        answer = push(shared, gzip.compress(body) if is_gzip else body, **headers)
        if is_json:
            assert (answer.status_code, answer.json()) == (200, {})
            assert answer.headers["Content-Type"] == "application/json"
        else:
            assert_pushed(answer)
    assert cpu_tally(shared, service) == {"a": 1}
    assert stored(shared, service) == [("cpu", {"region": "eu"})]


def test_proto_names_are_read_in_json_too(shared: Server) -> None:
    sent = json.loads(
        as_json(push_request(({"__name__": "process_cpu", "service_name": "p"}, [profile_of("a")])))
    )
    sent["series"][0]["samples"] = [
        {"raw_profile": sample["rawProfile"]} for sample in sent["series"][0]["samples"]
    ]
    sent["someone"] = {"elses": "field"}
    assert push(shared, json.dumps(sent).encode(), **JSON).status_code == 200
    assert cpu_tally(shared, "p") == {"a": 1}


def test_one_request_has_many_series_and_profiles(shared: Server) -> None:
    series = [
        (
            {"__name__": "process_cpu", "service_name": "many", "pod": str(pod)},
            [taken_at(profile_of("a"), EPOCH + pod * 10 + each) for each in range(3)],
        )
        for pod in range(4)
    ]
    assert_pushed(push(shared, push_request(*series).SerializeToString()))
    assert cpu_tally(shared, "many") == {"a": 12}
    assert {labels["pod"] for _, labels in stored(shared, "many")} == set("0123")


def test_a_large_push_goes_through_files_which_are_gone_afterwards(server: Server) -> None:
    profiles = [large_profile("a"), profile_of("b")]
    labels = {"__name__": "process_cpu", "service_name": "large"}
    body = push_request((labels, profiles)).SerializeToString()
    assert_pushed(push(server, body))
    assert cpu_tally(server, "large") == {"a": 1, "b": 1}
    assert not [*(server.data / "incoming").iterdir()]


@pytest.mark.parametrize(
    ("service", "stored_as"),
    [("prod/shop", "prod-shop"), ("my shop!", "my-shop-"), ("_hidden", "hidden"), ("x" * 300, "x" * 200)],
)
def test_names_that_services_cannot_have_are_changed_and_kept_as_a_label(
    shared: Server, service: str, stored_as: str
) -> None:
    answer = push(shared, one(profile_of("a"), service))
    if len(service) > 255:
        assert "service_name" in refused(answer, 400, "invalid_argument")
        return
    assert_pushed(answer)
    assert stored(shared, stored_as) == [("cpu", {"service_name": service})]


def test_without_a_service_name_it_is_the_keys_service_or_unknown(server: Server) -> None:
    body = push_request(({"__name__": "process_cpu"}, [profile_of("a")])).SerializeToString()
    assert_pushed(push(server, body))
    assert stored(server, "unknown_service") == [("cpu", {})]
    server.kill()
    server.submit_keys.write_text(f"{SUBMIT_KEY} service=shop\n")
    server.start()
    assert_pushed(push(server, body))
    assert stored(server, "shop") == [("cpu", {})]


def test_the_tenant_is_a_label(shared: Server) -> None:
    for tenant in ("blue", "anonymous", ""):
        assert_pushed(push(shared, one(profile_of("a"), "rented"), X_Scope_OrgID=tenant))
    assert stored(shared, "rented") == [("cpu", {"tenant": "blue"}), ("cpu", {})]


@pytest.mark.parametrize(
    ("name", "is_delta", "type_", "labels"),
    [
        ("wall", True, "wall", {}),
        ("memory", True, "memory", {}),
        ("memory", False, "heap", {}),
        ("block", True, "block_delta", {}),
        ("block", False, "block", {}),
        ("godeltaprof_block", False, "block_delta", {}),
        ("mutex", True, "mutex_delta", {}),
        ("mutex", False, "mutex", {}),
        ("goroutine", False, "goroutine", {}),
        ("fgprof", False, "other", {"profile_name": "fgprof"}),
    ],
)
def test_deltas_and_cumulative_profiles_are_of_different_types(
    shared: Server, name: str, type_: str, labels: dict[str, str], *, is_delta: bool
) -> None:
    service = f"{name}-{is_delta}"
    mark = {"__delta__": "false"} if is_delta else {}
    assert_pushed(push(shared, one(profile_of("a"), service, name, **mark)))
    assert stored(shared, service) == [(type_, labels)]


def test_what_compilers_cannot_use_is_of_another_type(shared: Server) -> None:
    profile = profile_of("a")
    for sent in (profile, without_start_lines(profile), profile_of("b", type_="wall")):
        assert_pushed(push(shared, one(sent, "mixed")))
    assert stored(shared, "mixed") == [("cpu", {}), ("process_cpu", {}), ("process_cpu", {})]
    assert cpu_tally(shared, "mixed") == {"a": 1}


def test_the_report_says_what_is_kept_apart(shared: Server) -> None:
    query = {"service": "reported"}
    for stack in "ab":
        assert_pushed(push(shared, one(without_start_lines(profile_of(stack)), "reported", region="eu")))
    for answer in (
        shared.merge(query=query),
        shared.combine(query=query),
        shared.ask("/v1/report", service="reported"),
        shared.ask("/v1/release", service="reported"),
    ):
        assert answer.status_code == 404
        assert "2 profiles of the type process_cpu match. Go's compiler can't use" in answer.json()["detail"]
    assert_pushed(push(shared, one(profile_of("a"), "reported", region="us")))
    report = shared.ask("/v1/report", service="reported").json()
    assert (report["profiles"], report["kept_apart"]["profiles"]) == (1, 2)
    assert report["kept_apart"]["type"] == "process_cpu"
    assert "no start lines" in report["kept_apart"]["reason"]
    assert shared.ask("/v1/report", service="reported", labels="region=us").json()["kept_apart"] is None
    answer = shared.merge(query={"service": "reported", "type": "process_cpu"})
    assert tally(answer.content) == {"a": 1, "b": 1}
    elsewhere = shared.merge(query={"service": "reported", "type": "heap"})
    assert elsewhere.json()["detail"] == "no stored profile matches the selection"


def test_a_profile_without_samples_is_not_stored(shared: Server) -> None:
    empty = edited(profile_of("a"), lambda parsed: parsed.ClearField("sample"))
    assert_pushed(push(shared, one(empty, "empty")))
    assert not stored(shared, "empty")


def test_a_profile_of_1970_gets_the_present_time(shared: Server) -> None:
    old = edited(profile_of("a"), lambda parsed: setattr(parsed, "time_nanos", EPOCH // 1000))
    assert_pushed(push(shared, one(old, "old")))
    (profile,) = shared.ask("/v1/profiles", service="old").json()["profiles"]
    assert profile["time"] > "2024"


@pytest.mark.parametrize(
    "header",
    [
        bearer(SUBMIT_KEY),
        basic("anyone", SUBMIT_KEY),
        basic("", SUBMIT_KEY),
    ],
)
def test_the_key_is_a_bearer_token_or_a_password(shared: Server, header: dict[str, str]) -> None:
    headers = {"Content-Type": "application/proto"} | header
    answer = shared.client.post(PUSH, content=one(profile_of("a"), "keyed"), headers=headers)
    assert_pushed(answer)
    assert shared.client.post("/v1/submit", content=profile_of("a"), headers=header).status_code == 204


@pytest.mark.parametrize(
    "header",
    [{}, bearer("wrong"), basic(SUBMIT_KEY, "wrong"), basic(SUBMIT_KEY, ""), bearer(Server.merge_key)],
)
def test_without_a_key_it_is_unauthenticated(shared: Server, header: dict[str, str]) -> None:
    answer = shared.client.post(PUSH, content=b"", headers={"Content-Type": "application/proto"} | header)
    assert "Bearer KEY" in refused(answer, 401, "unauthenticated")


def test_a_key_of_another_service_is_refused_for_its_profiles_alone(server: Server) -> None:
    server.kill()
    server.submit_keys.write_text(f"{SUBMIT_KEY} name=team service=shop*\n")
    server.start()
    series = [
        ({"__name__": "process_cpu", "service_name": service}, [profile_of("a")])
        for service in ("mail", "shop-eu", "shop")
    ]
    message = refused(push(server, push_request(*series).SerializeToString()), 403, "permission_denied")
    assert message == "this key, team, isn't for service 'mail'"
    assert stored(server, "shop") == stored(server, "shop-eu") == [("cpu", {})]
    assert not stored(server, "mail")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"hello", "isn't a push.v1.PushRequest", id="text"),
        pytest.param(b"\x1f\x8bhello", "the stream is truncated", id="broken gzip"),
        pytest.param(one(b"hello", "bad"), "not a profile", id="no profile"),
        pytest.param(one(b"", "bad"), "the input is empty", id="empty profile"),
        pytest.param(
            one(gzip.compress(gzip.compress(gzip.compress(b"a"))), "bad"),
            "gzip inside gzip",
            id="gzip in gzip in gzip",
        ),
        pytest.param(
            push_request(({"service_name": "bad"}, [profile_of("a")])).SerializeToString(),
            "__name__ is missing",
            id="no name",
        ),
        pytest.param(
            one(profile_of("a"), "bad", **{f"label{number}": "x" for number in range(31)}),
            "31 labels; the limit is 30",
            id="labels",
        ),
        pytest.param(one(profile_of("a"), "bad", label="a\x00b"), "control character", id="control"),
        pytest.param(one(profile_of("a"), "bad", label="x" * 300), "255", id="long label"),
        pytest.param(
            one(profile_of("a"), "bad", **{f"label{number}": "x" * 200 for number in range(20)}),
            "send fewer or shorter labels",
            id="long path",
        ),
        pytest.param(
            push_request(*[({"__name__": "wall", "service_name": "bad"}, [])] * 101).SerializeToString(),
            "PGOF_PUSH_PROFILES",
            id="many series",
        ),
        pytest.param(
            push_request(({"__name__": "wall", "service_name": "bad"}, [b"x"] * 101)).SerializeToString(),
            "PGOF_PUSH_PROFILES",
            id="many profiles",
        ),
    ],
)
def test_what_is_refused_is_an_invalid_argument(shared: Server, body: bytes, says: str) -> None:
    blobs = shared.blobs()
    assert says in refused(push(shared, body), 400, "invalid_argument")
    assert shared.blobs() == blobs


@pytest.mark.parametrize(
    "body",
    [b"hello", b"[]", b"3", b'{"series": 3}', b'{"series": [3]}', b'{"series": [{"samples": [3]}]}',
     b'{"series": {"a": 1}}', b'{"series": [{"samples": [{"rawProfile": 3}]}]}', b"[" * 100_000,
     b'{"series": [{"labels": [{"name": "\\ud800"}]}]}', b"\xff\xfe", b'{"series": [[]]}',
     b'{"series": [{"labels": "\\ud800"}]}',
     b'{"series": [{"labels": ' + b"[" * 500 + b"]" * 500 + b"}]}"],
)  # fmt: skip
def test_json_that_is_no_push_is_an_invalid_argument(shared: Server, body: bytes) -> None:
    message = refused(push(shared, body, **JSON), 400, "invalid_argument")
    assert "isn't a push.v1.PushRequest as JSON" in message


@pytest.mark.parametrize("as_json", [False, True])
def test_labels_are_counted_before_they_are_converted(shared: Server, *, as_json: bool) -> None:
    request = push_request(({f"l{number}": "a" for number in range(101)}, []))
    if as_json:
        answer = push(shared, json_format.MessageToJson(request).encode(), **JSON)
    else:
        answer = push(shared, request.SerializeToString())
    assert "a series has 101 labels; the limit is 30" in refused(answer, 400, "invalid_argument")


def test_an_empty_body_is_an_empty_request(shared: Server) -> None:
    """proto3 writes a message without fields as nothing."""
    assert_pushed(push(shared, b""))
    for body in (b"{}", b'{"series": []}'):
        assert push(shared, body, **JSON).status_code == 200


def test_another_message_is_not_taken_for_an_empty_one(shared: Server) -> None:
    for body, headers in ((b"\x12\x03abc", {}), (b'{"resourceProfiles": []}', JSON)):
        assert "the request has no series" in refused(push(shared, body, **headers), 400, "invalid_argument")


def test_valid_profiles_are_stored_beside_refused_ones(shared: Server) -> None:
    labels = {"__name__": "process_cpu", "service_name": "partly"}
    body = push_request((labels, [b"hello", profile_of("a"), profile_of("b")[:-4]])).SerializeToString()
    message = refused(push(shared, body), 400, "invalid_argument")
    assert message.count("not a profile: ") == 2
    assert cpu_tally(shared, "partly") == {"a": 1}


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/connect+proto", "application/grpc"])
def test_other_content_types_are_refused_with_those_that_are_read(shared: Server, content_type: str) -> None:
    answer = push(shared, one(profile_of("a"), "typed"), Content_Type=content_type)
    refused(answer, 415, "invalid_argument")
    assert answer.headers["Accept-Post"] == "application/proto, application/json"


def test_other_methods_and_paths_are_unimplemented(shared: Server) -> None:
    refused(shared.client.get(PUSH, headers=bearer(SUBMIT_KEY)), 405, "unimplemented")
    refused(shared.client.post("/push.v1.PusherService/Pull"), 404, "unimplemented")


def test_bombs_are_refused_by_the_limits_of_submits(tmp_path: Path) -> None:
    inflates_to_much = gzip.compress(bytes(40 << 20))
    settings = {"PGOF_MAX_INFLATED_BYTES": str(1 << 20), "PGOF_WORKER_MEGABYTES": "64"}
    with Server(tmp_path, settings) as server:
        for body in (
            inflates_to_much,
            one(inflates_to_much, "bomb"),
            push_request(({"__name__": "wall"}, [inflates_to_much] * 50)).SerializeToString(),
            push_request(({"__name__": "wall"}, [gzip.compress(bytes(600_000))] * 2)).SerializeToString(),
        ):
            message = refused(push(server, body), 400, "invalid_argument")
            assert "PGOF_MAX_INFLATED_BYTES" in message or "not a profile" in message
        assert "PGOF_MAX_COMPRESSED_BYTES" in refused(push(server, bytes(9 << 20)), 400, "invalid_argument")
        assert not server.blobs()
        assert_pushed(push(server, one(profile_of("a"), "after")))


@pytest.mark.parametrize("is_json", [False, True], ids=["protobuf", "JSON"])
def test_a_million_empty_messages_are_refused(tmp_path: Path, *, is_json: bool) -> None:
    body = b'{"series":[' + b"{}," * 999_999 + b"{}]}" if is_json else b"\x0a\x00" * 1_000_000
    with Server(tmp_path, {"PGOF_WORKER_MEGABYTES": "64"}) as server:
        answer = push(server, gzip.compress(body), **(JSON if is_json else {}))
        message = refused(answer, 400, "invalid_argument")
        assert ("values; send protobuf, or less" if is_json else "PGOF_PUSH_PROFILES") in message
        assert_pushed(push(server, one(profile_of("a"), "after")))


def test_a_quota_is_exhausted(stopped: Server) -> None:
    stopped.environment["PGOF_QUOTA_PROFILES"] = "1"
    stopped.start()
    now = edited(profile_of("a"), lambda parsed: parsed.ClearField("time_nanos"))
    assert_pushed(push(stopped, one(now, "busy")))
    answer = push(stopped, one(now, "busy"))
    assert "PGOF_QUOTA_PROFILES" in refused(answer, 429, "resource_exhausted")
    assert int(answer.headers["Retry-After"]) > 0


def test_submits_are_counted(stopped: Server) -> None:
    stopped.environment["PGOF_METRICS_OPEN"] = "true"
    stopped.start()
    labels = {"__name__": "process_cpu", "service_name": "counted"}
    body = push_request((labels, [profile_of("a"), profile_of("b")])).SerializeToString()
    for _ in range(2):
        assert_pushed(push(stopped, body))
    push(stopped, one(b"x", "counted"))
    lines = stopped.client.get("/metrics").text.splitlines()
    assert 'pgo_collector_submits_total{outcome="stored",reason=""} 2.0' in lines
    assert 'pgo_collector_submits_total{outcome="duplicate",reason=""} 2.0' in lines
    assert 'pgo_collector_submits_total{outcome="refused",reason="MalformedProfile"} 1.0' in lines


def test_go_profiles_are_builds_however_they_came(shared: Server, go_profiles: list[bytes]) -> None:
    for profile in go_profiles[:2]:
        assert_pushed(push(shared, one(profile, "pushed-go")))
        shared.submit(profile, query={"service": "submitted-go"})
    merges = [shared.merge(query={"service": f"{how}-go"}) for how in ("pushed", "submitted")]
    assert merges[0].content == merges[1].content
    assert Profile.FromString(gzip.decompress(merges[0].content)).sample
