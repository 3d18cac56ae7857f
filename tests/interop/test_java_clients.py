"""Pyroscope's agent for Java exports what a busy program used, as OTLP.

`make setup WITH=clients` brings it.
"""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pytest
from pgo_collector.routes.otlp.export_pb2 import ExportRequest
from pprof_merge import decode

from tests.collector.pushing import stored
from tests.interop.forwarding import forwards
from tests.interop.test_pyroscope import installed, statuses
from tests.receiver import Received
from tests.server import Server

_PATIENCE_SECONDS = 300.0


def _values(request: Received) -> int:
    """Return the sum of all values in a request."""
    message = ExportRequest.FromString(gzip.decompress(request.body))
    return sum(
        sum(sample.values)
        for resource in message.resource_profiles
        for scope in resource.scope_profiles
        for profile in scope.profiles
        for sample in profile.samples
    )


@pytest.mark.system("java")
def test_what_a_java_program_sends_is_what_the_collector_shows(tmp_path: Path) -> None:
    """The agent names no service: the key is for one."""
    folder = installed("java-clients")
    with Server(tmp_path) as server, forwards(server) as receiver:
        server.submit_keys.write_text("a-key-for-java service=java.shop\n")
        settings = {
            "PYROSCOPE_FORMAT": "otlp",
            "PYROSCOPE_SERVER_ADDRESS": f"http://127.0.0.1:{receiver.port}",
            "PYROSCOPE_AUTH_TOKEN": "a-key-for-java",
            "PYROSCOPE_UPLOAD_INTERVAL": "1s",
        }
        finished = subprocess.run(
            ["java", f"-javaagent:{folder}/agent-2.9.2.jar", "-cp", folder, "Busy", "0", "3"],
            env=os.environ | settings,
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        assert statuses(server, "/v1development/profiles") == {200}
        found = stored(server, "java.shop")
        assert found == [("process_cpu", {})] * len(found)
        assert len(found) >= 2
        sent = sum(_values(request) for request in receiver.received)
        merged = server.merge(query={"service": "java.shop", "type": "process_cpu"}).content
        assert int(decode(merged).samples.values.sum()) == sent
        top = server.ask("/v1/top", service="java.shop", type_="process_cpu", by="function", n="1").json()
        assert top["total"] == sent
        assert (top["rows"][0]["name"], top["rows"][0]["flat"] > 0.5 * sent) == ("Busy.countInJava", True)
        # Nothing of it is for a build.
        assert server.merge(query={"service": "java.shop"}).status_code == 404
