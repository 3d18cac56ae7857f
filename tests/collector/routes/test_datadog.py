"""The intake of Datadog's agent, as its tracers call it: what it stores, and what it refuses."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd
from pgo_collector.routes.pyroscope import querier_pb2 as messages
from pprof_proto.profile_pb2 import Profile

from tests.collector.datadog import (
    UPLOAD,
    assert_uploaded,
    event,
    lz4_of,
    refused,
    send,
    tracer_profile,
    upload,
    values_of,
)
from tests.collector.edits import edited
from tests.collector.pushing import assert_pushed, basic, form, one, push, stored, without_start_lines
from tests.collector.querying import call
from tests.faults.stacks import EPOCH, profile_of, tally
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

_PYTHON = tracer_profile(
    [
        ("work", {"cpu-time": 30, "cpu-samples": 3, "wall-time": 40, "wall-samples": 4}, 1),
        ("work", {"cpu-time": 10, "cpu-samples": 1, "wall-time": 10, "wall-samples": 1}, 2),
        ("wait", {"wall-time": 90, "wall-samples": 9, "lock-acquire": 1, "lock-acquire-wait": 80}, 3),
        ("keep", {"alloc-samples": 2, "alloc-space": 512, "heap-space": 256}, 4),
    ]
)
_BOMB = bytes(40 << 20)


def merged(server: Server, service: str, type_: str, **query: str) -> dict[str, dict[str, int]]:
    answer = server.merge(query={"service": service, "type": type_, **query})
    assert answer.status_code == 200, answer.text
    return values_of(answer.content)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress, lz4_of])
def test_a_python_upload_becomes_a_profile_of_each_type(
    shared: Server, pack: Callable[[bytes], bytes]
) -> None:
    service = f"py-{pack.__module__}"
    parts = {"event": event(service, version="1.4", region="eu"), "profile.pprof": pack(_PYTHON)}
    for _ in range(2):  # as a tracer that lost the answer
        assert_uploaded(upload(shared, parts))
    labels = {"env": "test", "region": "eu", "version": "1.4"}
    assert stored(shared, service) == sorted(
        ((type_, labels) for type_ in ("heap", "memory", "mutex_delta", "process_cpu", "wall")), key=str
    )
    # The spans of samples are left out, so those that differ in nothing else are one.
    assert merged(shared, service, "process_cpu") == {"work": {"cpu-time": 40, "cpu-samples": 4}}
    assert merged(shared, service, "wall") == {
        "work": {"wall-time": 50, "wall-samples": 5},
        "wait": {"wall-time": 90, "wall-samples": 9},
    }
    assert merged(shared, service, "mutex_delta") == {"wait": {"lock-acquire-wait": 80, "lock-acquire": 1}}
    assert merged(shared, service, "memory") == {"keep": {"alloc-space": 512, "alloc-samples": 2}}
    assert merged(shared, service, "heap") == {"keep": {"heap-space": 256}}


def test_a_gzipped_form_is_read(shared: Server) -> None:
    body, content_type = form(**{"event": event("packed"), "profile.pprof": _PYTHON})
    assert_uploaded(send(shared, gzip.compress(body), content_type, Content_Encoding="gzip"))
    assert stored(shared, "packed")


def test_profiles_of_node_are_told_apart(shared: Server) -> None:
    wall = tracer_profile(
        [("run", {"sample": 2, "wall": 20, "cpu": 15}, 1)],
        {"sample": "count", "wall": "nanoseconds", "cpu": "nanoseconds"},
    )
    space = tracer_profile([("keep", {"objects": 2, "space": 64}, 1)], {"objects": "count", "space": "bytes"})
    events = tracer_profile([("gc", {"timeline": 5}, 1)], {"timeline": "nanoseconds"})
    parts = {"event": event("node"), "wall.pprof": wall, "space.pprof": space, "events.pprof": events}
    assert_uploaded(upload(shared, parts))
    assert [type_ for type_, _ in stored(shared, "node")] == ["heap", "other", "process_cpu", "wall"]
    assert merged(shared, "node", "wall") == {"run": {"wall": 20, "sample": 2}}
    assert merged(shared, "node", "process_cpu") == {"run": {"cpu": 15}}
    assert ("other", {"env": "test", "profile_name": "timeline"}) in stored(shared, "node")


def label_sets(server: Server, name: str, selector: str) -> set[str]:
    """Return the values of a label in the sets that Grafana asks for."""
    answer = call(server, "Series", messages.SeriesResponse, matchers=[selector], label_names=[name])
    return {label.value for each in answer.labels_set for label in each.labels}


def test_grafana_lists_and_reads_the_sample_types_of_tracers(shared: Server) -> None:
    """Pyroscope's own clients have other names, which services without a tracer keep to themselves."""
    assert_uploaded(upload(shared, {"event": event("dd-grafana"), "profile.pprof": _PYTHON}))
    pushed = one(without_start_lines(profile_of("leaf")), "pyroscope-grafana", __delta__="false")
    assert_pushed(push(shared, pushed))
    cpu_time = "process_cpu:cpu-time:nanoseconds:cpu:nanoseconds"
    expected = [
        (cpu_time, "work", 40),
        ("mutex:lock-acquire-wait:nanoseconds:contentions:count", "wait", 80),
        ("memory:alloc-space:bytes:space:bytes", "keep", 512),
        ("heap:heap-space:bytes:space:bytes", "keep", 256),
    ]
    selector = '{service_name="dd-grafana"}'
    listed = {each.ID for each in call(shared, "ProfileTypes", messages.ProfileTypesResponse).profile_types}
    of_service = label_sets(shared, "__profile_type__", selector)
    for kind, function, total in expected:
        assert kind in listed & of_service
        found = call(
            shared, "LabelNames", messages.LabelNamesResponse, matchers=[f'{{__profile_type__="{kind}"}}']
        )
        assert {"env", "__type__"} <= {*found.names}
        answer = call(
            shared, "SelectMergeStacktraces", messages.SelectMergeStacktracesResponse,
            profile_typeID=kind, label_selector=selector,
        )  # fmt: skip
        assert answer.flamegraph.total == total
        assert function in answer.flamegraph.names
    services = label_sets(shared, "service_name", f'{{__profile_type__="{cpu_time}"}}')
    assert "dd-grafana" in services
    assert "pyroscope-grafana" not in services


