"""Parca's WriteRaw, called by grpcio's client, and by POST, as the schema says."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from pgo_collector.routes.parca.parca_pb2 import WriteRawRequest

from tests.collector.calling import KEY, call, refused_call
from tests.collector.exporting import speaks_grpc
from tests.collector.pushing import SeriesOf, refused, stored, without_start_lines
from tests.faults.stacks import large_profile, profile_of, tally
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

_STORE = "/parca.profilestore.v1alpha1.ProfileStoreService"
WRITE_RAW = f"{_STORE}/WriteRaw"


def request_of(*series: SeriesOf) -> bytes:
    """Return a WriteRawRequest with these series, which is marked as Parca's scraper marks it."""
    request = WriteRawRequest()
    for labels, profiles in series:
        added = request.series.add()
        for name, value in labels.items():
            added.labels.labels.add(name=name, value=value)
        for profile in profiles:
            added.samples.add(raw_profile=profile)
    return request.SerializeToString() + b"\x18\x00"  # normalized = false


def one(profile: bytes, name: str = "process_cpu", **labels: str) -> bytes:
    """Return the request of one profile."""
    return request_of(({"__name__": name, **labels}, [profile]))


def write(server: Server, body: bytes, key: str = Server.submit_key, **headers: str) -> httpx.Response:
    """Send a WriteRaw as Connect does: over HTTP, at the path of the method."""
    headers = {"Content-Type": "application/proto"} | bearer(key) | headers
    return server.client.post(WRITE_RAW, content=body, headers=headers)


def assert_written(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.content) == (200, b""), answer.text
    assert answer.headers["Content-Type"] == "application/proto"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with speaks_grpc(tmp_path_factory.mktemp("parca")) as server:
        yield server


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_call_stores_profiles_which_are_in_the_merge(server: Server, compression: grpc.Compression) -> None:
    service = f"called-{compression.name}"
    body = request_of(
        ({"__name__": "process_cpu", "job": service, "instance": "a:1"}, [profile_of("a")]),
        ({"__name__": "process_cpu", "job": service, "instance": "b:1"}, [gzip.decompress(profile_of("b"))]),
        ({"__name__": "memory", "job": service, "instance": "a:1"}, [profile_of("c")]),
    )
    for _ in range(2):  # as a sender that lost the answer
        assert call(server, body, WRITE_RAW, compression=compression) == b""
    labels = [{"job": service, "instance": instance} for instance in ("a:1", "b:1")]
    assert stored(server, service) == [("cpu", labels[0]), ("cpu", labels[1]), ("heap", labels[0])]
    merged = server.merge(query={"service": service})
    assert dict(tally(merged.content)) == {"a": 1, "b": 1}


def test_submits_are_counted(tmp_path: Path) -> None:
    body = one(profile_of("a"), job="counted")
    with Server(tmp_path / "server", {"PGOF_METRICS_OPEN": "true"}) as server:
        for _ in range(2):
            assert_written(write(server, body))
        assert write(server, one(b"no profile", job="counted")).status_code == 400
        lines = server.client.get("/metrics").text.splitlines()
    assert 'pgo_collector_submits_total{outcome="stored",reason=""} 1.0' in lines
    assert 'pgo_collector_submits_total{outcome="duplicate",reason=""} 1.0' in lines
    assert 'pgo_collector_submits_total{outcome="refused",reason="MalformedProfile"} 1.0' in lines


def test_refusals_have_the_codes_that_parca_knows(server: Server) -> None:
    good = one(profile_of("a"), job="codes")
    cases = [
        (b"hello", KEY, grpc.StatusCode.INVALID_ARGUMENT, "WriteRawRequest"),
        (good, (), grpc.StatusCode.UNAUTHENTICATED, "no key"),
        (one(b"no profile", job="codes"), KEY, grpc.StatusCode.INVALID_ARGUMENT, "not a profile"),
        (request_of(({"job": "codes"}, [profile_of("a")])), KEY,
         grpc.StatusCode.INVALID_ARGUMENT, "__name__"),
        (request_of(({"__name__": "cpu"}, [gzip.compress(bytes(100 << 20))])), KEY,
         grpc.StatusCode.INVALID_ARGUMENT, "PGOF_MAX_INFLATED_BYTES"),
    ]  # fmt: skip
    for body, metadata, code, message in cases:
        assert (found := refused_call(server, body, WRITE_RAW, metadata=metadata))[0] == code, found
        assert message in found[1]
    for megabytes in (9, 33):
        code, message = refused_call(server, bytes(megabytes << 20), WRITE_RAW)
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "PGOF_MAX_COMPRESSED_BYTES" in message
    assert not server.events("unexpected error")


