"""OpenTelemetry's own classes and stubs, of two versions of the wire, export profiles.

`make setup WITH=clients` installs them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.exporting import PERIOD, speaks_grpc
from tests.collector.routes.test_otlp import merged, stacks_of
from tests.interop.failing import fails
from tests.interop.test_pyroscope import installed
from tests.server import Server

pytestmark = pytest.mark.system

PROGRAM = Path(__file__).parent / "clients" / "otlp" / "export.py"
_PATIENCE_SECONDS = 300.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with speaks_grpc(tmp_path_factory.mktemp("otlp")) as server:
        yield server


def exported(server: Server, version: str, service: str, key: str, protocol: str) -> str:
    """Return what the program prints, which sends a request made by this version of opentelemetry-proto."""
    folder = installed(f"opentelemetry-proto-{version}")
    address = server.wait_for_log("listening for gRPC")["address"] if protocol == "grpc" else server.base_url
    finished = subprocess.run(
        [sys.executable, "-S", PROGRAM, folder, service, key, protocol, address],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert str(folder) in finished.stdout or finished.returncode, finished.stdout
    return finished.stdout + finished.stderr


@pytest.mark.parametrize(
    ("version", "protocol"),
    [
        ("1.42.1", "grpc"),
        ("1.45.2", "http"),
        pytest.param("1.42.1", "http", marks=pytest.mark.exhaustive),
        pytest.param("1.45.2", "grpc", marks=pytest.mark.exhaustive),
    ],
)
def test_opentelemetrys_classes_export_a_profile(server: Server, version: str, protocol: str) -> None:
    """1.42.1 writes OTLP 1.9, 1.45.2 writes 1.10."""
    service = f"of-{version}-{protocol}"
    assert "rejected 0" in exported(server, version, service, server.submit_key, protocol)
    profile = merged(server, service)
    assert stacks_of(profile) == {("main",): [3, 3 * PERIOD]}
    (label,) = profile.sample[0].label
    assert profile.string_table[label.str] == b"worker"


@pytest.mark.parametrize("protocol", [pytest.param("http", marks=pytest.mark.exhaustive), "grpc"])
def test_a_wrong_key_is_seen(server: Server, protocol: str) -> None:
    said = exported(server, "1.45.2", "wrong", "no-key", protocol)
    assert ("401" if protocol == "http" else "StatusCode.UNAUTHENTICATED") in said


@pytest.mark.exhaustive
def test_a_500_and_an_outage_are_seen_and_a_waiting_call_is_stored(tmp_path: Path) -> None:
    """A call that waits for the collector is served once it is back."""
    with speaks_grpc(tmp_path) as server:
        address = server.wait_for_log("listening for gRPC")["address"]
        server.environment["PGOF_GRPC_ADDRESS"] = address
        with fails(server):
            assert "HTTP Error 500" in exported(server, "1.45.2", "a", server.submit_key, "http")
        assert "Connection refused" in exported(server, "1.45.2", "a", server.submit_key, "http")
        folder = installed("opentelemetry-proto-1.45.2")
        command = [sys.executable, "-S", PROGRAM, folder, "a", server.submit_key, "grpc", address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
            server.start()
            said, _ = waiting.communicate(timeout=_PATIENCE_SECONDS)
        assert "rejected 0" in said
        assert stacks_of(merged(server, "a")) == {("main",): [3, 3 * PERIOD]}
