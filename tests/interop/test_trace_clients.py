"""Traces of what real clients ask for, behind a real nginx: one tree each, as long as the client saw."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from pgo_collector.traces.reports import CLIENTS
from pgo_collector.traces.trees import Step, tree_of

from tests.agent.busy import NAME, build, needs_gcc, running
from tests.agent.serving import AGENT, Serving
from tests.collector.tracing import check_times, kept, requests_of, signed, tracing
from tests.faults.stacks import profile_of
from tests.interop.nginx_process import LOG, running_nginx
from tests.oracle.oracle import go_root
from tests.server import Server, bearer

pytestmark = pytest.mark.system("nginx", "curl")

_FETCH = Path(__file__).parents[2] / "deploy" / "pipeline" / "pgo_fetch.py"
_PATIENCE_SECONDS = 120.0
# How long each request has to wait: 5 % of it are longer than the pauses of a busy machine.
_LOCKED_SECONDS = 8.0
# A merge of this many large profiles takes the better part of a second.
_COPIES = 30
_SLOW_SECONDS = 6.0
_SUBMIT_STEPS = {
    *("POST /v1/submit", "key check", "body", "validate", "batch", "validate_bodies", "read bodies"),
    *("inflate", "decode", "store", "queue", "commit", "transaction", "BEGIN", "write blob", "fsync folder"),
    *("INSERT", "COMMIT", "answer"),
}
_MERGE_STEPS = {
    *("GET /v1/merge", "key check", "resolve", "SELECT", "merge_blobs", "queue", "read blobs", "inflate"),
    *("decode", "intern", "sum", "keep", "answer"),
}


class Asked(NamedTuple):
    """A request that a client has made: its trace, and how long the client waited, in s, if it says so.

    `reported` is what the client has told both its user and the collector, in ms.
    """

    trace: str
    seconds: float | None = None
    reported: str | None = None


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def trace_shown(said: str) -> str:
    """Return the trace that a program has said how to see."""
    (trace,) = re.findall(r"pgo-collector trace show ([0-9a-f]{32})\b", said)
    return str(trace)


def curl(server: Server, key: str, url: str, *options: str | Path) -> Asked:
    """Have curl make a request, with the options that `pgo-collector trace sign` prints."""
    signed = server.run("trace", "sign")
    timed = ("--write-out", "%{time_pretransfer} %{time_total}", "--output", os.devnull)
    done = run(
        *("curl", "-sS", "--fail-with-body", "--header", f"Authorization: Bearer {key}"),
        *(*timed, *shlex.split(signed.stdout), *options, url),
    )
    begun, ended = map(float, done.stdout.split())
    return Asked(trace_shown(signed.stderr), ended - begun)


def fetch(server: Server, url: str, file: Path) -> Asked:
    done = run(
        sys.executable, _FETCH, "--trace", server.home / "trace_keys", url, file, PGO_KEY=server.merge_key
    )
    return told(done.stderr)


def told(said: str) -> Asked:
    (milliseconds,) = re.findall(r" took ([\d.]+) ms$", said, re.MULTILINE)
    return Asked(trace_shown(said), reported=milliseconds)


def agent(server: Server, url: str, file: Path) -> Asked:
    signing = ("--key-file", server.submit_keys, "--trace", server.home / "trace_keys")
    return told(run(AGENT, "submit", "--url", url, *signing, file).stderr)


@contextmanager
def locked_catalog(server: Server) -> Iterator[None]:
    """Keep the collector from changing its catalog."""
    with closing(sqlite3.connect(server.data / "catalog.sqlite3", isolation_level=None)) as catalog:
        catalog.execute("BEGIN IMMEDIATE")
        yield


def seconds_in_proxy(folder: Path, trace: str) -> float:
    """Return how long nginx says that a request took, from its first byte to the last one of the answer."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (found := re.findall(rf"^{trace} ([\d.]+)$", (folder / LOG).read_text(), re.MULTILINE)):
        assert time.monotonic() < deadline, f"no line of {trace}"
        time.sleep(0.05)
    return float(found[0])


def check_tree(server: Server, asked: Asked, above: Sequence[str], names: set[str]) -> Step:
    """Check that a trace is one whole tree that begins with the steps `above`; return its root."""
    requests = requests_of(server, asked.trace, 1 + (above[0] in CLIENTS))
    steps = tree_of(requests)
    assert [step.parent for step in steps].count(-1) == 1
    assert [step.span.name for step in steps[: len(above)]] == [*above]
    assert {step.span.name for step in steps} >= names
    assert {request.dropped for request in requests} == {0}
    if asked.reported is not None:
        assert f"{steps[0].nanos / 1e6:.3f}" == asked.reported
    check_times([step.span for step in steps])
    return steps[0]


