"""Latency trackers over HTTP: start, change, read and stop them, as a client sees it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.agent.busy import needs_gcc
from tests.agent.latency.waiting import MS, NAME, build, needs_tracker, samples_of, wait_until, waiting
from tests.agent.serving import Serving

URL = "/latency/offcpu"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("agent")) as serving:
        yield serving


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("waits"))


@pytest.fixture
def client(agent: Serving) -> Iterator[httpx.Client]:
    needs_tracker("offcpu")
    yield agent.client
    agent.client.delete(URL)


@needs_gcc
def test_a_tracker_from_start_to_end(agent: Serving, client: httpx.Client, binary: Path) -> None:
    assert client.get(URL).json() == {"tracker": "offcpu", "running": False}
    with waiting(binary, "sleep") as process:
        started = client.put(URL, json={"threshold": "2ms", "executables": [NAME], "events": 5})
        assert started.status_code == 201, started.text
        assert started.json()["settings"]["threshold"] == "2ms"
        assert client.put(URL, json={}).status_code == 409
        assert [one["tracker"] for one in client.get("/latency").json() if one["running"]] == ["offcpu"]
        wait_until(lambda: client.get(URL).json()["counts"]["reported"] > 5)
        state = client.get(URL).json()
        counts, minute = state["counts"], state["minutes"]["1"]
        assert counts["seen"] == counts["reported"] + counts["below"] + counts["dropped"]
        assert minute["count"] == sum(each["count"] for each in minute["buckets"]) == state["all"]["count"]
        assert minute["max_ns"] >= 7 * MS
        assert {*state["minutes"]} == {"1", "5", "15"}
        assert state["hours"][-1]["count"] <= minute["count"]

        profile = client.get(f"{URL}/profile?seconds=2")
        assert profile.headers["Content-Disposition"] == 'attachment; filename="offcpu.pb.gz"'
        found = [one for one in samples_of(profile.content) if "sleep_seven" in one.functions]
        assert sum(one.delay for one in found) >= 7 * MS * sum(one.events for one in found) > 0

        metrics = client.get("/metrics").text
        assert 'pgo_agent_latency_seconds_bucket{tracker="offcpu",le="+Inf"}' in metrics
        assert 'pgo_agent_latency_events_total{tracker="offcpu",outcome="reported"}' in metrics

        with client.stream("GET", f"{URL}/events") as stream:
            assert stream.headers["Content-Type"].startswith("text/event-stream")
            lines = (line for line in stream.iter_lines() if line.startswith("data: "))
            event = json.loads(next(lines).removeprefix("data: "))
            assert event["pid"] == process.pid
            assert event["delay_ns"] >= 2 * MS
            assert "sleep_seven" in event["functions"] or "main" in event["functions"]
            assert json.loads(next(lines).removeprefix("data: "))["skipped"] >= 0

        changed = client.patch(URL, json={"threshold": "1000s"})
        assert (changed.status_code, changed.json()["settings"]["threshold"]) == (200, "1000s")
        assert changed.json()["settings"]["executables"] == [NAME]
        below = client.get(URL).json()["counts"]["below"]
        wait_until(lambda: client.get(URL).json()["counts"]["below"] > below)
        stopped = client.delete(URL)
        assert stopped.status_code == 200
        assert not stopped.json()["running"]
        assert agent.children() == []


@needs_gcc
def test_what_waits_is_listed(client: httpx.Client, binary: Path) -> None:
    with waiting(binary, "storm") as process:  # which waits until it reads a line, and then for good
        assert process.stdin
        settings = {"executables": [NAME], "timeout": "100ms"}
        assert client.put(URL, json=settings).status_code == 201
        assert process.pid not in {one["pid"] for one in client.get(f"{URL}/in-flight").json()}
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_until(lambda: any(one["pid"] == process.pid for one in client.get(f"{URL}/in-flight").json()))
        wait_until(lambda: client.get(f"{URL}/in-flight").json()[0]["delay_ns"] > 100 * MS)
        (found,) = client.get(f"{URL}/in-flight").json()
        assert found["operation"] == "blocked"
        assert "__x64_sys_pause" in found["functions"]


@needs_gcc
def test_a_profile_has_only_what_passes_the_filters_since_it_was_asked_for(
    client: httpx.Client, binary: Path
) -> None:
    """The filters are changed while both programs wait, and the profile begins in the middle of a second."""
    with waiting(binary, "sleep") as one, waiting(binary, "sleep") as other:
        settings = {"threshold": "5ms", "executables": [NAME]}
        assert client.put(URL, json=settings).status_code == 201
        waiting_now = client.get(f"{URL}/in-flight").json()
        assert not any(each["functions"] for each in waiting_now)  # which takes a timeout
        for process in (one, other, one):
            changed = client.patch(URL, json={"executables": [], "pids": [process.pid]})
            assert changed.status_code == 200
            profile = client.get(f"{URL}/profile?seconds=1")
            found = [sample for sample in samples_of(profile.content) if "pid" in sample.labels]
            assert {sample.labels["pid"] for sample in found} == {process.pid}


@pytest.mark.system
@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_what_does_not_run_can_not_be_changed(client: httpx.Client, method: str) -> None:
    refused = client.request(method, URL, json={})
    assert (refused.status_code, refused.json()) == (412, "The tracker offcpu is not running.")
    for path in ("profile", "events", "in-flight"):
        assert client.get(f"{URL}/{path}").status_code == 412


@pytest.mark.system
def test_wrong_requests_are_refused(client: httpx.Client) -> None:
    assert client.put("/latency/cpu", json={}).status_code == 404
    assert client.put(URL, content=b"{}").status_code == 415
    json_type = {"Content-Type": "application/json"}
    assert client.put(URL, content=b"{", headers=json_type).status_code == 400
    assert client.put(URL, json=[]).status_code == 422
    wrong = client.put(URL, json={"threshold": 5})
    assert (wrong.status_code, wrong.json()) == (422, 'threshold must be a duration such as "5ms".')
    assert client.put(URL, json={"cgroups": ["../.."]}).status_code == 422
    assert client.post(URL, json={}).status_code == 405
    assert client.put(URL, json={}).status_code == 201
    assert client.patch(URL, json={"treshold": "1ms"}).status_code == 422
    for seconds in ("0", "-1", "1.5", "3601", "x", "9" * 30):
        assert client.get(f"{URL}/profile", params={"seconds": seconds}).status_code == 422


@pytest.mark.system
def test_a_client_that_goes_away_ends_its_stream(agent: Serving, client: httpx.Client) -> None:
    assert client.put(URL, json={"threshold": "1000s"}).status_code == 201

    def reads() -> bool:
        with client.stream("GET", f"{URL}/events") as stream:
            return stream.status_code == 200 and next(stream.iter_lines()) == ": the stream begins"

    for _ in range(20):  # more than may read at a time
        wait_until(reads)
        with pytest.raises(httpx.TimeoutException):
            client.get(f"{URL}/profile?seconds=3600", timeout=0.1)
    wait_until(lambda: client.get(f"{URL}/profile?seconds=1").status_code == 200)
    assert agent.process.poll() is None


def test_all_need_the_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    with Serving(tmp_path, "--key-file", key) as agent:
        for path in ("/latency", URL, f"{URL}/profile", f"{URL}/events", f"{URL}/in-flight", "/metrics"):
            assert agent.client.get(path).status_code == 401
        for method in ("PUT", "PATCH", "DELETE"):
            assert agent.client.request(method, URL, json={}).status_code == 401
        headers = {"Authorization": "Bearer secret"}
        assert agent.client.get("/latency", headers=headers).status_code == 200


@pytest.mark.system
def test_the_end_of_the_agent_ends_all(tmp_path: Path) -> None:
    with Serving(tmp_path) as agent:
        started = agent.client.put(URL, json={"threshold": "1000s"})
        if started.status_code == 500:
            pytest.skip(started.text)
        (child,) = agent.children()
        ended: list[int] = []

        def read() -> None:
            with httpx.stream("GET", f"{agent.url}{URL}/events", timeout=120) as stream:
                ended.append(stream.status_code)
                for _ in stream.iter_raw():
                    pass

        reader = threading.Thread(target=read)
        reader.start()
        wait_until(lambda: ended)
        agent.process.terminate()
        assert agent.process.wait(60) == 0, agent.log
        reader.join()
        assert not Path(f"/proc/{child}").exists()
