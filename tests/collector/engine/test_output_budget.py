"""Enormous outputs of small profiles are refused with a reason, and the server goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pprof_merge import compress

from tests.collector.visitor import Visitor
from tests.faults.stacks import profile_of
from tests.merge.hostile_outputs import HOSTILE_OUTPUTS, attack
from tests.server import Server, descendants

pytestmark = pytest.mark.any_store

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
SETTING = "PGOF_MAX_OUTPUT_BYTES"
# The name and the output have the default maximum sizes.
MOST_MEMORY = 400 * MIB


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a collector with a budget of 16 MiB for answers, and submit profiles with larger outputs."""
    settings = {"PGOF_MAX_OUTPUT_BYTES": str(16 * MIB), "PGOF_PROFEFE_OPEN": "true"}
    with Server(tmp_path_factory.mktemp("attacked"), settings) as server:
        for service, name in {
            "names": "long names in deep stacks",
            "inlined": "inlined calls in many samples",
            "files": "functions with one long file",
        }.items():
            body = compress(HOSTILE_OUTPUTS[name]())
            assert server.submit(body, query={"service": service}).status_code == 204
        yield server


def test_the_attack_by_two_bodies_of_a_kilobyte(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_MAX_NAME_BYTES": str(2 * MIB)}) as server:
        for letters in (MIB, 60_000):
            body = compress(attack(letters))
            assert len(body) < 40_000
            assert server.submit(body).status_code == 204
        refused = server.merge(format_="folded")
        assert refused.status_code == 422
        problem = refused.json()
        assert problem["detail"].startswith("format=folded: it would take ")
        assert f"{SETTING} is 268,435,456" in problem["detail"]
        assert "take the format pprof or go" in problem["detail"]
        assert server.submit(profile_of("after")).status_code == 204
        for format_ in ("pprof", "speedscope", "json", "go"):
            assert server.merge(format_=format_).status_code in {200, 422}
        assert server.merge().status_code == 200
        assert not server.events("worker died")
        assert max(map(peak, (server.process.pid, *descendants(server.process.pid)))) < MOST_MEMORY


def test_a_name_is_bounded_when_it_is_submitted(shared: Server) -> None:
    assert shared.submit(compress(attack(32 << 10)), query={"service": "bounded"}).status_code == 204
    refused = shared.submit(compress(attack((32 << 10) + 1)), query={"service": "bounded"})
    assert refused.status_code == 413
    assert refused.json()["detail"] == (
        "the profile is too large: string 8: more than 32,768 name bytes"
        " (PGOF_MAX_INFLATED_BYTES or PGOF_MAX_NAME_BYTES)"
    )


def test_what_was_stored_with_a_longer_name_stays(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_MAX_NAME_BYTES": str(MIB)}) as server:
        assert server.submit(attack(40_000)).status_code == 204
        merge = server.merge().content
    with Server(tmp_path, {"PGOF_MAX_NAME_BYTES": "1000"}) as server:
        assert server.submit(attack(40_001)).status_code == 413
        assert server.merge().content == merge


@pytest.mark.parametrize(
    ("service", "format_"),
    [
        ("names", "folded"),
        ("inlined", "folded"),
        ("inlined", "go"),
        ("inlined", "json"),
        ("files", "speedscope"),
    ],
)
def test_a_merge_in_a_format(attacked: Server, service: str, format_: str) -> None:
    refused = attacked.merge(format_=format_, query={"service": service})
    assert refused.status_code == 422
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["detail"].startswith(f"format={format_}: it would take ")
    assert f"and {SETTING} is 16,777,216; select fewer profiles" in refused.json()["detail"]
    assert attacked.submit(profile_of(format_, time_nanos=time.time_ns())).status_code == 204


def test_a_merge_that_is_stored_is_no_output(attacked: Server) -> None:
    query = {"service": "combined"}
    for row in range(2):
        body = HOSTILE_OUTPUTS["long names in deep stacks"]().replace(b"main.go", b"main.%02d" % row)
        assert attacked.submit(compress(body), query=query).status_code == 204
    assert attacked.combine(query=query).status_code == 200
    assert attacked.combine(format_="folded", query=query).status_code == 422


@pytest.mark.parametrize("path", ["/v1/top", "/v1/diff", "/v1/report"])
def test_a_question(attacked: Server, path: str) -> None:
    query = {"base_service": "names"} if path == "/v1/diff" else {}
    refused = attacked.ask(path, service="inlined", **query)
    assert refused.status_code == 422
    assert SETTING in refused.json()["detail"]


def test_a_timeline_needs_no_stacks(attacked: Server) -> None:
    assert attacked.ask("/v1/series", service="inlined", function="f1").status_code == 200


def test_names_in_an_answer_are_whole_and_counted(attacked: Server) -> None:
    answer = attacked.ask("/v1/top", service="names", n="100")
    assert answer.status_code == 200
    assert {len(row["name"]) for row in answer.json()["rows"]} == {32 << 10}


@pytest.mark.parametrize("page", ["", "/top", "/build", "/diff?base_service=names", "/merge?format=folded"])
def test_a_page_says_so_as_pages_do(attacked: Server, page: str) -> None:
    answer = Visitor(attacked).get(f"/ui/services/inlined{page}")
    assert answer.status_code == 422
    assert answer.headers["Content-Type"].startswith("text/html")
    assert SETTING in answer.text


@pytest.mark.parametrize("page", ["", "/top?n=1000", "/diff?base_service=files", "/series", "/build"])
def test_a_page_cuts_names(attacked: Server, page: str) -> None:
    answer = Visitor(attacked).get(f"/ui/services/names{page}")
    assert answer.status_code == 200, answer.text
    assert len(answer.content) < 2 * MIB
    assert "x" * 1000 not in answer.text


def test_profefes_clients_are_told_as_they_know_it(attacked: Server) -> None:
    with Server(attacked.home.parent / "small", {SETTING: "10000", "PGOF_PROFEFE_OPEN": "true"}) as server:
        assert server.submit(attack(20_000), query={"service": "a"}).status_code == 204
        answer = server.client.get("/api/0/profiles/merge", params={"service": "a", "type": "cpu"})
        assert answer.status_code == 422
        assert SETTING in answer.json()["error"]
        assert answer.json()["code"] == 422
        listed = server.client.get("/api/0/profiles", params={"service": "a"})
        assert listed.status_code == 200


def test_a_release_is_made_without_what_is_too_much_to_compare(attacked: Server) -> None:
    made = attacked.client.post(
        "/v1/releases", params={"service": "names"}, headers={"Authorization": f"Bearer {attacked.merge_key}"}
    )
    assert made.status_code == 201, made.text
    assert len(made.content) < MIB
    folded = attacked.client.get(
        "/v1/release",
        params={"service": "names", "format": "folded"},
        headers={"Authorization": f"Bearer {attacked.merge_key}"},
    )
    assert folded.status_code == 422
    assert SETTING in folded.json()["detail"]


def test_nothing_of_it_cost_a_process(attacked: Server) -> None:
    assert not attacked.events("worker died")
    assert max(map(peak, (attacked.process.pid, *descendants(attacked.process.pid)))) < MOST_MEMORY


def peak(pid: int) -> int:
    """Return the peak memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