def test_what_is_no_pprof_is_unimplemented_with_a_reason(server: Server) -> None:
    for method in ("Write", "WriteArrow"):
        code, details = refused_call(server, b"", f"{_STORE}/{method}")
        assert code == grpc.StatusCode.UNIMPLEMENTED
        assert "Arrow" in details
    code, _ = refused_call(server, b"", f"{_STORE}/Read")
    assert code == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("labels", "service", "kept"),
    [
        ({"service_name": "s", "container": "c", "job": "j"}, "s", {"container": "c", "job": "j"}),
        ({"app_kubernetes_io_name": "a", "container": "c"}, "a", None),
        ({"container": "c", "comm": "m", "job": "j"}, "c", None),
        ({"comm": "m", "job": "j", "node": "n", "cpu": "3", "thread_id": "77"}, "m",
         {"comm": "m", "job": "j", "node": "n"}),
        ({"job": "prod/j", "__meta": "x"}, "prod-j", {"job": "prod/j", "service_name": "prod/j"}),
        ({"pod": "p"}, "unknown_service", {"pod": "p"}),
    ],
)  # fmt: skip
def test_the_service_is_the_first_label_that_names_the_program(
    shared: Server, labels: dict[str, str], service: str, kept: dict[str, str] | None
) -> None:
    assert_written(write(shared, one(profile_of(f"{labels}"), **labels)))
    assert ("cpu", labels if kept is None else kept) in stored(shared, service)


def test_a_key_for_one_service_says_which_it_is(stopped: Server) -> None:
    stopped.submit_keys.write_text(f"{Server.submit_key} service=shop\n")
    stopped.start()
    assert_written(write(stopped, one(profile_of("a"), job="other")))
    assert stored(stopped, "shop") == [("cpu", {"job": "other"})]
    answer = write(stopped, one(profile_of("b"), service_name="other"))
    assert "isn't for service" in refused(answer, 403, "permission_denied")


def test_a_profile_that_compilers_cannot_use_is_kept_apart(shared: Server) -> None:
    assert_written(write(shared, one(without_start_lines(profile_of("a")), job="apart")))
    assert stored(shared, "apart") == [("process_cpu", {"job": "apart"})]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([("__name__", "cpu"), ("job", "a"), ("job", "b")], "comes twice"),
        ([("__name__", "cpu"), ("a.b", "c")], "a.b"),
        ([("__name__", "cpu"), ("", "c")], "a name has letters"),
        ([("__name__", "cpu"), *((f"l{number}", "x") for number in range(31))], "labels"),
    ],
)
def test_wrong_labels_are_refused_and_all_other_series_stored(
    shared: Server, labels: list[tuple[str, str]], reason: str
) -> None:
    request = WriteRawRequest.FromString(one(profile_of(f"{len(labels)}{reason}"), job="beside"))
    bad = request.series.add()
    for name, value in labels:
        bad.labels.labels.add(name=name, value=value)
    bad.samples.add(raw_profile=profile_of("b"))
    before = len(stored(shared, "beside"))
    assert reason in refused(write(shared, request.SerializeToString()), 400, "invalid_argument")
    assert len(stored(shared, "beside")) == before + 1


def test_the_limits_are_those_of_a_push(shared: Server) -> None:
    many = request_of(*[({"__name__": "cpu"}, []) for _ in range(101)])
    assert "PGOF_PUSH_PROFILES" in refused(write(shared, many), 400, "invalid_argument")
    many = request_of(({"__name__": "cpu"}, [b""] * 101))
    assert "PGOF_PUSH_PROFILES" in refused(write(shared, many), 400, "invalid_argument")
    assert write(shared, b"", **{"Content-Type": "application/grpc"}).status_code == 415
    assert_written(write(shared, b""))
    assert_written(
        write(shared, request_of(({"__name__": "process_cpu", "job": "large"}, [large_profile("a")])))
    )
    assert [type_ for type_, _ in stored(shared, "large")] == ["cpu"]
