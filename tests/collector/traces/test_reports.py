"""POST /v1/traces/{trace}/steps: what clients report of their traced requests, within bounds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pgo_collector.traces.profiles import profile_of_traces
from pgo_collector.traces.signing import Origin, new_origin, sign, sign_as_osprofiler, uuids_of
from pgo_collector.traces.spans import new_id
from pgo_collector.traces.trace_store import FILE, TraceQuery, TraceReader
from pgo_collector.traces.trees import tree_of
from pprof_proto.profile_pb2 import Profile

from tests.collector.tracing import KEY, OLD_KEY, check_times, counted, requests_of, tracing
from tests.constants import REPORTED_SECONDS, REPORTED_STEPS, TRACE_WINDOW
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

_SECOND = 1_000_000  # in µs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("reports")
    server = tracing(home, {REPORTED_STEPS: "3", REPORTED_SECONDS: "3600"})
    (home / "trace_keys").write_text(f"{KEY}\n{OLD_KEY}\n")
    with server:
        yield server


def asked(server: Server, key: str = KEY, trace: str | None = None) -> Origin:
    """Have a request traced that is about a service; return its trace and span."""
    origin = new_origin() if trace is None else Origin(trace, new_id())
    headers = bearer(server.merge_key) | sign(key.encode(), *origin, int(time.time()))
    answer = server.client.get("/v1/merge", params={"service": "shop"}, headers=headers)
    assert answer.headers["PGO-Trace"] == origin.trace
    return origin


def report(server: Server, trace: str, steps: str, key: str = KEY, **changed: str) -> httpx.Response:
    headers = sign(key.encode(), trace, new_id(), int(time.time()), steps) | changed
    return server.client.post(f"/v1/traces/{trace}/steps", headers=headers)


def refused(answer: httpx.Response, status: int) -> str:
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    return str(answer.json()["detail"])


def now() -> int:
    return time.time_ns() // 1000


def test_the_root_is_what_the_client_measured(server: Server) -> None:
    before = now() - 60 * _SECOND
    origin = asked(server)
    took = now() - before
    told = f"agent={before}:{took},sample={new_id()}:0:{59 * _SECOND},send={origin.parent}:{59 * _SECOND}"
    answer = report(server, origin.trace, f"{told}:{took - 59 * _SECOND}")
    assert (answer.status_code, answer.content) == (204, b"")
    found = requests_of(server, origin.trace, 2)
    steps = tree_of(found)
    assert [step.span.name for step in steps[:4]] == ["agent", "sample", "send", "GET /v1/merge"]
    assert [step.depth for step in steps[:4]] == [0, 1, 1, 2]
    assert steps[0].nanos == took * 1000
    check_times([step.span for step in steps])
    assert {each.service for each in found} == {"shop"}
    listed = [each.name for each in TraceReader(server.data / FILE).summaries(TraceQuery(limit=1000))]
    assert {*listed} <= {"GET /v1/merge", "GET /healthz"}
    requests = [*TraceReader(server.data / FILE).traces(TraceQuery(limit=1000))]
    stacks = Profile.FromString(profile_of_traces(each for each in requests if each.trace == origin.trace))
    assert max(len(sample.location_id) for sample in stacks.sample) >= 4


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_somewhat_off_is_put_right(tmp_path: Path, hours: int) -> None:
    with tracing(tmp_path, {TRACE_WINDOW: "7200"}) as server:
        origin, took = asked(server), 90 * _SECOND
        begun = now() + hours * 3600 * _SECOND
        told = f"fetch={begun}:{took},ask={origin.parent}:0:{took}"
        assert report(server, origin.trace, told).status_code == 204
        steps = tree_of(requests_of(server, origin.trace, 2))
        assert [step.span.name for step in steps[:3]] == ["fetch", "ask", "GET /v1/merge"]
        assert steps[0].nanos == took * 1000
        check_times([step.span for step in steps])


def test_what_is_not_well_formed_or_too_much_is_refused_by_name(server: Server) -> None:
    origin = asked(server)
    send, start = f",send={origin.parent}:0:9", now()
    many = "".join(f",wait={new_id()}:0:1" for _ in range(3))
    for steps, said in {
        "": "begins with agent=",
        f"<script>={start}:1": "begins with agent=",
        f"agent={start}:-1{send}": "begins with agent=",
        f"agent={'9' * 17}:1{send}": "begins with agent=",
        f"agent={start}:9,<script>={origin.parent}:0:9": "a step is",
        f"agent={start}:9,send={origin.parent}:0:9:9": "a step is",
        f"agent={start}:9,send=1:0:9": "a step is",
        f"agent={start}:9,": "a step is",
        f"agent={start}:8{send}": "ends after the whole",
        f"agent={start}:{3601 * _SECOND}{send}": "more than 3600 s",
        f"agent={start}:9{send}{many}": "more than 3 steps",
        f"agent={start}:9{send}" + "x" * 4000: "more than 3 steps",
        f"agent={start - 3000 * _SECOND}:9{send}": "from ours",
        f"agent=0:9{send}": "from ours",
        f"agent={'9' * 16}:9{send}": "from ours",
    }.items():
        assert said in refused(report(server, origin.trace, steps), 400), steps
    assert "another trace" in refused(
        server.client.post(
            f"/v1/traces/{'a' * 32}/steps",
            headers=sign(KEY.encode(), origin.trace, new_id(), int(time.time()), f"agent={start}:9{send}"),
        ),
        400,
    )
    assert report(server, origin.trace, f"agent={start}:9{send}").status_code == 204


def test_only_who_signed_the_requests_reports_and_once(server: Server) -> None:
    before = counted(server, "traced_requests_total", outcome="reported")
    origin, osprofiler = asked(server), new_origin()
    told = f"agent={now()}:9,send={{}}:0:9"
    good = told.format(origin.parent)
    theirs = sign_as_osprofiler(KEY.encode(), *uuids_of(*osprofiler))
    assert "PGO-Trace" in server.client.get("/healthz", headers=theirs).headers
    path = f"/v1/traces/{origin.trace}/steps"
    headers = sign(KEY.encode(), origin.trace, new_id(), int(time.time()), good)
    for refusal, answer in {
        "malformed": server.client.post(path, headers=bearer(server.merge_key)),
        "bad signature": report(server, origin.trace, good, "a-key-that-nobody-has-here"),
        "replayed": server.client.post(path, headers=sign(KEY.encode(), *origin, int(time.time()), good)),
        "expired": server.client.post(
            path, headers=sign(KEY.encode(), origin.trace, new_id(), int(time.time()) - 3600, good)
        ),
    }.items():
        assert refusal in refused(answer, 403)
    changed = {"PGO-Trace-Steps": good.replace(":9", ":8")}
    assert "bad signature" in refused(report(server, origin.trace, good, **changed), 403)
    for trace, steps, key in (
        (origin.trace, good, OLD_KEY),  # another key than that of the request
        (origin.trace, told.format(new_id()), KEY),
        (new_origin().trace, good, KEY),
        (osprofiler.trace, told.format(osprofiler.parent), KEY),
        (origin.trace, f"agent={now()}:9", KEY),
    ):
        assert "lately" in refused(report(server, trace, steps, key), 404)
    answers = [server.client.post(path, headers=headers) for _ in range(2)]
    assert answers[0].status_code == 204
    assert "PGO-Trace" not in answers[0].headers
    assert "replayed" in refused(answers[1], 403)
    assert counted(server, "traced_requests_total", outcome="reported") == before + 1
    found = requests_of(server, origin.trace, 2)
    assert sorted(each.is_report for each in found) == [False, True]


def test_a_key_reads_the_reports_of_its_services(tmp_path: Path) -> None:
    server = tracing(tmp_path)
    server.merge_keys.write_text(f"{server.merge_key}\nkey-of-till service=till\nkey-of-shop service=shop\n")
    with server:
        origin = asked(server)
        assert report(server, origin.trace, f"agent={now()}:9,send={origin.parent}:0:9").status_code == 204
        requests_of(server, origin.trace, 2)
        path = f"/v1/traces/{origin.trace}"
        assert server.ask(path, key="key-of-till").status_code == 404
        assert '"send"' in server.ask(path, key="key-of-shop").text


def test_a_report_is_refused_where_nothing_is_traced(tmp_path: Path) -> None:
    origin = new_origin()
    told = f"agent={now()}:9,send={origin.parent}:0:9"
    with Server(tmp_path) as untraced:
        assert "PGOF_TRACE_KEYS_FILE" in refused(report(untraced, origin.trace, told), 404)