def test_profiles_of_go_are_stored_as_they_came(shared: Server, go_profiles: list[bytes]) -> None:
    for profile in go_profiles[:2]:
        assert_uploaded(upload(shared, {"event": event("dd-go"), "cpu.pprof": profile}))
        shared.submit(profile, query={"service": "submitted-dd-go"})
    merges = [shared.merge(query={"service": service}) for service in ("dd-go", "submitted-dd-go")]
    assert merges[0].content == merges[1].content
    assert Profile.FromString(gzip.decompress(merges[0].content)).sample


def test_deltas_of_go_are_of_types_of_their_own(shared: Server) -> None:
    parts = {"event": event("go-types")} | {
        f"{name}.pprof": profile_of(name, type_="contentions")
        for name in ("delta-heap", "heap", "delta-block", "block", "delta-mutex", "mutex", "goroutines")
    }
    assert_uploaded(upload(shared, parts))
    assert {type_ for type_, _ in stored(shared, "go-types")} == {
        "memory", "heap", "block_delta", "block", "mutex_delta", "mutex", "goroutine",
    }  # fmt: skip


def test_no_merge_for_go_includes_what_its_compiler_cannot_use(shared: Server) -> None:
    for name, part in (
        ("cpu.pprof", profile_of("go")),
        ("cpu.pprof", without_start_lines(profile_of("stripped"))),
        ("profile.pprof", _PYTHON),
    ):
        assert_uploaded(upload(shared, {"event": event("both"), name: part}))
    assert tally(shared.merge(query={"service": "both"}).content) == {"go": 1}
    report = shared.client.get(
        "/v1/report", params={"service": "both"}, headers=bearer(Server.merge_key)
    ).json()
    assert report["kept_apart"]["profiles"] == 2


