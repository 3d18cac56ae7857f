"""/readyz: it names whatever fails, while it fails, and costs little however often it is asked."""

from __future__ import annotations

import mmap
import os
import re
import signal
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.collector.workers.test_workers import wait_until, workers_of
from tests.faults.killer import Mode
from tests.faults.lane import KillableZygote, Lane
from tests.faults.mounts import read_only, small_disk
from tests.faults.stacks import profile_of
from tests.preloads import build_preload
from tests.server import Installed, Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "home") as server:
        yield server


def ready(server: Server) -> tuple[int, dict[str, str]]:
    """Wait until the last answer is too old to be given again; return the status, and what fails."""
    time.sleep(1.1)
    answer = server.client.get("/readyz")
    said: dict[str, Any] = answer.json()
    assert answer.headers["Cache-Control"] == "no-store"
    assert said["ready"] == (answer.status_code == 200) == (not said["fails"])
    assert {*said} == {"ready", "engine", "fails", "tasks", "rows"}
    return answer.status_code, said["fails"]


def test_it_is_ready_and_stays_so(server: Server) -> None:
    assert ready(server) == (200, {})
    assert server.client.head("/readyz").status_code == 200
    assert server.client.get("/ready").text == "ready\n"
    assert server.submit(profile_of("a")).status_code == 204
    assert ready(server) == (200, {})
    assert not list((server.data / "incoming").iterdir())
    assert not server.events("not ready")


def test_a_full_disk(tmp_path: Path) -> None:
    settings = {"PGOF_MIN_FREE_MEGABYTES": "1"}
    with small_disk(tmp_path / "disk", "4m") as disk, Server(disk / "home", settings) as server:
        assert ready(server) == (200, {})
        filler = disk / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(4 << 20))
        disk_full = "0.0 MiB are free, less than 1 (PGOF_MIN_FREE_MEGABYTES)"
        assert ready(server) == (503, {"store": "No space left on device", "disk": disk_full})
        assert server.wait_for_log("not ready")["fails"] == {
            "store": "No space left on device",
            "disk": disk_full,
        }
        pyroscopes = server.client.get("/ready")
        assert (pyroscopes.status_code, "disk: 0.0 MiB are free" in pyroscopes.text) == (503, True)
        assert server.submit(profile_of("a")).status_code == 500
        filler.unlink()
        assert ready(server) == (200, {})
        assert server.wait_for_log("ready again")


def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    """The probe's file still has room; a submit wouldn't."""
    settings = {"PGOF_MIN_FREE_MEGABYTES": "2.5"}
    with small_disk(tmp_path / "disk", "4m") as disk, Server(disk / "home", settings) as server:
        assert ready(server) == (200, {})
        filler = disk / "filler"
        filler.write_bytes(bytes(2 << 20))
        status, fails = ready(server)
        assert status == 503
        assert {*fails} == {"disk"}
        assert fails["disk"].endswith(" MiB are free, less than 2.5 (PGOF_MIN_FREE_MEGABYTES)")
        filler.unlink()
        assert ready(server) == (200, {})


def test_a_folder_that_is_read_only(server: Server) -> None:
    with read_only(server.data / "incoming"):
        assert ready(server) == (503, {"store": "Read-only file system"})
        assert server.submit(profile_of("a")).status_code == 500
    assert ready(server) == (200, {})


def test_a_folder_that_is_gone(server: Server) -> None:
    (server.data / "incoming").rename(server.data / "elsewhere")
    assert ready(server) == (503, {"store": "No such file or directory"})


def test_a_catalog_that_is_gone(server: Server) -> None:
    """The open file still works, but opening the path finds another file."""
    server.submit(profile_of("a"))
    for path in server.data.glob("catalog.sqlite3*"):
        path.unlink()
    (server.data / "catalog.sqlite3").write_bytes(b"no database " * 1000)
    status, fails = ready(server)
    assert status == 503
    assert {*fails} == {"catalog"}


def test_killed_workers_are_replaced(server: Server) -> None:
    server.submit(profile_of("a"))
    before = workers_of(server)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert ready(server) == (200, {})
    after = workers_of(server)
    assert after
    assert not {*before} & {*after}


def test_workers_that_hang_are_replaced(server: Server) -> None:
    server.submit(profile_of("a"))
    # /readyz asks idle workers only, and the first upkeep ends with a task for each.
    server.wait_for_log("upkeep done")
    wait_until(lambda: server.client.get("/readyz").json()["tasks"]["waiting"] == 0)
    before = workers_of(server)
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: ready(server) == (200, {}))
    assert not {*before} & {*workers_of(server)}
    assert server.submit(profile_of("b")).status_code == 204


def test_the_age_of_the_oldest_task_is_shown(tmp_path: Path) -> None:
    """Workers are stopped, and replaced a while later. Metrics don't ask them anything."""

    def oldest_seconds(server: Server) -> float:
        found = re.search(
            r"^pgo_collector_oldest_task_seconds (\S+)$", server.client.get("/metrics").text, re.MULTILINE
        )
        assert found
        return float(found[1])

    with Server(tmp_path, {"PGOF_METRICS_OPEN": "true"}) as server:
        server.submit(profile_of("a"))
        server.merge()
        assert oldest_seconds(server) == 0
        for pid in workers_of(server):
            os.kill(pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as clients:
            answer = clients.submit(server.merge, format_="folded")
            wait_until(lambda: oldest_seconds(server) > 0)
            assert answer.result().status_code == 200
        assert server.client.get("/readyz").json()["tasks"] == {"oldest_seconds": 0.0, "waiting": 0}


def test_a_storm_of_probes_costs_the_disk_nothing(tmp_path: Path, killable: KillableZygote) -> None:
    with Lane(tmp_path / "lane", killable) as lane:
        server = lane.start()
        lane.killer.arm(Mode.COUNT)
        begin = time.monotonic()
        with ThreadPoolExecutor(8) as probes:
            answers = [*probes.map(lambda _: server.client.get("/readyz").json()["fails"], range(400))]
        tries = 2 + (time.monotonic() - begin)
        lane.killer.disarm()
        assert [fails for fails in answers if fails] == [], server.log
        operations = lane.killer.operations
        assert any(operation.name == "fsync" for operation in operations)
        assert len([operation for operation in operations if operation.name == "fsync"]) <= tries


@pytest.mark.sqlite
def test_a_catalog_whose_reads_failed_for_a_moment(tmp_path: Path) -> None:
    """A read that fails looks like damage to SQLite."""
    left = tmp_path / "left"
    left.write_bytes(bytes(4))
    library = build_preload(Path(__file__).with_name("failing_reads.c"), tmp_path)
    settings = {"LD_PRELOAD": str(library), "FAILING_READS": str(left)}
    with (
        Server(tmp_path / "home", settings, launcher=Installed()) as server,
        left.open("r+b") as file,
        mmap.mmap(file.fileno(), 4) as reads,
    ):
        for name in map(str, range(300)):
            assert server.submit(profile_of(name)).status_code == 204
        assert ready(server) == (200, {})
        for each in range(1, 4):
            server.submit(profile_of(f"after {each}"))  # so that the merge isn't kept
            reads[:] = struct.pack("=i", 1)
            server.merge()
            assert reads[:] == bytes(4)
            assert ready(server) == (200, {})
        assert server.events("catalog damaged")
        assert len(server.events("catalog damaged")) == len(server.events("catalog not damaged"))
        assert server.merge().status_code == 200
