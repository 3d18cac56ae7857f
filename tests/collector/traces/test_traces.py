"""Traces of requests to a real collector: who is traced, what a trace has, and what can't hurt a submit."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from wsgiref.util import setup_testing_defaults

import httpx
import pytest
from pgo_collector.command.cli import main
from pgo_collector.errors import TracesUnreadable
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.signing import new_origin, sign_as_osprofiler, uuids_of
from pgo_collector.traces.trace_store import FILE, TraceQuery, TraceReader

from tests.collector.tracing import (
    KEY,
    OLD_KEY,
    check_times,
    counted,
    kept,
    signed,
    tracing,
    wait_until_counted,
)
from tests.collector.webhooks import SECRET, send, started
from tests.constants import TRACE_SPANS
from tests.faults.mounts import small_disk
from tests.faults.stacks import profile_of
from tests.receiver import Receiver
from tests.server import Server, bearer

_CLIENTS = 32


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a collector that traces signed requests."""
    with tracing(tmp_path_factory.mktemp("traced")) as running:
        yield running


def submit(server: Server, content: bytes, headers: dict[str, str], service: str = "shop") -> httpx.Response:
    query = {"service": service}
    return server.client.post(
        "/v1/submit", content=content, params=query, headers=bearer(server.submit_key) | headers
    )


def test_a_signed_submit_is_one_tree_with_every_step(server: Server) -> None:
    trace, headers = signed()
    begin = time.monotonic_ns()
    answer = submit(server, profile_of("submitted"), headers, "first")
    assert (answer.status_code, answer.headers["PGO-Trace"]) == (204, trace)
    request = kept(server, trace)
    seen = time.monotonic_ns() - begin  # the server ends the trace after the client has its answer
    root, *steps = request.spans
    assert (root.name, request.service, request.status) == ("POST /v1/submit", "first", 204)
    assert root.parent == headers["traceparent"].split("-")[2]
    assert root.end - root.start <= seen
    ids = {span.id for span in request.spans}
    assert {span.parent for span in steps} <= ids
    names = {span.name for span in steps}
    assert names >= {"key check", "body", "validate", "batch", "validate_bodies", "queue"}
    assert names >= {
        "read bodies",
        "inflate",
        "decode",
        "check and compress",
        "store",
        "commit",
        "transaction",
    }
    assert names >= {"INSERT", "COMMIT", "answer"}
    assert names >= {"write blob", "make folder", "fsync folder"} or "put blobs" in names
    check_times(request.spans)


def test_a_signed_merge_has_the_steps_of_the_engine(server: Server) -> None:
    for name in ("a", "b"):
        submit(server, profile_of(name), {}, "merged")
    server.forget_decoded()
    reading = {"inflate", "decode", "intern"}
    for format_, steps in (("", {*reading, "sum", "encode"}), ("folded", {"sum", "convert to folded"})):
        trace, headers = signed()
        query = {"service": "merged"} | ({"format": format_} if format_ else {})
        assert server.merge(query=query, **headers).status_code == 200
        spans = kept(server, trace).spans
        names = {span.name for span in spans}
        assert names >= {"resolve", "SELECT", "merge_blobs", "read blobs", "keep", *steps}
        check_times(spans)


def test_no_value_that_a_client_sent_is_in_a_trace(server: Server) -> None:
    trace, headers = signed()
    answer = server.client.post(
        "/v1/submit",
        content=profile_of("v"),
        params={"labels": "customer=verysecret"},
        headers=bearer(server.submit_key) | headers,
    )
    assert answer.status_code == 204
    said = repr(kept(server, trace))
    assert "verysecret" not in said
    assert server.submit_key not in said
    assert KEY not in said


def test_who_proves_no_key_is_served_and_not_traced(server: Server) -> None:
    _, good = signed()
    assert server.merge(query={"service": "none"}, **good).status_code == 404  # uses it up
    _, forged = signed("a-key-that-nobody-has-here")
    _, expired = signed(seconds=time.time() - 3600)
    _, early = signed(seconds=time.time() + 3600)
    cases = {
        "bad_signature": [forged, {**good, "traceparent": good["traceparent"][:-2] + "00"}],
        "expired": [expired, early],
        "replayed": [good],
        "malformed": [
            {**good, "PGO-Trace-Signature": "é"},
            {"PGO-Trace-Signature": good["PGO-Trace-Signature"]},
            {"X-Trace-HMAC": "x" * 40, "X-Trace-Info": "e30="},
        ],
    }
    for outcome, refused in cases.items():
        for headers in refused:
            before = counted(server, "traced_requests_total", outcome=outcome)
            raw = {name.encode(): value.encode("utf-8") for name, value in headers.items()}
            answer = server.client.get("/healthz", headers=raw)
            assert answer.status_code == 200
            assert "PGO-Trace" not in answer.headers
            assert counted(server, "traced_requests_total", outcome=outcome) == before + 1
    # The context of a trace without a signature is common, and says nothing.
    assert (
        "PGO-Trace" not in server.client.get("/healthz", headers={"traceparent": good["traceparent"]}).headers
    )


