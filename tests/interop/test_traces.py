"""Signed requests of real clients, also behind a real nginx: one tree each, from the proxy to the disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
from pgo_collector.traces.trace_store import FILE, TraceReader

from tests.collector.tracing import check_times, kept, signed, tracing, wait_until_counted
from tests.faults.stacks import profile_of
from tests.interop.nginx_process import running_nginx
from tests.server import bearer

AGENT = Path(sys.executable).with_name("pgo-agent")
FETCH = Path(__file__).parents[2] / "deploy" / "pipeline" / "pgo_fetch.py"


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
            began = time.time_ns()
            answer = client.request(method, path, content=content, headers=bearer(key) | headers)
            seen = time.time_ns() - began
            assert answer.status_code in {200, 204}
            assert answer.headers["PGO-Trace"] == trace
            spans = kept(server, trace).spans
            known = {span.id for span in spans}
            (proxy,) = (span for span in spans if span.parent not in known)
            (request,) = (span for span in spans if span.parent == proxy.id)
            assert (proxy.name, request.name) == ("proxy", f"{method} {path}")
            check_times(spans)
            assert request.end - request.start <= seen
            # nginx's clock has milliseconds, so the proxy's step may begin up to one too early.
            assert proxy.end - proxy.start <= seen + 2_000_000


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
        (trace,) = re.findall(r"pgo-collector trace show ([0-9a-f]{32})\n", done.stderr)
        assert kept(server, trace).spans[0].name == "GET /v1/merge"


def test_files_that_the_agent_submits_are_one_trace(tmp_path: Path) -> None:
    with tracing(tmp_path / "collector") as server:
        files = []
        for name in ("a", "b"):
            files.append(tmp_path / name)
            files[-1].write_bytes(profile_of(name))
        said: list[str | Path] = [
            "--url",
            server.base_url,
            "--key-file",
            server.submit_keys,
            "--trace",
            server.home / "trace_keys",
        ]
        done = subprocess.run([AGENT, "submit", *said, *files], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (trace,) = re.findall(r"pgo-collector trace show ([0-9a-f]{32})\n", done.stderr)
        kept(server, trace)
        wait_until_counted(server, "traces_total", 2, outcome="kept", outlet="store")
        requests = TraceReader(server.data / FILE).requests(trace)
        assert [request.spans[0].name for request in requests] == ["POST /v1/submit"] * 2
