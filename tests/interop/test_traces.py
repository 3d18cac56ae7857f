"""Signed requests of real clients, also behind a real nginx: one tree each, from the proxy to the disk."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx
import pytest
from pgo_agent import Collector, ContinuousProfiler, DiskSpool
from pgo_agent.outbox import Outbox
from pgo_agent.trace import Step
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Span
from pgo_collector.traces.trace_store import FILE, TraceQuery, TraceReader
from pgo_collector.traces.trees import tree_of

from tests.agent.scrape.scraping import Scraping, wait_until
from tests.agent.scrape.target_server import target_server
from tests.agent.scripted_server import Answer, ScriptedServer
from tests.collector.tracing import KEY, check_times, counted, kept, requests_of, signed, tracing
from tests.faults.stacks import profile_of
from tests.interop.nginx_process import running_nginx
from tests.server import Server, bearer

AGENT = Path(sys.executable).with_name("pgo-agent")
FETCH = Path(__file__).parents[2] / "deploy" / "pipeline" / "pgo_fetch.py"


@pytest.mark.system("nginx")
def test_the_tree_begins_at_the_proxy(tmp_path: Path) -> None:
    with (
        tracing(tmp_path / "collector") as server,
        running_nginx(tmp_path, server.base_url, request_buffering=False) as url,
        httpx.Client(base_url=url, timeout=120, verify=False) as client,  # noqa: S501 - loopback
    ):
        for method, path, key, content in (
            ("POST", "/v1/submit", server.submit_key, profile_of("a")),
            ("GET", "/v1/merge", server.merge_key, None),
        ):
            trace, headers = signed()
            began = time.monotonic_ns()
            answer = client.request(method, path, content=content, headers=bearer(key) | headers)
            seen = time.monotonic_ns() - began
            assert answer.status_code in {200, 204}
            assert answer.headers["PGO-Trace"] == trace
            spans = kept(server, trace).spans
            known = {span.id for span in spans}
            (proxy,) = (span for span in spans if span.parent not in known)
            (request,) = (span for span in spans if span.parent == proxy.id)
            assert (proxy.name, request.name) == ("proxy", f"{method} {path}")
            check_times(spans)
            begins = answer_begins(spans)
            assert begins - request.start <= seen
            # nginx's clock has milliseconds, so the proxy's step may begin up to one too early.
            assert begins - proxy.start <= seen + 2_000_000


def answer_begins(spans: Sequence[Span]) -> int:
    """Return when the answer begins, in ns since 1970; the client may have all of it before its step ends."""
    (step,) = (span for span in spans if span.name == "answer")
    return step.start


class Sent(NamedTuple):
    """A submit that was answered: its trace if it was signed, its service and size, and how long it took."""

    trace: str | None
    service: str
    size: int
    nanos: int


def submit(client: httpx.Client, number: int, *, is_signed: bool) -> Sent:
    """Submit a profile of a service and of a size that few others have."""
    trace, headers = signed() if is_signed else (None, {})
    service, content = f"service-{number % 7}", profile_of("f" * (number + 1))
    began = time.monotonic_ns()
    answer = client.post(
        "/v1/submit",
        params={"service": service},
        content=content,
        headers=bearer(Server.submit_key) | headers,
    )
    nanos = time.monotonic_ns() - began
    assert answer.status_code == 204, answer.text
    assert answer.headers.get("PGO-Trace") == trace
    return Sent(trace, service, len(content), nanos)


def check_own(server: Server, sent: Sent) -> int:
    """Check that a trace is one whole tree of its own request; return the ns until its answer began."""
    assert sent.trace is not None
    found = kept(server, sent.trace)
    known = {span.id: span for span in found.spans}
    (proxy,) = (span for span in found.spans if span.parent not in known)
    (request,) = (span for span in found.spans if span.parent == proxy.id)
    assert (proxy.name, request.name, found.service) == ("proxy", "POST /v1/submit", sent.service)
    assert request.attributes["http.request.body.size"] == sent.size
    for name in ("key check", "body", "answer"):
        (step,) = (span for span in found.spans if span.name == name)
        assert step.parent == request.id
    check_times(found.spans)
    taken = answer_begins(found.spans) - request.start
    assert taken <= sent.nanos
    return taken


@pytest.mark.system("nginx")
def test_a_thousand_requests_behind_the_proxy_have_a_tree_each(tmp_path: Path) -> None:
    """Takes over 20 s on a busy machine: a thousand submits, of which every second one is signed."""
    with (
        tracing(tmp_path / "collector") as server,
        running_nginx(tmp_path, server.base_url, request_buffering=False) as url,
        httpx.Client(base_url=url, timeout=300) as client,
        ThreadPoolExecutor(16) as threads,
    ):
        sent = [*threads.map(lambda number: submit(client, number, is_signed=number % 2 == 0), range(1000))]
        traced = [each for each in sent if each.trace is not None]
        assert len({each.trace for each in traced}) == len(traced) == 500
        for each in traced:
            check_own(server, each)
        assert counted(server, "traced_requests_total", outcome="signed") == 500
        assert len(TraceReader(server.data / FILE).summaries(TraceQuery(limit=2000))) == 500


@pytest.mark.system("nginx")
def test_a_request_that_is_slow_on_purpose_is_slow_in_its_trace(tmp_path: Path) -> None:
    """Takes over 10 s: the catalog is locked for so long, which no other step on a busy machine takes."""
    with (
        tracing(tmp_path / "collector") as server,
        running_nginx(tmp_path, server.base_url, request_buffering=False) as url,
        httpx.Client(base_url=url, timeout=300) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        submit(client, 0, is_signed=False)
        with closing(sqlite3.connect(server.data / "catalog.sqlite3", isolation_level=None)) as catalog:
            catalog.execute("BEGIN IMMEDIATE")
            sending = thread.submit(submit, client, 1, is_signed=True)
            time.sleep(10)
        sent = sending.result()
        assert check_own(server, sent) > sent.nanos / 2
        assert sent.trace is not None
        slowest = max(tree_of([kept(server, sent.trace)]), key=lambda step: step.self_nanos)
        assert slowest.span.name == "BEGIN"


def test_the_script_of_pipelines_has_its_request_traced(tmp_path: Path) -> None:
    with tracing(tmp_path / "collector") as server:
        server.submit(profile_of("a"))
        keys = tmp_path / "collector" / "trace_keys"
        url, file = f"{server.base_url}/v1/merge", tmp_path / "fetched.pgo"
        done = subprocess.run(
            [sys.executable, FETCH, "--trace", keys, url, file],
            env=os.environ | {"PGO_KEY": server.merge_key},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        (trace,) = traces_shown(done.stderr)
        assert kept(server, trace).spans[0].name == "GET /v1/merge"


def traces_shown(said: str) -> list[str]:
    """Return the traces that a program has said how to see."""
    return re.findall(r"(?:pgo-collector trace show |profile sent: .* trace=)([0-9a-f]{32})\b", said)


def agent_steps(requests: Sequence[RequestTrace]) -> list[str]:
    """Check that there is one tree, which begins at the agent, and whose times add up; return its steps.

    Each request has to be below a `send`.
    """
    steps = tree_of(requests)
    assert [step.span.name for step in steps if step.parent < 0] == ["agent"]
    check_times([step.span for step in steps])
    submits = [step for step in steps if step.span.name == "POST /v1/submit"]
    assert len(submits) == sum(not request.is_report for request in requests)
    assert {steps[step.parent].span.name for step in submits} == {"send"}
    return [step.span.name for step in steps if step.parent == 0]


def test_what_the_agent_did_before_is_above_its_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        tracing(tmp_path / "collector") as server,
        Collector(server.base_url, server.submit_key, trace_key=KEY) as collector,
        caplog.at_level("INFO", "pgo_agent"),
    ):
        outbox, now = Outbox(collector, DiskSpool(tmp_path / "spool")), time.time_ns() // 1000 * 1000
        outbox.deliver(profile_of("a"), steps=[Step("sample", now - 60 * 10**9, now - 10**9, "5a" * 8)])
        (trace,) = traces_shown(caplog.text)
        found = requests_of(server, trace, 2)
        assert agent_steps(found) == ["sample", "spool", "send"]
        (sample,) = (span for request in found for span in request.spans if span.name == "sample")
        assert sample.end - sample.start == 59 * 10**9
        listed = TraceReader(server.data / FILE).summaries(TraceQuery())
        assert [each.name for each in listed] == ["POST /v1/submit"]


def test_attempts_that_failed_and_waits_are_steps_of_the_agent(tmp_path: Path) -> None:
    """The requests are taken to a real collector later, as by a proxy that has just recovered."""
    scripted = ScriptedServer()
    thread = threading.Thread(target=scripted.serve_forever, daemon=True)
    thread.start()
    with Collector(scripted.url, "a-key", backoff=0.01, trace_key=KEY) as collector:
        assert collector.trace_id is not None
        recorded = {"PGO-Trace": collector.trace_id}
        scripted.answers = [Answer(503), Answer(503, headers=recorded), Answer(204, headers=recorded)]
        nanos = collector.send(collector.upload(profile_of("a")))
    scripted.shutdown()
    scripted.server_close()
    assert len(scripted.seen) == 4
    with tracing(tmp_path / "collector") as server:
        for seen in scripted.seen:
            answer = server.client.post(
                seen.path,
                content=seen.body,
                headers=bearer(server.submit_key)
                | {
                    name: value
                    for name, value in seen.headers.items()
                    if name.startswith(("traceparent", "PGO-"))
                },
            )
            assert answer.status_code == 204, answer.text
        steps = tree_of(requests_of(server, collector.trace_id, 4))
        names = [step.span.name for step in steps if step.span.part == "agent"]
        assert names == ["agent", "send", "wait", "send", "wait", "send"]
        assert steps[0].nanos == nanos


def test_a_client_reports_nothing_that_no_collector_recorded_and_no_report_fails_a_submit() -> None:
    scripted = ScriptedServer()
    thread = threading.Thread(target=scripted.serve_forever, daemon=True)
    thread.start()
    with Collector(scripted.url, "a-key", trace_key=KEY, report=0.2) as collector:
        collector.submit(profile_of("a"))
        assert len(scripted.seen) == 1
        recorded = {"PGO-Trace": str(collector.trace_id)}
        for number, answer in enumerate((Answer(500), Answer(404), Answer(200, body=b"x" * 100_000)), 1):
            scripted.answers = [Answer(204, headers=recorded), answer]
            collector.submit(profile_of("a"))
            anyio.run(collector.submit_async, profile_of("b"))
            assert len(scripted.seen) == 1 + 3 * number
    scripted.shutdown()
    scripted.server_close()


def test_a_profile_of_the_program_itself_has_its_sampling_in_the_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        tracing(tmp_path / "collector") as server,
        Collector(server.base_url, server.submit_key, trace_key=KEY) as collector,
        caplog.at_level("INFO", "pgo_agent"),
    ):
        profiler = ContinuousProfiler(
            collector, spool=DiskSpool(tmp_path / "spool"), every=1e6, duration=0.2, jitter=0
        )
        with profiler:
            wait_until(lambda: profiler.outbox.sent)
        (trace,) = traces_shown(caplog.text)
        assert agent_steps(requests_of(server, trace, 2)) == ["sample", "spool", "send"]


def test_each_profile_that_is_scraped_has_a_trace(tmp_path: Path) -> None:
    with tracing(tmp_path / "collector") as server, target_server() as targets:
        scraping = Scraping(tmp_path, server.base_url, server.submit_key)
        scraping.list_targets([targets.target("good-1"), targets.target("good-2")], types=["cpu"], seconds=1)
        done = scraping.once("--trace", server.home / "trace_keys")
        assert done.returncode == 0, done.stderr
        traces = traces_shown(done.stderr)
        assert len({*traces}) == len(traces) == 2
        for trace in traces:
            assert agent_steps(requests_of(server, trace, 2)) == ["scrape", "spool", "send"]


@pytest.mark.system("nginx")
def test_files_that_the_agent_submits_are_one_trace_behind_the_proxy(tmp_path: Path) -> None:
    with (
        tracing(tmp_path / "collector") as server,
        running_nginx(tmp_path, server.base_url, request_buffering=False) as url,
    ):
        files = [tmp_path / "a", tmp_path / "b"]
        for file in files:
            file.write_bytes(profile_of(file.name))
        said: list[str | Path] = [
            "--url",
            url,
            "--key-file",
            server.submit_keys,
            "--trace",
            server.home / "trace_keys",
        ]
        done = subprocess.run([AGENT, "submit", *said, *files], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (trace,) = traces_shown(done.stderr)
        steps = tree_of(requests_of(server, trace, 4))
        roots = [at for at, step in enumerate(steps) if step.parent < 0]
        for root in roots:
            names = [step.span.name for step in steps[root : root + 4]]
            assert names == ["agent", "send", "proxy", "POST /v1/submit"]
            assert [step.depth for step in steps[root : root + 4]] == [0, 1, 2, 3]
        check_times([step.span for step in steps])
        took = re.findall(r" took ([\d.]+) ms$", done.stderr, re.MULTILINE)
        assert [f"{steps[root].nanos / 1e6:.3f}" for root in roots] == took