@pytest.mark.any_store
@pytest.mark.parametrize(
    ("told", "least"),
    [
        ("t={now:.3f}", 0.0),
        ("t={now:.3f}-2.500", 2.4),
        ("t={now:.3f}-599999", None),
        ("t={now:.3f}-", None),
        ("t={now:.3f}--5", None),
        ("t={later:.3f}", None),
        ("t=1-1", None),
        ("t=nan", None),
        ("t=" + "9" * 400, None),
        ("", None),
    ],
)
def test_the_proxy_says_when_it_got_the_request(server: Server, told: str, least: float | None) -> None:
    trace, headers = signed()
    now = time.time()
    headers["X-Request-Start"] = told.format(now=now, later=now + 3600)
    assert "PGO-Trace" in server.client.get("/healthz", headers=headers).headers
    taken = [span.end - span.start for span in kept(server, trace).spans if span.name == "proxy"]
    assert len(taken) == (least is not None)
    assert least is None or taken[0] >= least * 1e9


@pytest.fixture
def osprofiler() -> ModuleType:
    """Return OSProfiler, whose import takes longer than that of all else here."""
    for part in ("osprofiler.profiler", "osprofiler.web"):
        import_module(part)
    return import_module("osprofiler")


@pytest.mark.any_store
def test_headers_that_osprofiler_makes_are_accepted(server: Server, osprofiler: ModuleType) -> None:
    osprofiler.profiler.init(KEY)
    try:
        theirs = osprofiler.web.get_trace_id_headers()
        current = osprofiler.profiler.get()
        assert current is not None
        ids = current.get_base_id(), current.get_id()
    finally:
        osprofiler.profiler.clean()
    assert {name: _text(value) for name, value in theirs.items()} == sign_as_osprofiler(KEY.encode(), *ids)
    trace = ids[0].replace("-", "")
    answer = submit(server, profile_of("osprofiler"), theirs)
    assert (answer.status_code, answer.headers["PGO-Trace"]) == (204, trace)
    assert kept(server, trace).spans[0].parent == ids[1].replace("-", "")[16:]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


@pytest.mark.any_store
def test_osprofilers_own_middleware_takes_our_headers(osprofiler: ModuleType) -> None:
    seen = []

    def application(_: object, start: Callable[[str, list[tuple[str, str]]], object]) -> list[bytes]:
        current = osprofiler.profiler.get()
        seen.append(None if current is None else current.get_base_id())
        start("200 OK", [])
        return []

    middleware = osprofiler.web.WsgiMiddleware(application, hmac_keys=KEY, enabled=True)
    origin = new_origin()
    for key in (KEY, OLD_KEY):
        environment: dict[str, object] = {}
        setup_testing_defaults(environment)
        for name, value in sign_as_osprofiler(key.encode(), *uuids_of(*origin)).items():
            environment[f"HTTP_{name.upper().replace('-', '_')}"] = value
        try:
            middleware(environment, lambda *_: None)
        finally:
            osprofiler.profiler.clean()
    assert seen == [uuids_of(*origin)[0], None]


def test_no_trace_has_a_step_of_another_request(server: Server) -> None:
    """300 submits at once, half of them signed: each trace has the steps of one submit, once each."""
    once = ("key check", "body", "validate", "batch", "validate_bodies", "store", "commit", "answer")

    def send(number: int) -> str | None:
        trace, headers = signed() if number % 2 else (None, {})
        content = profile_of(f"at once {number}")
        with httpx.Client(base_url=server.base_url, timeout=120, verify=False) as client:  # noqa: S501 - loopback
            key = bearer(server.submit_key)
            for again in (False, True):  # on one connection, where the server may begin the next one early
                answer = client.post("/v1/submit", content=content, headers=key | ({} if again else headers))
                assert answer.status_code == 204
                assert answer.headers.get("PGO-Trace") == (None if again else trace)
        return trace

    with ThreadPoolExecutor(_CLIENTS) as clients:
        traces = [trace for trace in clients.map(send, range(150)) if trace is not None]
    assert len(traces) == 75
    seen: dict[str, str] = {}
    for trace in traces:
        spans = kept(server, trace).spans
        names = [span.name for span in spans]
        assert [names.count(name) for name in once] == [1] * len(once), names
        assert len({span.id for span in spans}) == len(spans)
        (root,) = (span for span in spans if span.parent not in {each.id for each in spans})
        assert root.name == "POST /v1/submit"
        for span in spans:
            if span.name in {"key check", "body", "validate", "batch", "store", "answer"}:
                assert seen.setdefault(span.id, trace) == trace
        check_times(spans)


