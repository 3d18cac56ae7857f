"""Real clients for Go, pyroscope-go and dd-trace-go, push what a busy program used and held.

`make setup WITH=clients` builds them. They send through a server of the test, which keeps what was sent.
"""

from __future__ import annotations

import os
import subprocess
from email import message_from_bytes
from pathlib import Path
from types import MappingProxyType

import pytest
from backports import zstd
from pprof_merge import Profile, decode, encode, inflate, merge

from tests.collector.pushing import stored
from tests.interop.forwarding import forwards
from tests.interop.test_pyroscope import installed, statuses
from tests.oracle.content import content
from tests.receiver import Receiver
from tests.server import Server

pytestmark = pytest.mark.system

_HELD = 8 << 20
_PATIENCE_SECONDS = 300.0
# By their last sample type.
_TYPES = MappingProxyType({b"cpu": "cpu", b"inuse_space": "memory", b"goroutine": "goroutine"})


def _run(client: str, receiver: Receiver, every: str, busy: str, **environment: str) -> None:
    """Run a program to its end; it is busy so long, and sends so often."""
    url = f"http://127.0.0.1:{receiver.port}"
    settings = {
        "DD_TRACE_AGENT_URL": url,
        "DD_API_KEY": Server.submit_key,
        "DD_SERVICE": "go.shop",
        "DD_ENV": "test",
        "DD_VERSION": "1.4",
        "DD_TAGS": "region:eu",
        "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    }
    where = [url, Server.submit_key] if client == "pyroscope" else []
    finished = subprocess.run(
        [installed("go-clients") / client, *where, every, busy],
        env=os.environ | settings | environment,
        capture_output=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


def _sent(receiver: Receiver) -> dict[str, list[Profile]]:
    """Return the profiles in all forms that were sent, by type."""
    found: dict[str, list[Profile]] = {}
    for request in receiver.received:
        head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
        for part in message_from_bytes(head + request.body).walk():
            if not (part.get_filename() or "").endswith(".pprof"):
                continue
            profile = part.get_payload(decode=True)
            assert isinstance(profile, bytes)
            is_zstd = profile.startswith(b"\x28\xb5\x2f\xfd")
            read = decode(zstd.decompress(profile) if is_zstd else profile)
            # At the end one may be without samples, which isn't stored.
            if len(read.samples.values):
                found.setdefault(_TYPES[read.header.sample_types[-1].type], []).append(read)
    return found


def _top(server: Server, type_: str) -> tuple[int, dict[str, int]]:
    """Return the total of a type, and what each function has."""
    answer = server.ask("/v1/top", service="go.shop", type_=type_, by="function", n="1000").json()
    return answer["total"], {row["name"]: row["cum"] for row in answer["rows"]}


@pytest.mark.parametrize(
    ("client", "path", "labels"),
    [
        ("pyroscope", "/ingest", {"pyroscope_spy": "gospy", "version": "1.4", "region": "eu"}),
        ("datadog", "/profiling/v1/input", {"env": "test", "version": "1.4", "region": "eu"}),
    ],
)
def test_what_a_go_program_sends_is_what_the_collector_shows(
    tmp_path: Path, client: str, path: str, labels: dict[str, str]
) -> None:
    with Server(tmp_path) as server, forwards(server) as receiver:
        _run(client, receiver, every="1s", busy="3500ms")
        assert statuses(server, path) == {200}
        sent, found = _sent(receiver), stored(server, "go.shop")
        assert sorted(type_ for type_, _ in found) == sorted(
            type_ for type_, profiles in sent.items() for _ in profiles
        )
        assert sent.keys() == {"cpu", "memory", "goroutine"}
        assert len(sent["memory"]) >= 2
        assert all(every.items() >= labels.items() for _, every in found)
        assert not any("__" in name or "id" in name.split("_") for _, every in found for name in every)
        for type_, profiles in sent.items():
            merged = server.merge(query={"service": "go.shop", "type": type_}).content
            assert content(inflate(merged)).samples == content(encode(merge(profiles))).samples
        total, used = _top(server, "cpu")
        assert total == sum(int(profile.samples.values[:, -1].sum()) for profile in sent["cpu"])
        assert used["main.countInGo"] >= 0.8 * total
        # What is held isn't added up.
        assert _top(server, "memory")[1]["main.hold"] == pytest.approx(_HELD, rel=0.01)


@pytest.mark.parametrize(
    ("client", "environment", "types"),
    [
        ("pyroscope", {}, ["cpu"]),
        ("datadog", {}, []),
        ("datadog", {"DD_PROFILING_FLUSH_ON_EXIT": "true"}, ["cpu", "goroutine", "memory"]),
    ],
)
def test_what_a_go_program_sends_at_its_end_arrives(
    tmp_path: Path, client: str, environment: dict[str, str], types: list[str]
) -> None:
    with Server(tmp_path) as server, forwards(server) as receiver:
        _run(client, receiver, every="1h", busy="500ms", **environment)
        assert [type_ for type_, _ in stored(server, "go.shop")] == types
        if types:
            assert "main.countInGo" in _top(server, "cpu")[1]