def test_tags_become_labels(shared: Server) -> None:
    tags = {
        "version": "1.4", "empty": "", "url": "http://x:1", "process_id": "7", "profile_seq": "3",
        "_dd.origin": "x", "__name__": "memory", "runtime_version": "3.11", "profiler_version": "4.16",
        "go_execution_traced": "yes",
    }  # fmt: skip
    parts = {"event": event("pay/ments", **tags), "cpu.pprof": profile_of("a")}
    added = "host:web-1,default_env:prod,agent_version:7.60"
    assert_uploaded(upload(shared, parts, X_Datadog_Additional_Tags=added))
    labels = {"env": "test", "host": "web-1", "url": "http://x:1", "version": "1.4"}
    assert stored(shared, "pay-ments") == [("cpu", {**labels, "service_name": "pay/ments"})]


def test_a_profile_without_a_time_gets_that_of_its_event(shared: Server) -> None:
    timeless = edited(profile_of("a"), lambda parsed: parsed.ClearField("time_nanos"))
    assert_uploaded(upload(shared, {"event": event("timed"), "cpu.pprof": timeless}))
    answer = shared.ask("/v1/profiles", service="timed")
    assert [each["time"] for each in answer.json()["profiles"]] == ["2023-11-14T22:13:20Z"], EPOCH


def test_an_upload_without_a_service_is_the_keys(stopped: Server) -> None:
    stopped.submit_keys.write_text("only-shop name=team service=shop\n")
    stopped.start()
    parts = {"event": event(""), "cpu.pprof": profile_of("a")}
    assert_uploaded(upload(stopped, parts, "only-shop"))
    assert [type_ for type_, _ in stored(stopped, "shop")] == ["cpu"]
    message = refused(upload(stopped, {**parts, "event": event("mail")}, "only-shop"), 403)
    assert message == "this key, team, isn't for service 'mail'"


@pytest.mark.parametrize(
    "headers",
    [
        {"DD-API-KEY": Server.submit_key},
        bearer(Server.submit_key),
        basic("x", Server.submit_key),
        bearer(Server.submit_key) | {"DD-API-KEY": "the key of an agent, behind a proxy that adds ours"},
    ],
)
def test_keys_come_in_any_header(shared: Server, headers: dict[str, str]) -> None:
    body, content_type = form(event=event("keyed"), **{"cpu.pprof": profile_of("a")})
    assert_uploaded(send(shared, body, content_type, "", **headers))


@pytest.mark.parametrize("key", ["", "wrong", "\xff", Server.merge_key])
def test_a_wrong_key_is_refused_as_datadog_does(shared: Server, key: str) -> None:
    headers = {b"DD-API-KEY": key.encode("latin-1")} if key else {b"X": b""}
    answer = shared.client.post(UPLOAD, content=b"x", headers=headers)
    why = {"": "no key was sent", Server.merge_key: "this is a merge key, and the route takes submit keys"}
    assert why.get(key, "no key that this route takes") in refused(answer, 403)