def test_a_share_of_unsigned_requests_is_traced(tmp_path: Path) -> None:
    with tracing(tmp_path, {"PGOF_TRACE_RATE": "1", TRACE_SPANS: "3"}) as server:
        answer = submit(server, profile_of("a"), {})
        request = kept(server, answer.headers["PGO-Trace"])
        assert request.spans[0].parent == ""
        assert len(request.spans) <= 4
        assert request.dropped > 0
        assert counted(server, "traced_requests_total", outcome="sampled") >= 1


def test_a_share_of_what_the_server_does_on_its_own_is_traced(tmp_path: Path) -> None:
    """Upkeep and the delivery of events have traces of their own."""
    secret = tmp_path / "webhook_secret"
    secret.write_text(f"{SECRET}\n")
    hooked = {"PGOF_WEBHOOK_SECRET_FILE": str(secret)}
    server = tracing(tmp_path, {"PGOF_TRACE_RATE": "1", "PGOF_ROLLUP_DAYS": "1"} | hooked)
    with Receiver() as receiver:
        started(server, receiver)
        send(server, "a")
        receiver.wait_for(1)
        found: dict[str, RequestTrace] = {}
        deadline = time.monotonic() + 120
        while not found.keys() >= {"upkeep", "deliver events"}:
            assert time.monotonic() < deadline, found.keys()
            time.sleep(0.05)
            with suppress(TracesUnreadable):
                traces = TraceReader(server.data / FILE).traces(TraceQuery(limit=1000))
                found = {trace.spans[0].name: trace for trace in traces}
        server.stop()
    for name, steps in (
        ("upkeep", {"retention", "roll-up", "SELECT"}),
        ("deliver events", {"post event", "COMMIT"}),
    ):
        assert {span.name for span in found[name].spans} >= steps
        check_times(found[name].spans)


@pytest.mark.any_store
def test_keys_rotate_without_a_gap(tmp_path: Path) -> None:
    server = tracing(tmp_path)
    keys = tmp_path / "trace_keys"
    with server:
        for content, works, not_yet_or_no_more in (
            (f"{KEY}\n{OLD_KEY}\n", (KEY, OLD_KEY), ()),
            (f"{OLD_KEY}\n", (OLD_KEY,), (KEY,)),
        ):
            before = len(server.events("trace keys read"))
            keys.write_text(content)
            server.wait_for_log("trace keys read", before + 1)
            for key in works:
                assert "PGO-Trace" in server.client.get("/healthz", headers=signed(key)[1]).headers
            for key in not_yet_or_no_more:
                assert "PGO-Trace" not in server.client.get("/healthz", headers=signed(key)[1]).headers
        keys.write_text("SECRET_KEY\n")
        server.wait_for_log("trace keys malformed")
        assert "PGO-Trace" in server.client.get("/healthz", headers=signed(OLD_KEY)[1]).headers


@pytest.mark.any_store
def test_no_server_starts_with_a_key_that_anyone_knows(tmp_path: Path) -> None:
    server = tracing(tmp_path)
    (tmp_path / "trace_keys").write_text("SECRET_KEY\n")
    refused = server.run("serve")
    assert (refused.returncode, "this key is in documentation" in refused.stderr) == (2, True)
    assert server.run("check").returncode == 1


def break_foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


