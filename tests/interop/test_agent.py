"""pgo_agent's client against the real collector, also while that isn't there."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pgo_agent import (
    Collector,
    CollectorUnavailable,
    ContinuousProfiler,
    DiskSpool,
    StackSampler,
    SubmitRefused,
)
from pgo_agent.endpoint import Upload

from tests.cpu_meter import when_taken
from tests.interop.curl import Client, total
from tests.interop.go_toolchain import go
from tests.server import Server


@pytest.mark.parametrize("route", ["", "/v1/submit"])
def test_a_profile_arrives_once(client: Client, profile: bytes, route: str) -> None:
    before = client.total()
    with Collector(client.url + route, client.server.submit_key) as collector:
        collector.submit(profile)
        collector.submit(profile)
    added = tuple(now - then for now, then in zip(client.total(), before, strict=True))
    assert added == total(profile)


def test_service_and_labels_are_those_of_its_series(client: Client, profiles: list[bytes]) -> None:
    """In values that the syntax of lists would break, too."""
    service = f"shop-{client.url.rpartition(':')[2]}"
    for profile, region in zip(profiles, ["eu", "eu,us=1|2 %"] * 3, strict=True):
        with Collector(
            client.url, client.server.submit_key, service=service, labels={"region": region, "a,b": "1"}
        ) as collector:
            collector.submit(profile, "cpu")
    for region, expected in [("eu", profiles[::2]), ("eu%2Cus%3D1%7C2 %25", profiles[1::2])]:
        query = {"service": service, "labels": f"region={region},a%2Cb=1"}
        merge = client.server.merge(query=query)
        assert merge.status_code == 200, merge.text
        assert total(merge.content) == tuple(map(sum, zip(*map(total, expected), strict=True)))


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
            waiting.join(timeout=120)
            assert not waiting.is_alive()
            collector.submit(profile)
        assert total(server.merge().content) == total(profile)


def test_a_python_program_is_profiled_and_arrives(client: Client, tmp_path: Path) -> None:
    """Takes over 20 s where nothing is in Go's cache: Go builds its pprof on first use."""
    ended = threading.Event()
    busy = threading.Thread(target=keep_busy, args=(ended,))
    busy.start()
    try:
        with when_taken(0.5) as enough:
            profile = StackSampler().sample(600.0, enough)
    finally:
        ended.set()
        busy.join()
    file = tmp_path / "cpu.pb.gz"
    file.write_bytes(profile)
    top = go("tool", "pprof", "-top", file)
    assert "Type: cpu" in top
    assert f"{__name__}.keep_busy" in top
    before = client.total()
    with Collector(client.url, client.server.submit_key) as collector:
        collector.submit(profile)
    added = tuple(now - then for now, then in zip(client.total(), before, strict=True))
    assert added == total(profile) > (0, 0)


def keep_busy(ended: threading.Event) -> None:
    while not ended.is_set():
        sum(range(1000))


def test_a_spool_outlives_the_collector_and_the_process(tmp_path: Path, profiles: list[bytes]) -> None:
    """The collector is down for the whole run of one program, and killed in the run of the next."""
    sampler = Replay(profiles)
    with Server(tmp_path / "server") as server:
        url = server.base_url
        server.environment["PGOF_BIND_ADDRESS"] = url.removeprefix("http://")
        server.kill()
        with (
            Collector(url, server.submit_key, attempts=1) as collector,
            ContinuousProfiler(
                collector,
                spool=DiskSpool(tmp_path / "spool"),
                sampler=sampler,
                every=0.05,
                duration=0.01,
                jitter=0,
            ),
        ):
            assert sampler.exhausted.wait(120)
        spool = DiskSpool(tmp_path / "spool")
        server.start()
        with Collector(url, server.submit_key, attempts=1) as collector:
            sent = 0

            def send_three(upload: Upload) -> None:
                nonlocal sent
                collector.send(upload)
                sent += 1
                if sent == 3:
                    # It has the third profile, and its answer is lost.
                    server.kill()
                    raise CollectorUnavailable(1, "killed")

            with pytest.raises(CollectorUnavailable):
                spool.drain(send_three, threading.Event())
            server.start()
            spool.drain(collector.send, threading.Event())
        expected = [sum(values) for values in zip(*map(total, profiles), strict=True)]
        assert list(total(server.merge().content)) == expected
        assert not spool.dropped


class Replay:
    """A sampler of profiles that are there already; after those, it waits to be stopped and fails."""

    def __init__(self, profiles: list[bytes]) -> None:
        self._profiles = iter(profiles)
        self.exhausted = threading.Event()

    def sample(self, duration: float, until: threading.Event) -> bytes:
        until.wait(duration)
        try:
            return next(self._profiles)
        except StopIteration:
            self.exhausted.set()
            until.wait()
            raise