def test_the_root_is_as_long_as_the_client_waited(tmp_path: Path) -> None:
    """Takes over 20 s on a busy machine: 5 % of how long each client waits are longer than its pauses."""
    file = tmp_path / "cpu.pb.gz"
    file.write_bytes(profile_of("submitted"))
    with (
        tracing(tmp_path / "collector") as server,
        running_nginx(tmp_path, server.base_url, request_buffering=False) as url,
        ThreadPoolExecutor(4) as threads,
    ):
        large = (go_root() / "src/cmd/compile/default.pgo").read_bytes()
        for service in ("curl", "fetch"):  # one each, whose profiles its merge is the first to read
            for copy in range(_COPIES):
                labels = {"service": service, "labels": f"copy={copy}"}
                assert server.submit(large, query=labels).status_code == 204
        submit, merge = f"{url}/v1/submit?service=another", f"{url}/v1/merge"
        clients: list[tuple[Callable[[], Asked], list[str], set[str]]] = [
            (
                lambda: curl(server, server.submit_key, submit, "--data-binary", f"@{file}"),
                ["proxy", "POST /v1/submit"],
                _SUBMIT_STEPS,
            ),
            (lambda: agent(server, url, file), ["agent", "send", "proxy", "POST /v1/submit"], _SUBMIT_STEPS),
            (
                lambda: curl(server, server.merge_key, f"{merge}?service=curl&format=go"),
                ["proxy", "GET /v1/merge"],
                {*_MERGE_STEPS, "convert to go"},
            ),
            (
                lambda: fetch(server, f"{merge}?service=fetch", tmp_path / "default.pgo"),
                ["fetch", "ask", "proxy", "GET /v1/merge"],
                {*_MERGE_STEPS, "encode", "compress and write"},
            ),
        ]
        with locked_catalog(server):
            asking = [threads.submit(ask) for ask, _, _ in clients]
            time.sleep(_LOCKED_SECONDS)
        for done, (_, above, names) in zip(asking, clients, strict=True):
            asked = done.result()
            root = check_tree(server, asked, above, names).nanos / 1e9
            if asked.seconds is not None:  # the other clients report how long it took
                seen = [seconds_in_proxy(tmp_path, asked.trace), asked.seconds]
                assert [root, root] == pytest.approx(seen, rel=0.05)


def test_a_kept_merge_is_as_long_as_its_client_says(tmp_path: Path) -> None:
    with (
        tracing(tmp_path / "collector") as server,
        running_nginx(tmp_path, server.base_url, request_buffering=False) as url,
    ):
        server.submit(profile_of("a"))
        for again in range(3):
            asked = fetch(server, f"{url}/v1/merge", tmp_path / f"{again}.pgo")
            check_tree(server, asked, ["fetch", "ask", "proxy", "GET /v1/merge"], {"answer"})
        asked = fetch(server, f"{url}/v1/merge", tmp_path / "2.pgo")  # 304, since the file is there
        check_tree(server, asked, ["fetch", "ask", "proxy", "GET /v1/merge"], {"answer"})


def test_what_the_proxy_collects_before_it_asks_is_in_the_trace(tmp_path: Path) -> None:
    """The client is slow to send the body, and nginx passes nothing on before it has all of it."""
    content, (trace, headers) = profile_of("slow"), signed()

    def body() -> Iterator[bytes]:
        yield content[:20]
        time.sleep(_SLOW_SECONDS)
        yield content[20:]

    with (
        tracing(tmp_path / "collector") as server,
        running_nginx(tmp_path, server.base_url, request_buffering=True) as url,
    ):
        answer = httpx.post(
            f"{url}/v1/submit", content=body(), headers=bearer(server.submit_key) | headers, timeout=300
        )
        assert answer.status_code == 204
        root = check_tree(server, Asked(trace, None), ["proxy", "POST /v1/submit"], _SUBMIT_STEPS)
        assert root.nanos / 1e9 == pytest.approx(seconds_in_proxy(tmp_path, trace), rel=0.05)
        assert root.self_nanos / 1e9 > _SLOW_SECONDS / 2


@needs_gcc
def test_each_profile_that_the_node_takes_on_its_schedule_has_a_trace(tmp_path: Path) -> None:
    """Takes over 20 s on a busy machine: the agent waits for its moment, after it has tried each profiler."""
    with (
        tracing(tmp_path / "collector") as server,
        running_nginx(tmp_path, server.base_url, request_buffering=False) as url,
        running(build(tmp_path)),
    ):
        pushing = ("--url", url, "--submit-key-file", server.submit_keys, "--service", "node")
        kept_in = ("--spool", tmp_path / "spool", "--every", "4", "--duration", "2")
        traced = ("--trace", server.home / "trace_keys")
        with Serving(tmp_path, *pushing, *kept_in, *traced, "--executable", NAME) as node:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while "profile sent" not in node.log:
                assert time.monotonic() < deadline, node.log
                time.sleep(0.1)
            assert node.stop() == 0
            traces = re.findall(r"profile sent: .* trace=([0-9a-f]{32})\b", node.log)
        assert len({*traces}) == len(traces)
        for number, trace in enumerate(traces):
            above = ["agent", "sample", "spool", "send", "proxy", "POST /v1/submit"]
            root = check_tree(server, Asked(trace, None), above, _SUBMIT_STEPS)
            # It samples for 2 s; a stop cuts a later profile short, and that is sent too.
            assert root.nanos >= (0 if number else 2e9)
            assert kept(server, trace).service == "node"
