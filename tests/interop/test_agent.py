"""pgo_agent's client against the real collector, also while that isn't there."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pgo_agent import Collector, SubmitRefused

from tests.interop.curl import Client, total
from tests.server import Server


@pytest.mark.parametrize("route", ["", "/v1/submit"])
def test_a_profile_arrives_once(client: Client, profile: bytes, route: str) -> None:
    before = client.total()
    with Collector(client.url + route, client.server.submit_key) as collector:
        collector.submit(profile)
        collector.submit(profile)
    added = tuple(now - then for now, then in zip(client.total(), before, strict=True))
    assert added == total(profile)


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"", 400), (b"not a profile", 400), (bytes(17 << 20), 413)],
    ids=["empty", "text", "large"],
)
def test_a_refusal_is_told(client: Client, content: bytes, status: int) -> None:
    with (
        Collector(client.url, client.server.submit_key) as collector,
        pytest.raises(SubmitRefused) as raised,
    ):
        collector.submit(content)
    assert raised.value.status == status
    assert raised.value.detail


def test_another_key_is_refused(client: Client, profile: bytes) -> None:
    with (
        Collector(client.url, client.server.merge_key) as collector,
        pytest.raises(SubmitRefused, match="403"),
    ):
        collector.submit(profile)


def test_nothing_is_lost_or_doubled_while_the_collector_restarts(tmp_path: Path, profile: bytes) -> None:
    with Server(tmp_path) as server:
        address = server.base_url.removeprefix("http://")
        server.stop()
        with Collector(f"http://{address}", server.submit_key, backoff=0.2, attempts=1000) as collector:
            waiting = threading.Thread(target=collector.submit, args=(profile,))
            waiting.start()
            time.sleep(0.3)
            assert waiting.is_alive()
            server.environment["PGOF_BIND_ADDRESS"] = address
            server.start()
            waiting.join(timeout=20)
            assert not waiting.is_alive()
            collector.submit(profile)
        assert total(server.merge().content) == total(profile)