def test_routes_may_be_open(stopped: Server) -> None:
    stopped.environment["PGOF_DATADOG_OPEN"] = "true"
    stopped.start()
    assert_uploaded(upload(stopped, {"event": event("open"), "cpu.pprof": profile_of("a")}, ""))
    assert stopped.submit(profile_of("a"), key="wrong").status_code == 403


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_info_names_the_path_of_uploads(shared: Server, method: str) -> None:
    answer = shared.client.request(method, "/info")
    assert answer.status_code == 200
    if method != "HEAD":
        assert UPLOAD in answer.json()["endpoints"]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        pytest.param({}, "no part named event", id="empty"),
        pytest.param({"cpu.pprof": profile_of("a")}, "no part named event", id="no event"),
        pytest.param({"event": b"hello"}, "event: this isn't JSON", id="text"),
        pytest.param({"event": b"[]"}, "event: this isn't JSON", id="list"),
        pytest.param({"event": b'{"tags_profiler": 3}'}, "event: this isn't JSON", id="number"),
        pytest.param({"event": b'{"tags_profiler": "a:\\ud800"}'}, "event: this isn't JSON", id="surrogate"),
        pytest.param({"event": b"[" * 100_000}, "event: this isn't JSON", id="deep"),
        pytest.param({"event": event("bad"), "cpu.pprof": b"hello"}, "not a profile", id="no profile"),
        pytest.param({"event": event("bad"), "profile.pprof": b"hello"}, "not a profile", id="no pprof"),
        pytest.param({"event": event("bad"), "main.jfr": b"FLR"}, "only pprof can be read", id="JFR"),
        pytest.param(
            {"event": event("bad"), "main": _PYTHON, "go.trace": b"x", "metrics.json": b"{}"},
            "no part is a profile (main, go.trace): only pprof can be read, in parts named NAME.pprof",
            id="names",
        ),
        pytest.param(
            {"event": event("bad"), "profile.pprof": zstd.compress(_PYTHON)[:-9]}, "truncated", id="zstd cut"
        ),
        pytest.param(
            {"event": event("bad"), "profile.pprof": b"\x28\xb5\x2f\xfd\x20\x05\x07\x00\x00"},
            "not valid zstd",
            id="zstd block",
        ),
        pytest.param(
            {"event": event("bad"), "profile.pprof": b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(9)},
            "not valid zstd",
            id="zstd window",
        ),
        pytest.param(
            {"event": event("bad"), "profile.pprof": lz4_of(_PYTHON)[:-9]},
            "truncated",
            id="LZ4 cut",
        ),
        pytest.param(
            {"event": event("bad"), "profile.pprof": zstd.compress(_PYTHON) + b"x"},
            "something follows the frame",
            id="after zstd",
        ),
        pytest.param(
            {"event": event("bad"), "cpu.pprof": gzip.compress(gzip.compress(gzip.compress(b"x")))},
            "gzip inside gzip",
            id="gzip in gzip in gzip",
        ),
        pytest.param(
            {
                "event": event("bad", **{f"tag{number}": "x" for number in range(31)}),
                "profile.pprof": _PYTHON,
            },
            "labels; the limit is 30",
            id="labels",
        ),
        pytest.param(
            {"event": event("bad"), **{f"{number}.pprof": b"" for number in range(200)}},
            "PGOF_PUSH_PROFILES",
            id="parts",
        ),
        pytest.param(
            {"event": event("bad"), **{f"{number}.pprof": _PYTHON for number in range(30)}},
            "PGOF_PUSH_PROFILES",
            id="profiles",
        ),
    ],
)
def test_what_is_refused_is_said(shared: Server, parts: dict[str, bytes], says: str) -> None:
    blobs = shared.blobs()
    answer = upload(shared, parts)
    assert 400 <= answer.status_code < 500
    assert says in refused(answer, answer.status_code)
    assert shared.blobs() == blobs


@pytest.mark.parametrize("content_type", ["", "text/plain", "multipart/form-data", "application/json"])
def test_only_forms_are_read(shared: Server, content_type: str) -> None:
    answer = send(shared, b"x", content_type)
    assert "multipart/form-data with a boundary" in refused(answer, 400)


def test_valid_profiles_are_stored_beside_refused_ones(shared: Server) -> None:
    parts = {"event": event("partly"), "heap.pprof": b"hello", "cpu.pprof": profile_of("a")}
    assert "not a profile" in refused(upload(shared, parts), 400)
    assert tally(shared.merge(query={"service": "partly"}).content) == {"a": 1}


@pytest.mark.parametrize("parts", [{}, {"profile.pprof": b""}, {"profile.pprof": tracer_profile([])}])
def test_an_upload_without_samples_is_taken_and_not_stored(shared: Server, parts: dict[str, bytes]) -> None:
    assert_uploaded(upload(shared, {"event": event("idle"), "metrics.json": b"{}"} | parts))
    assert not stored(shared, "idle")