def break_version(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE requests (number INTEGER)")
        connection.execute("PRAGMA application_id=1346850644")
        connection.execute("PRAGMA user_version=99")
    connection.close()


def break_content(path: Path) -> None:
    path.write_bytes(b"no database at all, but long enough to be looked at " * 100)


def break_folder(path: Path) -> None:
    path.mkdir()


def break_device(path: Path) -> None:
    path.symlink_to("/dev/full")


@pytest.mark.any_store
@pytest.mark.parametrize(
    "break_",
    [
        break_foreign,
        break_content,
        break_device,
        pytest.param(break_version, marks=pytest.mark.exhaustive),
        pytest.param(break_folder, marks=pytest.mark.exhaustive),
    ],
)
def test_a_broken_trace_store_costs_traces_and_no_submit(tmp_path: Path, break_: object) -> None:
    server = tracing(tmp_path)
    server.data.mkdir()
    assert callable(break_)
    break_(server.data / FILE)
    before = None if (server.data / FILE).is_dir() else (server.data / FILE).stat().st_size
    with server:
        for number in range(3):
            assert submit(server, profile_of(f"p{number}"), signed()[1]).status_code == 204
        wait_until_counted(server, "traces_total", 3, outcome="dropped", outlet="store")
        assert len(server.events("traces dropped")) == 1
        assert not server.events("unknown file ignored")
        assert server.client.get("/readyz").status_code == 200
    assert before is None or (server.data / FILE).stat().st_size == before


@pytest.mark.any_store
def test_a_trace_store_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    with tracing(tmp_path) as server:
        kept(server, _traced(server))
        for path in server.data.glob(f"{FILE}*"):
            path.unlink()
        kept(server, _traced(server))
        for path in server.data.glob(f"{FILE}*"):
            path.unlink()
        (server.data / FILE).write_bytes(b"x" * 5000)
        for _ in range(2):
            _traced(server)
        wait_until_counted(server, "traces_total", 2, outcome="dropped", outlet="store")
        for path in server.data.glob(f"{FILE}*"):
            path.unlink()
        kept(server, _traced(server))


@pytest.mark.any_store
def test_a_full_disk_costs_traces_and_no_submit(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        server = tracing(tmp_path / "home")
        server.data.mkdir()
        (server.data / FILE).symlink_to(disk / FILE)
        with server:
            kept(server, _traced(server))
            for number in range(1, 4):
                with (disk / "filler").open("ab", 0) as filler, suppress(OSError):
                    while filler.write(bytes(4096)):
                        pass
                _traced(server)
                wait_until_counted(server, "traces_total", number, outcome="dropped", outlet="store")
            (disk / "filler").unlink()
            kept(server, _traced(server))


def _traced(server: Server) -> str:
    trace, headers = signed()
    assert submit(server, profile_of(trace), headers).status_code == 204
    return trace


@pytest.fixture
def command(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a command with the collector's settings, in this process; return all that it prints."""
    for name, value in server.environment.items():
        if name.startswith("PGOF_"):
            monkeypatch.setenv(name, value)

    def run(*arguments: str, code: int = 0) -> str:
        umask = os.umask(0)
        try:
            assert main([*arguments]) == code
        finally:
            os.umask(umask)
        return "".join(capsys.readouterr())

    return run


@pytest.mark.any_store
def test_the_commands_show_what_is_kept(server: Server, command: Callable[..., str]) -> None:
    trace = _traced(server)
    kept(server, trace)
    trace_404, headers = signed()
    assert server.merge(query={"service": "nobody"}, **headers).status_code == 404
    kept(server, trace_404)
    every = "trace", "list", "--limit", "2000"
    assert f"{trace} " in command(*every, "--service", "shop,other")
    assert trace not in command(*every, "--service", "nobody")
    errors = command(*every, "--errors")
    assert trace_404 in errors
    assert trace not in errors
    times = [float(time) for time in re.findall(r"([\d.]+) ms", command(*every, "--slowest"))]
    assert len(times) > 1
    assert times == sorted(times, reverse=True)
    assert "COMMIT" in command("trace", "show", trace)
    assert json.loads(command("trace", "show", trace, "--json"))["resourceSpans"]
    assert json.loads(command("trace", "show", trace, "--chrome"))["traceEvents"]
    assert command("trace", "show", trace, "--dot").startswith("digraph")
    assert command("trace", "show", trace.upper(), "--html").startswith("<!doctype html>")
    assert "no trace" in command("trace", "show", "0" * 32, code=2)


@pytest.mark.any_store
def test_traces_are_written_as_a_profile_that_a_collector_takes(
    server: Server, command: Callable[..., str], tmp_path: Path
) -> None:
    kept(server, _traced(server))
    file = tmp_path / "traces.pb.gz"
    assert "requests" in command("trace", "profile", str(file), "--days", "1", "--service", "shop")
    query = {"service": "traces", "type": "other"}
    assert server.submit(file.read_bytes(), query=query).status_code == 204
    top = server.ask("/v1/top", service="traces", type="other", n="1000").text
    assert "COMMIT" in top
    assert "no traces" in command("trace", "profile", str(file), "--service", "nobody-at-all", code=2)


@pytest.mark.any_store
@pytest.mark.parametrize("kind", [(), ("--osprofiler",)])
def test_what_the_sign_command_prints_has_a_request_traced(
    server: Server, command: Callable[..., str], kind: tuple[str, ...]
) -> None:
    said = command("trace", "sign", *kind)
    headers = dict(re.findall(r"--header '([^:]+): ([^']+)'", said))
    answer = server.client.get("/healthz", headers=headers)
    assert f"pgo-collector trace show {answer.headers['PGO-Trace']}\n" in said


@pytest.mark.any_store
def test_without_traces_the_commands_say_what_is_missing(tmp_path: Path) -> None:
    server = Server(tmp_path)
    assert "there are no traces" in server.run("trace", "list").stderr
    assert "PGOF_TRACE_KEYS_FILE" in server.run("trace", "sign").stderr
    with server:
        assert "PGO-Trace" not in server.client.get("/healthz", headers=signed()[1]).headers
        assert not (server.data / FILE).exists()
