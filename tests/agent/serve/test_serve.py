"""Test the REST API of `pgo-agent serve` with a real agent, real profilers and a busy program."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from pgo_agent.backends import Bcc, backends, choose
from pgo_agent.errors import AgentError

from tests.agent.busy import NAME, build, needs_gcc, running
from tests.agent.forked import run_agent
from tests.agent.sampling import is_bcc, wait_for_cpu_time, wait_until_sampled, working
from tests.agent.scripted_server import Answer, ScriptedServer
from tests.agent.serving import Posting, Serving, parsed

IN_REQUESTS = {"bcc": "BccProfile", "perf": "Perf", "bpftrace": "Bpftrace"}
KEY = "of-the-agent"
_SENDING = ("--url", "http://127.0.0.1:1", "--submit-key-file", "/proc/self/comm", "--service", "x")


@pytest.fixture(scope="module")
def quick(program: subprocess.Popen[bytes]) -> str:
    """Return the request name of a profiler that works here and starts fast; there is something to sample."""
    assert program.poll() is None
    known = backends()
    try:
        return IN_REQUESTS[choose(known[name] for name in ("perf", "bpftrace", "bcc")).name]
    except AgentError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    with running(build(tmp_path_factory.mktemp("busy"))) as process:
        yield process


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    allowed = ("--allow-program", "/usr/bin/perf", "--allow-program", "/bin/false")
    with Serving(tmp_path_factory.mktemp("agent"), "--executable", NAME, *allowed) as agent:
        yield agent


@needs_gcc
@pytest.mark.alike(1)
@pytest.mark.parametrize("name", IN_REQUESTS)
def test_a_profile_by_each_profiler(agent: Serving, program: subprocess.Popen[bytes], name: str) -> None:
    working(backends()[name])
    before, clock = time.time_ns(), time.monotonic_ns()
    response = agent.post(IN_REQUESTS[name], 2, sampling_frequency=99)
    waited = time.monotonic_ns() - clock
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "application/octet-stream"
    assert response.headers["Content-Disposition"] == 'attachment; filename="profile.pb"'
    profile = parsed(response.content)
    assert response.content == profile.SerializeToString()
    text = profile.string_table
    assert [(text[of.type], text[of.unit]) for of in (*profile.sample_type, profile.period_type)] == [
        (b"samples", b"count"),
        (b"cpu", b"nanoseconds"),
        (b"cpu", b"nanoseconds"),
    ]
    assert profile.period == 10**9 // 99
    assert before < profile.time_nanos < time.time_ns()
    assert 2e9 <= profile.duration_nanos < waited
    labels = {text[of.key]: of.num or text[of.str] for sample in profile.sample for of in sample.label}
    assert labels == {b"pid": program.pid, b"thread": program.pid, b"comm": NAME.encode()}
    functions = {text[of.system_name]: of for of in profile.function}
    assert text[functions[b"inner"].filename].endswith(b"busy.c")
    assert functions[b"inner"].start_line > 0
    main = profile.mapping[0]
    assert text[main.filename].endswith(NAME.encode())
    assert len(text[main.build_id]) == 40
    assert main.memory_start < main.memory_limit
    assert all(of.address for of in profile.location)
    assert all(
        main.memory_start <= of.address < main.memory_limit
        for of in profile.location
        if of.mapping_id == main.id
    )


@needs_gcc
def test_an_archive_is_gzipped(agent: Serving, quick: str) -> None:
    response = agent.post(quick, archive=True)
    assert response.headers["Content-Type"] == "application/gzip"
    assert response.headers["Content-Disposition"] == 'attachment; filename="profile.pb.gz"'
    assert response.content.startswith(b"\x1f\x8b")
    assert "Content-Encoding" not in response.headers
    assert parsed(response.content).sample


@needs_gcc
def test_what_is_not_said_has_a_default_and_what_is_unknown_is_ignored(agent: Serving, quick: str) -> None:
    content = json.dumps({"profiler": {quick: None}, "colour": "red"})
    clock = time.monotonic_ns()
    response = agent.client.post(
        "/profile/cpu", content=content, headers={"Content-Type": "application/json; charset=utf-8"}
    )
    profile = parsed(response.content)
    assert profile.period == 10**9 // 100
    assert 5e9 <= profile.duration_nanos < time.monotonic_ns() - clock


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ({}, "profiler"),
        ([], "object"),
        ({"profiler": None}, "profiler"),
        ({"profiler": "Perf"}, "profiler"),
        ({"profiler": {}}, "profiler"),
        ({"profiler": {"Gprof": None}}, "profiler"),
        ({"profiler": {"Perf": None, "BccProfile": None}}, "profiler"),
        ({"profiler": {"Perf": 1}}, "profiler"),
        ({"profiler": {"Perf": {}}}, "profiler"),
        ({"profiler": {"Perf": "/usr/bin/id"}}, "not a program that this agent's settings allow"),
        ({"profiler": {"Perf": "perf"}}, "not a program that this agent's settings allow"),
        ({"sampling_frequency": 0}, "sampling_frequency"),
        ({"sampling_frequency": 1001}, "sampling_frequency"),
        ({"sampling_frequency": "99"}, "sampling_frequency"),
        ({"sampling_frequency": 99.0}, "sampling_frequency"),
        ({"sampling_frequency": True}, "sampling_frequency"),
        ({"sampling_frequency": None}, "sampling_frequency"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": 61}, "timeout_seconds"),
        ({"timeout_seconds": -1}, "timeout_seconds"),
        ({"timeout_seconds": []}, "timeout_seconds"),
        ({"archive": 1}, "archive"),
        ({"archive": None}, "archive"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_422(agent: Serving, body: object, about: str) -> None:
    if isinstance(body, dict) and body and "profiler" not in body:
        body = {"profiler": {"Perf": None}, **body}
    response = agent.client.post("/profile/cpu", json=body)
    assert response.status_code == 422
    assert about in response.json()


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 20_000, "application/json", 400),
        (b" " * 70_000, "application/json", 413),
        (b"{}", "text/plain", 415),
        (b"{}", None, 415),
        (b"{", "application/x-www-form-urlencoded", 415),
    ],
)
def test_what_is_not_json_is_refused(agent: Serving, content: bytes, kind: str | None, status: int) -> None:
    headers = {"Content-Type": kind} if kind else {}
    response = agent.client.post("/profile/cpu", content=content, headers=headers)
    assert response.status_code == status
    assert isinstance(response.json(), str)


def test_other_paths_and_methods_are_not_there(agent: Serving) -> None:
    assert agent.client.get("/profile").status_code == 404
    response = agent.client.put("/profile/cpu")
    assert response.status_code == 405
    assert isinstance(response.json(), str)


@needs_gcc
@pytest.mark.alike(1)
@pytest.mark.parametrize("name", IN_REQUESTS)
@pytest.mark.usefixtures("program")
def test_while_one_runs_another_is_409_and_delete_ends_it(agent: Serving, name: str) -> None:
    """The fixture and `Posting` send GET before, during and after.

    DELETE comes while the profiler starts: bcc is still compiling.
    """
    working(backends()[name])
    posting = Posting(agent, IN_REQUESTS[name], 60)
    for profiler in IN_REQUESTS.values():
        second = agent.post(profiler)
        assert (second.status_code, second.json()) == (409, "Profiling is already in progress.")
    ended = agent.client.delete("/profile/cpu")
    assert (ended.status_code, ended.json()) == (200, "Profiling stopped successfully.")
    # A bcc of another test is still there, for the next profile.
    assert (agent.every_child() if name == "bcc" else agent.children()) == []
    assert not agent.is_busy()
    response = posting.response()
    assert (response.status_code, response.content) == (204, b"")
    assert agent.post(IN_REQUESTS[name]).status_code == 200


def test_without_one_there_is_nothing_to_delete(agent: Serving) -> None:
    response = agent.client.delete("/profile/cpu")
    assert response.status_code == 412
    assert response.json() == "Profiling is not in progress, there is nothing to stop."


@needs_gcc
@pytest.mark.parametrize("asked", ["POST", "DELETE"])
def test_what_was_sampled_until_delete_is_there_if_wanted(
    agent: Serving, program: subprocess.Popen[bytes], quick: str, asked: str
) -> None:
    path = agent.client.base_url.copy_with(path="/profile/cpu")
    wanted = path.copy_with(params={"partial": "true"})
    answered: list[httpx.Response] = []

    def post() -> None:
        body = {"profiler": {quick: None}, "timeout_seconds": 60}
        answered.append(agent.client.post(wanted if asked == "POST" else path, json=body))

    thread = threading.Thread(target=post)
    thread.start()
    wait_until_sampled(agent.process.pid, program.pid)
    assert agent.client.delete(wanted if asked == "DELETE" else path).status_code == 200
    thread.join()
    (response,) = answered
    assert response.status_code == 200
    profile = parsed(response.content)
    assert profile.sample
    assert 0 < profile.duration_nanos < 60e9


@needs_gcc
def test_a_client_that_goes_away_ends_it(agent: Serving, quick: str) -> None:
    body = json.dumps({"profiler": {quick: None}, "timeout_seconds": 60}).encode()
    head = "POST /profile/cpu HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    length = f"Content-Length: {len(body)}\r\n\r\n"
    address = urlsplit(agent.url)
    with socket.create_connection((address.hostname or "", address.port or 0)) as client:
        client.sendall((head + length).encode() + body)
        agent.wait_until_busy()
    agent.wait_until_idle()
    assert agent.children() == []
    assert agent.post(quick).status_code == 200


def test_a_profiler_that_fails_is_500_with_its_reason(agent: Serving) -> None:
    response = agent.post({"Perf": "/bin/false"})
    assert response.status_code == 500
    assert response.json().startswith("Failed to generate pprof data: perf: ")


@pytest.mark.system("gcc", "perf")
@pytest.mark.usefixtures("program")
def test_a_program_that_is_allowed_is_run(agent: Serving) -> None:
    response = agent.post({"Perf": "/usr/bin/perf"})
    assert response.status_code == 200, response.text


@needs_gcc
def test_no_sample_is_500_with_what_to_look_for(tmp_path: Path, quick: str) -> None:
    with Serving(tmp_path, "--executable", "no-such-program") as agent:
        response = agent.post(quick)
    assert response.status_code == 500
    assert response.json() == (
        "Failed to generate pprof data: no samples: no process named no-such-program runs, "
        "or none took any CPU time"
    )


@needs_gcc
def test_a_signal_ends_the_agent_and_what_it_runs(
    tmp_path: Path, program: subprocess.Popen[bytes], quick: str
) -> None:
    assert program.poll() is None
    with Serving(tmp_path, "--executable", NAME) as agent:
        posting = Posting(agent, quick, 60)
        children = agent.children()
        assert agent.stop() == 0
        assert posting.response().status_code == 204
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def scheduled(
    tmp_path: Path, server: ScriptedServer, profiler: str, *, executable: str = NAME, seconds: int = 3600
) -> Serving:
    """Return an agent that begins a profile at once, for this server, without a spool."""
    (tmp_path / "key").write_text(KEY)
    sending = ("--url", server.url, "--submit-key-file", tmp_path / "key", "--service", "shop")
    times = ("--every", "3600", "--duration", str(seconds), "--jitter", "0.001")
    return Serving(tmp_path, "--executable", executable, "--profiler", profiler, *sending, *times)


@needs_gcc
@pytest.mark.alike(1)
@pytest.mark.parametrize(
    ("name", "ending"), [("perf", signal.SIGTERM), ("perf", signal.SIGINT), ("bcc", signal.SIGTERM)]
)
def test_a_scheduled_profile_that_a_signal_cuts_short_is_sent(
    tmp_path: Path,
    program: subprocess.Popen[bytes],
    server: ScriptedServer,
    name: str,
    ending: signal.Signals,
) -> None:
    working(backends()[name])
    with scheduled(tmp_path, server, name) as agent:
        # The agent also tries out its profiler, for a second, before the profile.
        agent.wait_until_logged(f"sampling: profiler={name} seconds=3600")
        wait_for_cpu_time(program.pid, 1)
        assert server.seen == []
        assert agent.stop(ending) == 0, agent.log
    (seen,) = server.seen
    profile = parsed(seen.profile)
    assert b"inner" in profile.string_table
    assert 0 < profile.duration_nanos < 3600e9
    assert "Traceback" not in agent.log


@needs_gcc
def test_with_bcc_requests_take_profiles_while_a_scheduled_one_runs(
    tmp_path: Path, program: subprocess.Popen[bytes], server: ScriptedServer
) -> None:
    """They share what was compiled once."""
    working(Bcc())
    with scheduled(tmp_path, server, "bcc") as agent:
        agent.wait_until_logged("sampling: profiler=bcc seconds=3600")
        compiled = [*filter(is_bcc, agent.children())]
        assert compiled
        for frequency in (99, 499):
            response = agent.post("BccProfile", 1, sampling_frequency=frequency)
            assert response.status_code == 200, response.text
            assert b"inner" in parsed(response.content).string_table
        assert [*filter(is_bcc, agent.children())] == compiled
        assert not agent.is_busy()
        wait_for_cpu_time(program.pid, 1)
        assert agent.stop() == 0, agent.log
    (seen,) = server.seen
    assert b"inner" in parsed(seen.profile).string_table


@needs_gcc
@pytest.mark.parametrize("moment", ["listening", "seconds=1", "seconds=3600"])
def test_a_signal_before_a_scheduled_profile_has_a_sample_sends_nothing(
    tmp_path: Path, server: ScriptedServer, quick: str, moment: str
) -> None:
    """No process has the name that is sampled, so there never is a sample."""
    known = {asked: name for name, asked in IN_REQUESTS.items()}
    with scheduled(tmp_path, server, known[quick], executable="no-such-program") as agent:
        agent.wait_until_logged(moment)
        children = agent.children()
        assert agent.stop() == 0, agent.log
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert server.seen == []
    assert "Traceback" not in agent.log


@needs_gcc
def test_a_profile_that_is_being_sent_when_a_signal_comes_arrives_once(
    tmp_path: Path, program: subprocess.Popen[bytes], server: ScriptedServer, quick: str
) -> None:
    assert program.poll() is None
    known = {asked: name for name, asked in IN_REQUESTS.items()}
    is_stopping = threading.Event()
    server.answers = [Answer(204, until=is_stopping)]
    with scheduled(tmp_path, server, known[quick], seconds=2) as agent:
        agent.wait_until(lambda: bool(server.seen))
        agent.process.terminate()
        agent.wait_until(lambda: "Shutting down" in agent.log)
        is_stopping.set()
        assert agent.process.wait(120) == 0, agent.log
    assert [seen.answer for seen in server.seen] == [204]
    assert "dropped" not in agent.log


def test_nobody_gets_in_without_the_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    with Serving(tmp_path, "--key-file", tmp_path / "key") as agent:
        for method in ("GET", "POST", "DELETE"):
            for given in ("", "Bearer", f"Bearer {KEY}x", f"Basic {KEY}", KEY):
                response = agent.client.request(method, "/profile/cpu", headers={"Authorization": given})
                assert response.status_code == 401
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert isinstance(response.json(), str)
        agent.client.headers["Authorization"] = f"Bearer {KEY}"
        assert not agent.is_busy()
        assert KEY not in agent.log


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--bind", "0.0.0.0:0"], "needs a key: --key-file"),
        (["--bind", ":0"], "needs a key: --key-file"),
        (["--bind", "[::]:0"], "needs a key: --key-file"),
        (["--bind", "127.0.0.1"], "not host:port"),
        (["--bind", "127.0.0.1:0", "--key-file", os.devnull], "the first line is empty"),
        (["--url", "http://127.0.0.1:1"], "--url needs --submit-key-file"),
        (["--allow-host", "http://node7:3080"], "is not a host's name: without scheme, port and path"),
        (["--executable", "longer-than-15-bytes"], "not the name of a process"),
        (["--frequency", "1001"], "1 to 1000"),
        ([*_SENDING, "--spool", "/proc/version/spool"], "a file is in the way, and the spool is a folder"),
    ],
    ids=" ".join,
)
def test_it_does_not_start_where_it_cannot_do_as_told(arguments: list[str], reason: str) -> None:
    done = run_agent(["serve", "--bind", "127.0.0.1:0", *arguments])
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_it_listens_beyond_loopback_with_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    with Serving(tmp_path, "--bind", "0.0.0.0:0", "--key-file", tmp_path / "key") as agent:
        port = urlsplit(agent.url).port
        assert agent.client.get(f"http://127.0.0.1:{port}/profile/cpu").status_code == 401
        agent.process.send_signal(signal.SIGINT)
        assert agent.process.wait(120) == 0


def test_a_page_that_points_its_own_name_at_this_machine_gets_nothing(tmp_path: Path) -> None:
    with Serving(tmp_path, "--bind", "localhost:0", "--allow-host", "Node7.example.") as agent:
        port = urlsplit(agent.url).port
        for known in (
            *("localhost", "LOCALHOST.", f"localhost:{port}", "127.0.0.1", f"127.0.0.1.:{port}", "10.0.0.9"),
            *("[::1]", f"[::1]:{port}", "[fe80::1%25eth0]:3080", "node7.example", f"NODE7.Example.:{port}"),
        ):
            assert agent.client.get("/latency", headers={"Host": known}).status_code == 200, known
        for other in (
            *("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example"),
            *(
                "node7.example.evil",
                "x@localhost",
                "localhost@evil.example:80",
                "[evil.example]",
                "[::1",
                "::1",
            ),
            *("localhost:80:80", "localhost:http", "node7.example..", "127.1", "localhost,evil.example"),
        ):
            for method, path in (("GET", "/latency"), ("POST", "/profile/cpu"), ("GET", "/nothing/here")):
                answer = agent.client.request(method, path, headers={"Host": other})
                assert answer.status_code == 421, (other, path)
                assert f"not known as {other!r}" in answer.json()
                assert "--allow-host" in answer.json()
        for bare, status in (("1.0", b"200"), ("1.0\r\nHost: evil.example", b"421")):
            with socket.create_connection(("127.0.0.1", port or 0), 20) as probe:
                probe.sendall(f"GET /latency HTTP/{bare}\r\n\r\n".encode())
                assert probe.recv(1 << 16).split(None, 2)[1] == status
