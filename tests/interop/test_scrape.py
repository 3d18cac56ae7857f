"""A real Go program with net/http/pprof is scraped, and its profiles come back from a real collector."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.scrape.kubernetes_api import kubernetes_api
from tests.agent.scrape.pods import pod, port_of
from tests.agent.scrape.scraping import Scraping
from tests.interop.go_toolchain import go
from tests.server import Server

pytestmark = (
    pytest.mark.exhaustive
)  # each type and each kind of outage is in tests/agent/scrape, with a target of the test's

TYPES = ["cpu", "heap", "allocs", "mutex", "block", "goroutine", "threadcreate"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one that runs. Its first build takes over 20 s where nothing is in Go's cache."""
    built = tmp_path_factory.mktemp("served") / "served"
    go("build", "-o", built, ".", program="served")
    with serving(built) as address:
        yield address


@contextmanager
def serving(program: Path) -> Iterator[str]:
    """Runs it within the block."""
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def merged(server: Server, tmp_path: Path, sample_type: str, **query: str) -> str:
    """Return what go tool pprof says of a selection: its functions, with all that each called."""
    merge = server.merge(query=query)
    assert merge.status_code == 200, merge.text
    file = tmp_path / f"{query['type']}.pb.gz"
    file.write_bytes(merge.content)
    return go("tool", "pprof", "-top", "-cum", f"-sample_index={sample_type}", file)


def test_all_types_of_a_go_program_arrive(server: Server, program: str, tmp_path: Path) -> None:
    scraping = Scraping(tmp_path, server.base_url, server.submit_key)
    scraping.list_targets([f"http://{program}/debug/pprof"], types=TYPES, seconds=2, labels={"region": "eu"})
    # Twice, so that there is something to merge.
    for _ in range(2):
        done = scraping.once("--json")
        assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["sent"] == len(TYPES)
    for type_, sample_type in {
        "cpu": "cpu",
        "allocs": "alloc_space",
        "mutex": "delay",
        "block": "delay",
        "goroutine": "goroutine",
    }.items():
        shown = merged(server, tmp_path, sample_type, service="shop", type=type_, labels="region=eu")
        assert f"Type: {sample_type}" in shown
        assert "main.work" in shown
    assert "Type: inuse_space" in merged(server, tmp_path, "inuse_space", service="shop", type="heap")
    assert server.merge(query={"service": "shop", "type": "threadcreate"}).status_code == 200


def test_a_pod_of_kubernetes_arrives(server: Server, program: str, tmp_path: Path) -> None:
    address, _, port = program.rpartition(":")
    made = pod(
        annotations={
            "profiles.grafana.com/cpu.scrape": "true",
            "profiles.grafana.com/cpu.port_name": "pprof",
            "profiles.grafana.com/service_name": "till",
        },
        labels={"app.kubernetes.io/version": "1.7"},
        address=address,
    )
    scraping = Scraping(tmp_path, server.base_url, server.submit_key)
    with kubernetes_api() as api:
        api.put(port_of(made, "pprof", int(port)))
        scraping.environment["KUBECONFIG"] = str(api.kubeconfig(tmp_path))
        done = scraping.once("--kubernetes", "--seconds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    selection = {"service": "till", "type": "cpu", "labels": "version=1.7,namespace=default"}
    assert "main.work" in merged(server, tmp_path, "cpu", **selection)


def test_an_outage_of_the_collector_loses_nothing(program: str, tmp_path: Path) -> None:
    """It is down for one run, and gets what that spooled with the next."""
    with Server(tmp_path / "server") as server:
        scraping = Scraping(tmp_path, server.base_url, server.submit_key)
        scraping.list_targets([f"http://{program}/debug/pprof"], types=["cpu", "heap"], seconds=1)
        server.environment["PGOF_BIND_ADDRESS"] = server.base_url.removeprefix("http://")
        server.stop()
        done = scraping.once("--json")
        assert (done.returncode, json.loads(done.stdout)["waiting"]) == (1, 2)
        server.start()
        done = scraping.once("--json")
        assert (done.returncode, json.loads(done.stdout)["sent"]) == (0, 4)
        assert len(server.blobs()) == 4
