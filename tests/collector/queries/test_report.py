"""The report on stored profiles, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pprof_merge import Collection, compress, decode
from pprof_merge.analysis.build_report import ReportedProfile, ReportOptions, report
from pprof_merge.analysis.edge_overlap import overlap
from pprof_merge.analysis.outliers import _CHUNK_STACKS
from pprof_proto.profile_pb2 import Profile

from tests.collector.conftest import PROFILES
from tests.collector.visitor import Visitor
from tests.faults.stacks import SECOND, profile_of
from tests.merge.stacked import stacked
from tests.server import Server, bearer

SYMBOLS = b"  4d53a0 T main.main\n  4d5400       1189 t runtime.mallocgc\n"


def ask(
    server: Server, method: str = "GET", key: str = Server.merge_key, content: bytes | None = None
) -> httpx.Response:
    return server.client.request(method, "/v1/report", headers=bearer(key), content=content)


@pytest.fixture
def filled(server: Server, go_profiles: list[bytes]) -> Server:
    for profile in go_profiles:
        assert server.submit(profile).status_code == 204
    return server


def test_is_the_engines(filled: Server, go_profiles: list[bytes]) -> None:
    answer = ask(filled)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "private, no-store"
    found = answer.json()
    collection = Collection()
    subjects = [ReportedProfile(collection.add(profile), "") for profile in go_profiles]
    expected: dict[str, Any] = json.loads(report(collection, subjects, 0, ReportOptions()).json())
    assert found["coverage"] is None
    for changing in ("times", "outliers", "clocks"):
        del found[changing], expected[changing]
    assert found == expected
    assert filled.wait_for_log("report made")["blobs"] == len(go_profiles)


def test_series_say_which_versions_and_instances(server: Server) -> None:
    for stack, labels in (("a", "version=1,instance=x"), ("a", "version=2"), ("b", "version=1")):
        assert server.submit(profile_of(stack), query={"labels": labels}).status_code == 204
    found = ask(server).json()
    assert found["versions"] == {"1": 2, "2": 1}
    assert found["instances"] == {"x": 1}
    assert (found["profiles"], found["totals"]["samples/count"]) == (3, 3)


def test_with_symbols(filled: Server) -> None:
    answer = ask(filled, "POST", content=SYMBOLS)
    assert answer.status_code == 200
    coverage = answer.json()["coverage"]
    assert coverage["symbols"] == 2
    assert 0 < coverage["functions"]["present"] < 1
    assert not [*(filled.data / "incoming").iterdir()]


def test_against_the_current_release(filled: Server) -> None:
    assert ask(filled).json()["against"] is None
    released = filled.client.get("/v1/release", headers=bearer(Server.merge_key))
    assert released.status_code == 200
    assert ask(filled).json()["against"] == {"overlap": 1.0, "moved": []}
    assert filled.submit((PROFILES / "etl-s2-000.pb.gz").read_bytes()).status_code == 204
    found = ask(filled).json()["against"]["overlap"]
    merged = decode(filled.client.get("/v1/merge", headers=bearer(Server.merge_key)).content)
    assert 0 < found < 1
    assert found == pytest.approx(overlap(merged, decode(released.content)))
    for file in filled.area("releases").rglob("*.pb.gz"):
        file.write_bytes(b"damaged")
    assert ask(filled).json()["against"] is None


def test_outliers_are_named_as_blobs(filled: Server) -> None:
    foreign = (PROFILES / "etl-s2-000.pb.gz").read_bytes()
    before = {*filled.blobs()}
    filled.submit(foreign)
    (blob,) = {*filled.blobs()} - before
    (outlier,) = ask(filled).json()["outliers"]["profiles"]
    assert outlier["profile"].endswith(blob.name)
    assert outlier["likeness"] < 0.5


def test_it_is_of_what_is_live_now(filled: Server, go_profiles: list[bytes]) -> None:
    before = ask(filled).json()
    assert filled.combine().status_code == 200
    after = ask(filled).json()
    assert (before["profiles"], after["profiles"]) == (len(go_profiles), 1)
    assert after["totals"] == before["totals"]
    assert after["versions"].keys() == before["versions"].keys()
    assert after["go"] == before["go"]


def test_what_cannot_be_read_is_named(filled: Server, go_profiles: list[bytes]) -> None:
    damaged = filled.blobs()[0]
    damaged.write_bytes(b"")
    filled.forget_decoded()
    answer = ask(filled)
    assert answer.json()["profiles"] == len(go_profiles) - 1
    assert damaged.name in answer.headers["PGO-Left-Out"]
    for blob in filled.blobs():
        blob.write_bytes(b"")
    filled.kill()
    for rows in (filled.data / "rows").iterdir():
        rows.unlink()
    filled.start()
    assert_problem(ask(filled), 404, f"none of the {len(go_profiles)} stored profiles can be read")


def assert_problem(answer: httpx.Response, status: int, detail: str) -> None:
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert answer.json()["detail"] == detail


def test_nothing_stored_is_404(server: Server) -> None:
    for answer in (ask(server), ask(server, "POST", content=SYMBOLS)):
        assert_problem(answer, 404, "no stored profile matches the selection")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("key", ["wrong", Server.submit_key])
def test_it_takes_a_merge_key(shared: Server, method: str, key: str) -> None:
    assert ask(shared, method, key).status_code == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_405(shared: Server, method: str) -> None:
    assert ask(shared, method).status_code == 405


def test_head_has_no_body(shared: Server) -> None:
    shared.submit(profile_of("a"))
    answer = ask(shared, "HEAD")
    assert (answer.status_code, answer.content) == (200, b"")


def test_symbols_without_a_function_are_400(shared: Server) -> None:
    shared.submit(profile_of("a"))
    detail = "no function among the symbols; nm lists none of a stripped program: use the unstripped one"
    assert_problem(ask(shared, "POST", content=b"  600840 D data\n"), 400, detail)
    detail = "the body is empty; send the output of `go tool nm`, or a list of functions"
    assert_problem(ask(shared, "POST", content=b""), 400, detail)


def test_symbols_are_bounded_as_other_bodies_are(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_MAX_INFLATED_BYTES": "1000"}) as server:
        server.submit(profile_of("a"))
        assert ask(server, "POST", content=b"f\n" * 500).status_code == 200
        detail = "the body is larger than 1,000 bytes (PGOF_MAX_INFLATED_BYTES)"
        assert_problem(ask(server, "POST", content=b"f\n" * 501), 413, detail)


def test_a_profile_without_calls_is_reported_as_what_it_is(shared: Server) -> None:
    shared.submit(profile_of("a"))
    found = ask(shared).json()
    assert found["go"]["verdict"] == "ignored"
    assert found["times"]["days"] == {"2023-11-14": found["profiles"]}


def test_where_the_last_profile_fills_a_chunk(server: Server) -> None:
    """The last profile ends exactly at the end of a chunk of stacks."""
    for profile in (1, 2):
        message = Profile.FromString(stacked({"main.main;main.run": 1}, time_nanos=profile * SECOND))
        message.sample.extend([message.sample[0]] * (_CHUNK_STACKS // 2 - 1))
        assert len(message.sample) * 2 == _CHUNK_STACKS
        assert server.submit(compress(message.SerializeToString())).status_code == 204
    found = ask(server)
    assert found.status_code == 200, found.text
    assert (found.json()["profiles"], found.json()["outliers"]["compared"]) == (2, 2)
    assert Visitor(server).page("/ui/services/default/build").all("h1")
    assert server.release().status_code == 200
    assert server.releases(method="POST").status_code in {200, 201}
