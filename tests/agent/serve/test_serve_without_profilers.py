"""`pgo-agent serve` over HTTP and with its schedules, with stand-ins for perf and bpftrace."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.agent.latency.waiting import MS, samples_of
from tests.agent.scripted_server import KEY, Answer, ScriptedServer, problem
from tests.agent.serving import Posting, Serving, parsed
from tests.agent.stand_ins.tools import use_stand_ins

URL = "/latency/offcpu"


@pytest.fixture(scope="module", autouse=True)
def _stand_ins() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_stand_ins(patch)
        yield


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("agent"), "--executable", "json") as agent:
        yield agent


@pytest.mark.parametrize("archive", [False, True])
def test_a_profile_is_answered_bare_or_as_an_archive(agent: Serving, archive: bool) -> None:
    response = agent.post("Perf", 1, archive=archive)
    assert response.status_code == 200, response.text
    name, kind = ("profile.pb.gz", "gzip") if archive else ("profile.pb", "octet-stream")
    assert response.headers["Content-Disposition"] == f'attachment; filename="{name}"'
    assert response.headers["Content-Type"] == f"application/{kind}"
    assert response.content.startswith(b"\x1f\x8b") == archive
    profile = parsed(response.content)
    assert sum(sample.value[0] for sample in profile.sample) == 3
    assert b"sell()" in profile.string_table


def test_while_one_runs_another_is_409_and_delete_ends_it(agent: Serving) -> None:
    posting = Posting(agent, "Perf", 60)
    second = agent.post("Bpftrace")
    assert (second.status_code, second.json()) == (409, "Profiling is already in progress.")
    ended = agent.client.delete("/profile/cpu")
    assert (ended.status_code, ended.json()) == (200, "Profiling stopped successfully.")
    assert agent.children() == []
    response = posting.response()
    assert (response.status_code, response.content) == (204, b"")


def test_what_was_sampled_until_delete_is_answered_if_wanted(agent: Serving) -> None:
    begun = agent.log.count(SAMPLING)
    posting = Posting(agent, "Perf", 60)
    agent.wait_until(lambda: agent.log.count(SAMPLING) > begun)
    assert agent.client.delete("/profile/cpu?partial=true").status_code == 200
    profile = parsed(posting.response().content)
    assert profile.sample
    assert 0 <= profile.duration_nanos < 60e9


def test_a_client_that_goes_away_ends_it(agent: Serving) -> None:
    body = json.dumps({"profiler": {"Perf": None}, "timeout_seconds": 60}).encode()
    head = "POST /profile/cpu HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    address = urlsplit(agent.url)
    with socket.create_connection((address.hostname or "", address.port or 0)) as client:
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        agent.wait_until_busy()
    agent.wait_until_idle()


def test_a_signal_ends_the_agent_and_what_it_runs(tmp_path: Path) -> None:
    with Serving(tmp_path, "--executable", "json") as agent:
        posting = Posting(agent, "Perf", 60)
        children = agent.children()
        assert agent.stop() == 0
        assert posting.response().status_code == 204
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


SAMPLING = "sampling: profiler=perf seconds="


def scheduled(folder: Path, server: ScriptedServer, *arguments: str, executable: str = "json") -> Serving:
    """Return an agent that submits a profile at once, for which it has first tried out perf for a moment."""
    (folder / "key").write_text(KEY)
    sending = ("--url", server.url, "--submit-key-file", folder / "key", "--service", "shop")
    sampling = ("--executable", executable, "--profiler", "perf", "--jitter", "0.001")
    constants = {"pgo_agent.backends.process_sampler._PROBE_SECONDS": 0.2}
    return Serving(folder, *sending, *sampling, *arguments, constants=constants)


def sent(server: ScriptedServer, type_: str) -> list[bytes]:
    """Return the profiles of a type that were submitted."""
    asked = [(seen, parse_qs(urlsplit(seen.path).query)) for seen in [*server.seen]]
    assert {query["service"][0] for _, query in asked} <= {"shop"}
    return [seen.profile for seen, query in asked if query.get("type", ["cpu"]) == [type_]]


def test_profiles_of_a_schedule_and_of_trackers_are_sent(tmp_path: Path, server: ScriptedServer) -> None:
    """A tracker that a request stops starts again; at the end, what was recorded so far is sent."""
    tracking = ("--latency", "offcpu", "--latency-every", "0.5", "--latency-backend", "bpftrace")
    with scheduled(tmp_path, server, "--duration", "0.5", *tracking) as agent:
        agent.wait_until(lambda: sent(server, "cpu") and len(sent(server, "offcpu")) > 1)
        assert agent.client.delete(URL).status_code == 200
        agent.wait_until(lambda: agent.client.get(URL).json()["running"])
        agent.wait_until_logged("tracker failed: tracker=offcpu")
        assert agent.stop() == 0, agent.log
        assert "Traceback" not in agent.log
    assert b"sell()" in parsed(sent(server, "cpu")[0]).string_table
    waits = [one for profile in sent(server, "offcpu") for one in samples_of(gzip.compress(profile))]
    assert {one.delay // one.events for one in waits if one.labels.get("comm") == "shop"} == {7 * MS}
    assert ["sell()", "main"] in [one.functions for one in waits]


def test_a_scheduled_profile_that_a_signal_cuts_short_is_sent(tmp_path: Path, server: ScriptedServer) -> None:
    with scheduled(tmp_path, server, "--duration", "3600") as agent:
        agent.wait_until_logged("sampling: profiler=perf seconds=3600")
        assert server.seen == []
        assert agent.stop() == 0, agent.log
    (profile,) = sent(server, "cpu")
    assert b"sell()" in parsed(profile).string_table


def test_with_a_spool_the_last_profiles_are_sent_too_and_what_is_sent_is_logged(
    tmp_path: Path, server: ScriptedServer
) -> None:
    tracking = ("--latency", "offcpu", "--latency-every", "3600", "--latency-backend", "bpftrace")
    spool = ("--spool", str(tmp_path / "spool"))
    with scheduled(tmp_path, server, "--duration", "3600", *tracking, *spool) as agent:
        agent.wait_until_logged("sampling: profiler=perf seconds=3600")
        agent.wait_until(lambda: agent.client.get(URL).json()["counts"]["seen"])
        assert agent.stop() == 0, agent.log
    for type_ in ("cpu", "offcpu"):
        assert len(sent(server, type_)) == 1
        assert f"profile sent: type={type_} service=shop bytes=" in agent.log
    assert "profiles kept" not in agent.log


def test_profiles_that_can_not_be_sent_at_the_end_are_told_of(tmp_path: Path, server: ScriptedServer) -> None:
    server.then = problem(503, "the catalog is gone")
    spool = tmp_path / "spool"
    with scheduled(tmp_path, server, "--duration", "3600", "--spool", str(spool)) as agent:
        agent.wait_until_logged("sampling: profiler=perf seconds=3600")
        assert agent.stop() == 0, agent.log
    assert "profiles kept: count=1" in agent.log
    assert len([*spool.glob("*.profile")]) == 1


def test_a_key_that_is_refused_is_loud_and_counted_and_loses_nothing(
    tmp_path: Path, server: ScriptedServer
) -> None:
    server.then = problem(403, "there is no such key")
    tracking = ("--latency", "offcpu", "--latency-every", "0.5", "--latency-backend", "bpftrace")
    spool = ("--spool", str(tmp_path / "spool"))
    with scheduled(tmp_path, server, "--duration", "0.5", *tracking, *spool) as agent:
        agent.wait_until_logged("key refused: service=shop")
        metrics = agent.client.get("/metrics").text
        assert "\npgo_agent_key_refused_total 0" not in metrics
        assert 'pgo_agent_profiles_total{outcome="refused"} 0' in metrics
        server.then = Answer(204)
        agent.wait_until(lambda: '{outcome="sent"} 0' not in agent.client.get("/metrics").text)
        assert agent.stop() == 0, agent.log


@pytest.mark.parametrize("moment", ["listening", "seconds=0.2", "seconds=3600"])
def test_a_signal_before_a_scheduled_profile_has_a_sample_sends_nothing(
    tmp_path: Path, server: ScriptedServer, moment: str
) -> None:
    with scheduled(tmp_path, server, "--duration", "3600", executable="no-such-program") as agent:
        agent.wait_until_logged(moment)
        assert agent.stop() == 0, agent.log
        assert "Traceback" not in agent.log
    assert server.seen == []


def test_a_scheduled_profile_waits_for_one_that_a_request_takes(
    tmp_path: Path, server: ScriptedServer
) -> None:
    with scheduled(tmp_path, server, "--duration", "0.2", "--every", "1.5") as agent:
        agent.wait_until(lambda: sent(server, "cpu") and not agent.is_busy())
        posting = Posting(agent, "Perf", 60)
        before = len(sent(server, "cpu"))
        time.sleep(1.6)
        assert len(sent(server, "cpu")) == before
        assert agent.client.delete("/profile/cpu").status_code == 200
        assert posting.response().status_code == 204
        agent.wait_until(lambda: len(sent(server, "cpu")) > before)
        assert agent.stop() == 0, agent.log


def test_a_tracker_by_bpftrace_tells_its_events_and_what_it_can_not_do(tmp_path: Path) -> None:
    with Serving(tmp_path, "--latency-backend", "bpftrace") as agent:
        client = agent.client
        assert client.put("/latency/cpu", json={}).status_code == 404
        refused = client.put(URL, json={"timeout": "1s"})
        assert (refused.status_code, "leave out timeout" in refused.json()) == (501, True)
        assert client.put(URL, json={"executables": ["no-such-program"], "events": 1000}).status_code == 201
        assert client.patch(URL, json={"threshold": "5ms"}).status_code == 501
        assert client.get(f"{URL}/in-flight").status_code == 501
        with client.stream("GET", f"{URL}/events") as stream:
            assert stream.headers["Content-Type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert [next(lines), next(lines), next(lines)] == [": the stream begins", "", "event: event"]
            event = json.loads(next(lines).removeprefix("data: "))
        assert (event["comm"], event["delay_ns"], event["skipped"]) == ("shop", 7 * MS, 0)
        assert (event["operation"], event["functions"]) == ("blocked", ["sell()", "main"])
        profile = samples_of(client.get(f"{URL}/profile?seconds=1").content)
        assert ["sell()", "main"] in [one.functions for one in profile]
        assert client.get(URL).json()["backend"] == "bpftrace"
        assert agent.stop() == 0
        assert agent.children() == []
