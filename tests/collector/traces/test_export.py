"""Traces that are sent as OTLP over HTTP: a receiver decodes them with OpenTelemetry's own classes."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pgo_collector.traces.signing import new_origin, sign
from pgo_collector.traces.spans import new_id

from tests.collector.tracing import KEY, kept, signed, tracing, wait_until_counted
from tests.faults.stacks import profile_of
from tests.server import bearer

pytestmark = pytest.mark.any_store

_PATIENCE_SECONDS = 120.0


class Receiver:
    """An OTLP receiver on a free loopback port, and the requests that it got."""

    def __init__(self) -> None:
        self.received: list[ExportTraceServiceRequest] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.received.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def spans(self) -> list[Span]:
        """Return all spans that it got."""
        return [
            span
            for request in self.received
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def test_a_receiver_decodes_the_same_tree_that_is_kept(tmp_path: Path, receiver: Receiver) -> None:
    with tracing(tmp_path, {"PGOF_TRACE_OTLP_URL": receiver.url}) as server:
        trace, headers = signed()
        answer = server.client.post(
            "/v1/submit", content=profile_of("a"), headers=bearer(server.submit_key) | headers
        )
        assert answer.status_code == 204
        request = kept(server, trace)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not receiver.received:
            assert time.monotonic() < deadline, "nothing came"
            time.sleep(0.01)
        (resource,) = receiver.received[0].resource_spans
        (scope,) = resource.scope_spans
        found = {
            (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name)
            for span in scope.spans
        }
        assert found == {(trace, span.id, span.parent, span.name) for span in request.spans}
        (name,) = (
            each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
        )
        assert name == "pgo-collector"
        receiver.status = 400
        _, headers = signed()
        assert "PGO-Trace" in server.client.get("/healthz", headers=headers).headers
        wait_until_counted(server, "traces_total", 1, outcome="dropped", outlet="otlp")
        assert server.events("traces dropped")


def test_a_receiver_decodes_what_a_client_reported(tmp_path: Path, receiver: Receiver) -> None:
    with tracing(tmp_path, {"PGOF_TRACE_OTLP_URL": receiver.url}) as server:
        began = time.time_ns() // 1000
        origin, root = new_origin(), new_id()
        headers = bearer(server.submit_key) | sign(KEY.encode(), *origin, int(time.time()))
        answer = server.client.post("/v1/submit", content=profile_of("a"), headers=headers)
        assert answer.status_code == 204
        took = time.time_ns() // 1000 - began
        told = f"agent={began}:{took},send={origin.parent}:0:{took}"
        headers = sign(KEY.encode(), origin.trace, root, int(time.time()), told)
        assert server.client.post(f"/v1/traces/{origin.trace}/steps", headers=headers).status_code == 204
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            spans = {span.name: span for span in receiver.spans() if span.trace_id.hex() == origin.trace}
            if {"agent", "POST /v1/submit"} <= spans.keys():
                break
            assert time.monotonic() < deadline, f"only {sorted(spans)} came"
            time.sleep(0.01)
        agent, send, request = spans["agent"], spans["send"], spans["POST /v1/submit"]
        assert (agent.span_id.hex(), agent.parent_span_id) == (root, b"")
        assert (send.span_id.hex(), send.parent_span_id) == (origin.parent, agent.span_id)
        assert request.parent_span_id == send.span_id
        assert (agent.kind, send.kind) == (Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_INTERNAL)
        assert request.kind == Span.SPAN_KIND_SERVER
        assert agent.end_time_unix_nano - agent.start_time_unix_nano == took * 1000
        assert send.start_time_unix_nano <= request.start_time_unix_nano
        assert request.end_time_unix_nano <= send.end_time_unix_nano


def test_without_the_packages_the_setting_is_refused_by_name(tmp_path: Path) -> None:
    server = tracing(tmp_path, {"PGOF_TRACE_OTLP_URL": "http://127.0.0.1:9/v1/traces"})
    program = (
        "import sys; sys.modules['opentelemetry.sdk'] = None;"
        "from pgo_collector.command.cli import main; sys.exit(main(['serve']))"
    )
    refused = subprocess.run(
        [sys.executable, "-c", program], env=server.environment, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "PGOF_TRACE_OTLP_URL needs packages that are missing" in refused.stderr
    assert "pgo-collector[tracing]" in refused.stderr


def test_the_spans_of_a_program_are_in_one_tree_with_ours(tmp_path: Path, receiver: Receiver) -> None:
    """The program is the example of docs/traces.md, as it stands there, with OpenTelemetry's SDK."""
    page = (Path(__file__).parents[3] / "docs" / "traces.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "cpu.pb.gz").write_bytes(profile_of("a"))
    with tracing(tmp_path, {"PGOF_TRACE_OTLP_URL": receiver.url}) as server:
        environment = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.url,
            "TRACE_KEYS": str(tmp_path / "trace_keys"),
            "SUBMIT_KEY": server.submit_key,
            "URL": server.base_url,
        }
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        wait_until_counted(server, "traces_total", 1, outcome="kept", outlet="otlp")
    spans = {span.name: span for span in receiver.spans()}
    whole, read, post, request = (
        spans[name] for name in ("profile the rush hour", "read the file", "POST", "POST /v1/submit")
    )
    assert {span.trace_id for span in spans.values()} == {whole.trace_id}
    assert whole.parent_span_id == b""
    assert (read.parent_span_id, post.parent_span_id) == (whole.span_id, whole.span_id)
    assert request.parent_span_id == post.span_id
    assert post.start_time_unix_nano <= request.start_time_unix_nano
    assert spans["COMMIT"].trace_id == whole.trace_id
