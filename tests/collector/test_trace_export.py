"""Traces that are sent as OTLP over HTTP: a receiver decodes them with OpenTelemetry's own classes."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.collector.tracing import kept, signed, tracing, wait_until_counted
from tests.faults.stacks import profile_of
from tests.server import bearer

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