def test_a_file_says_what_its_part_is(shared: Server) -> None:
    """Java's tracer sends `main.jfr` in a part named main."""
    for name, content in (("main.jfr", b"FLR"), ("cpu.pprof", profile_of("a"))):
        body, content_type = form(**{"event": event("files"), name: content})
        stem = name.partition(".")[0]
        renamed = body.replace(f'name="{name}"; filename'.encode(), f'name="{stem}"; filename'.encode())
        answer = send(shared, renamed, content_type)
        if name == "main.jfr":
            assert "main.jfr: the profile is in the format jfr" in refused(answer, 422)
        else:
            assert_uploaded(answer)
    assert [type_ for type_, _ in stored(shared, "files")] == ["cpu"]


def test_bombs_are_refused_by_the_limits_of_submits(tmp_path: Path) -> None:
    settings = {"PGOF_MAX_INFLATED_BYTES": str(1 << 20), "PGOF_WORKER_MEGABYTES": "64"}
    bombs = [pack(_BOMB) for pack in (gzip.compress, zstd.compress, lz4_of)]
    named = {"event": event("bomb")}
    with Server(tmp_path, settings) as server:
        for parts in (
            *({"cpu.pprof": bomb} for bomb in bombs),
            *({"profile.pprof": bomb} for bomb in bombs),
            {f"{number}.pprof": bombs[1] for number in range(50)},
            {f"{number}.pprof": zstd.compress(_padded(600_000)) for number in range(2)},
            {"profile.pprof": zstd.compress(bombs[0])},
        ):
            answer = upload(server, named | parts)
            assert "PGOF_MAX_INFLATED_BYTES" in refused(answer, answer.status_code)
            assert 400 <= answer.status_code < 500
        body, content_type = form(**named, other=_BOMB)
        answer = send(server, gzip.compress(body), content_type)
        assert "PGOF_MAX_INFLATED_BYTES" in refused(answer, answer.status_code)
        answer = send(server, bytes(9 << 20), content_type)
        assert "PGOF_MAX_COMPRESSED_BYTES" in refused(answer, answer.status_code)
        assert not [*(server.data / "incoming").iterdir()]
        assert_uploaded(upload(server, {"event": event("after"), "cpu.pprof": profile_of("a")}))


def _padded(size: int) -> bytes:
    """Return a profile with texts that take this many bytes."""
    parsed = Profile.FromString(_PYTHON)
    parsed.string_table.extend(b"%030000d" % number for number in range(size // 30_000))
    return parsed.SerializeToString()


def test_a_quota_is_exhausted(stopped: Server) -> None:
    stopped.environment["PGOF_QUOTA_PROFILES"] = "1"
    stopped.start()
    now = edited(profile_of("a"), lambda parsed: parsed.ClearField("time_nanos"))
    assert_uploaded(upload(stopped, {"event": event("busy"), "cpu.pprof": now}))
    answer = upload(stopped, {"event": event("busy"), "cpu.pprof": now})
    assert "PGOF_QUOTA_PROFILES" in refused(answer, 429)
    assert int(answer.headers["Retry-After"]) > 0


def test_submits_are_counted(stopped: Server) -> None:
    stopped.environment["PGOF_METRICS_OPEN"] = "true"
    stopped.start()
    parts = {"event": event("counted"), "profile.pprof": _PYTHON}
    for _ in range(2):
        assert_uploaded(upload(stopped, parts))
    refused(upload(stopped, {"event": event("counted"), "cpu.pprof": b"hello"}), 400)
    lines = stopped.client.get("/metrics").text.splitlines()
    assert 'pgo_collector_submits_total{outcome="stored",reason=""} 5.0' in lines
    assert 'pgo_collector_submits_total{outcome="duplicate",reason=""} 5.0' in lines
    assert any('outcome="refused"' in line for line in lines)
