"""The OpenTelemetry Collector's exporters send on what its receiver got, as their settings say.

`make setup WITH=clients` builds a program of the Collector's own receiver and exporters.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.collector.exporting import EXPORT, PERIOD, PROTOBUF, Export, speaks_grpc
from tests.collector.pushing import stored
from tests.collector.routes.test_otlp import merged, stacks_of
from tests.interop.forwarding import forwards
from tests.interop.test_pyroscope import installed, statuses
from tests.receiver import Answer, Receiver
from tests.server import Server

pytestmark = pytest.mark.system

_PATIENCE_SECONDS = 300.0
_STACKS = {("leaf", "main"): 3, ("main",): 2}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with speaks_grpc(tmp_path_factory.mktemp("collector")) as server:
        yield server


@contextmanager
def _collector(folder: Path, exporter: str, endpoint: str, **settings: Any) -> Iterator[httpx.Client]:
    """Run a Collector until the block ends, and yield a client of its receiver; its log is in the folder.

    It sends all that it has got before it ends, unless that fails.
    """
    socket = folder / "otlp.sock"
    every = {"endpoint": endpoint, "tls": {"insecure": True}, "headers": _key(), **settings}
    receiver = {"protocols": {"http": {"transport": "unix", "endpoint": str(socket)}}}
    program = str(installed("go-clients") / "collector")
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [program, exporter, json.dumps(every), json.dumps(receiver)], stdout=log, stderr=log
        ) as process,
        httpx.Client(
            base_url="http://collector", transport=httpx.HTTPTransport(uds=str(socket), retries=5)
        ) as client,
    ):
        try:
            _wait_for(socket.exists, folder)
            yield client
            process.terminate()
            assert process.wait(_PATIENCE_SECONDS) == 0, _log(folder)
        finally:
            process.kill()


def _key(key: str = Server.submit_key) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def _log(folder: Path) -> str:
    return (folder / "log").read_text()


def _wait_for(what: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, _log(folder)
        time.sleep(0.02)


def _send(client: httpx.Client, service: str) -> None:
    """Send a Collector a CPU profile of a service, with a label of its samples."""
    export = Export()
    export.resource({"service.name": service, "service.version": "1.4", "process.pid": 7})
    export.profile()
    for stack, samples in _STACKS.items():
        frames = [(name, "/src/main.c", 7) for name in stack]
        export.sample(frames, samples, attributes={"thread.name": "worker"})
    answer = client.post(EXPORT, content=export.body, headers=PROTOBUF)
    assert answer.status_code == 200


def _assert_stored(server: Server, service: str) -> None:
    """Check that a merge says what was sent, once."""
    assert stored(server, service) == [("process_cpu", {"version": "1.4"})]
    profile = merged(server, service)
    assert stacks_of(profile) == {stack: [count, count * PERIOD] for stack, count in _STACKS.items()}
    assert [
        (profile.string_table[label.key], profile.string_table[label.str])
        for sample in profile.sample
        for label in sample.label
    ] == [(b"thread.name", b"worker")] * len(_STACKS)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_what_a_collector_gets_is_stored_by_grpc(tmp_path: Path, server: Server, compression: str) -> None:
    address, service = server.wait_for_log("listening for gRPC")["address"], f"grpc-{compression}"
    with _collector(tmp_path, "otlp_grpc", address, compression=compression) as client:
        _send(client, service)
    _assert_stored(server, service)


@pytest.mark.parametrize(
    ("encoding", "compression"), [("proto", "gzip"), ("proto", "zstd"), ("proto", "lz4"), ("json", "none")]
)
def test_what_a_collector_gets_is_stored_by_http(
    tmp_path: Path, server: Server, encoding: str, compression: str
) -> None:
    service = f"http-{encoding}-{compression}"
    with forwards(server) as receiver:
        url, settings = f"http://127.0.0.1:{receiver.port}", {"encoding": encoding}
        with _collector(tmp_path, "otlp_http", url, compression=compression, **settings) as client:
            _send(client, service)
        (sent,) = receiver.received
        assert (sent.path, sent.headers.get("content-encoding", "none")) == (EXPORT, compression)
    _assert_stored(server, service)


@pytest.mark.parametrize(
    ("exporter", "reason"),
    [("otlp_grpc", "code = Unauthenticated"), ("otlp_http", "responded with HTTP Status Code 401")],
)
def test_a_collector_says_why_it_drops_what_is_refused(
    tmp_path: Path, server: Server, exporter: str, reason: str
) -> None:
    address = server.wait_for_log("listening for gRPC")["address"]
    endpoint = address if exporter == "otlp_grpc" else server.base_url
    with _collector(tmp_path, exporter, endpoint, headers=_key("wrong")) as client:
        _send(client, "refused")
    (line,) = (line for line in _log(tmp_path).splitlines() if "Dropping data" in line)
    assert reason in line
    assert "the key that was sent is no key that this route takes" in line
    assert stored(server, "refused") == []


def test_a_collector_drops_what_is_answered_with_500(tmp_path: Path) -> None:
    with Receiver(lambda _: Answer(500)) as receiver:
        with _collector(tmp_path, "otlp_http", f"http://127.0.0.1:{receiver.port}") as client:
            _send(client, "failed")
            _wait_for(lambda: "Dropping data" in _log(tmp_path), tmp_path)
        assert len(receiver.received) == 1


def test_a_collector_sends_a_503_again_after_the_time_it_was_told(tmp_path: Path, server: Server) -> None:
    with forwards(server) as receiver:
        forward = receiver.answer
        receiver.answer = lambda received: (
            Answer(503, (("Retry-After", "1"),)) if len(received) == 1 else forward(received)
        )
        with _collector(tmp_path, "otlp_http", f"http://127.0.0.1:{receiver.port}") as client:
            _send(client, "again")
            _wait_for(partial(_is_stored, server, "again"), tmp_path)
        first, second = receiver.received
        assert first.body == second.body
        assert second.at - first.at >= 1
    _assert_stored(server, "again")


def test_a_collector_sends_what_it_got_in_an_outage(tmp_path: Path) -> None:
    """Its exporters wait 5 s before they try again, unless they are told otherwise."""
    with speaks_grpc(tmp_path / "home") as server:
        address = server.wait_for_log("listening for gRPC")["address"]
        server.environment["PGOF_GRPC_ADDRESS"] = address
        server.environment["PGOF_BIND_ADDRESS"] = server.base_url.removeprefix("http://")
        url = server.base_url
        server.kill()
        with _waiting(tmp_path, "otlp_grpc", address), _waiting(tmp_path, "otlp_http", url):
            server.start()
            for service in ("otlp_grpc", "otlp_http"):
                _wait_for(partial(_is_stored, server, service), tmp_path / service)
        assert statuses(server, EXPORT) == {200}
        for service in ("otlp_grpc", "otlp_http"):
            _assert_stored(server, service)


@contextmanager
def _waiting(home: Path, exporter: str, endpoint: str) -> Iterator[None]:
    """Run a Collector that has got a profile, and has tried in vain to send it, until the block ends."""
    folder = home / exporter
    folder.mkdir()
    soon = {"initial_interval": "100ms", "max_interval": "100ms"}
    with _collector(folder, exporter, endpoint, retry_on_failure=soon) as client:
        _send(client, exporter)
        _wait_for(lambda: "Will retry" in _log(folder), folder)
        yield


def _is_stored(server: Server, service: str) -> bool:
    return len(stored(server, service)) > 0
