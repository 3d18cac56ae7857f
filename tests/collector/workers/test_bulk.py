"""Bulk reads on a Dask cluster: the same bytes as without one, whatever of the cluster dies."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.dask_processes import DaskCluster
from tests.collector.edits import taken_at
from tests.collector.serve.test_check import checked
from tests.collector.visitor import Visitor
from tests.constants import LEAST_UNREAD, WARMING_PAUSE
from tests.server import Server

_COUNT = 80
_BULK = 16
# Dask's client tries to connect again for 5 seconds.
_GIVES_UP_SECONDS = 9.0
_TRIES_SECONDS = 2.0
_NANOS = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskCluster]:
    """A cluster of one worker, which has several threads."""
    with DaskCluster() as cluster:
        yield cluster


@pytest.fixture
def filled(stopped: Server, go_profiles: list[bytes]) -> Server:
    """A stopped collector with profiles that no worker has read, as after a kill without rows."""
    stopped.start()
    for number in range(_COUNT):
        profile = taken_at(go_profiles[number % len(go_profiles)], _NANOS + number)
        assert stopped.submit(profile, query={"service": f"s{number % 2}"}).status_code == 204
    lose_rows(stopped)
    return stopped


def use(server: Server, cluster: DaskCluster, **environment: str) -> None:
    """Have a server read on a cluster what a merge finds unread; nothing is read ahead."""
    of_cluster = {"PGOF_BULK": cluster.address, LEAST_UNREAD: f"{_BULK}", WARMING_PAUSE: "3600"}
    server.environment |= of_cluster | environment


def lose_rows(server: Server) -> None:
    server.kill()
    for file in (server.data / "rows").iterdir():
        file.unlink()


def answers_alone(server: Server) -> list[bytes]:
    """Return the answers without a cluster; nothing is read afterwards."""
    server.start()
    alone = answers(server)
    lose_rows(server)
    return alone


def answers(server: Server) -> list[bytes]:
    """Return the merges of both services, and the table over both."""
    merges = [server.merge(query={"service": f"s{number}"}).content for number in range(2)]
    return [*merges, server.ask("/v1/top", service="*").content]


def test_the_answers_are_the_same_as_without_a_cluster(filled: Server, cluster: DaskCluster) -> None:
    alone = answers_alone(filled)
    use(filled, cluster, PGOF_METRICS_OPEN="true")
    filled.start()
    assert answers(filled) == alone
    read = {line["owner"]: line["read"] for line in filled.events("bulk read progressed")}
    assert read == {"s0/cpu": _COUNT // 2, "s1/cpu": _COUNT // 2}
    assert "pgo_collector_bulk_profiles 0.0" in filled.client.get("/metrics").text
    assert filled.stop() == 0
    filled.start()
    assert answers(filled) == alone
    assert not filled.events("bulk read started")  # the rows that the cluster read are on disk
    assert filled.stop() == 0
    filled.reindex()
    filled.start()
    assert answers(filled) == alone


@pytest.mark.any_store
def test_few_unread_profiles_are_read_here(filled: Server, cluster: DaskCluster) -> None:
    use(filled, cluster, **{LEAST_UNREAD: str(_COUNT)})
    filled.start()
    answers(filled)
    assert not filled.events("bulk read started")


def test_an_unreadable_blob_is_left_out_as_without_a_cluster(filled: Server, cluster: DaskCluster) -> None:
    damaged = filled.blobs()[7]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    use(filled, cluster)
    filled.start()
    merges = [filled.merge(query={"service": f"s{number}"}) for number in range(2)]
    assert [merge.status_code for merge in merges] == [200, 200]
    (left,) = {line["blob"] for line in filled.events("blob left out")}
    assert damaged.name in left


@pytest.mark.any_store
def test_a_scheduler_that_is_not_there_costs_nothing_but_time(filled: Server) -> None:
    filled.start()
    alone = filled.ask("/v1/top", service="s0").content
    lose_rows(filled)
    filled.environment |= {"PGOF_BULK": "dask://127.0.0.1:9", LEAST_UNREAD: f"{_BULK}"}
    filled.start()
    assert filled.ask("/v1/top", service="s0").content == alone
    assert filled.events("cluster failed")


@pytest.mark.exhaustive
@pytest.mark.alike(1)
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
def test_a_scheduler_that_goes_costs_nothing_but_time(filled: Server, name: str) -> None:
    alone = answers_alone(filled)
    with DaskCluster() as cluster:
        for worker in cluster.workers:  # so that the work is not done before
            worker.signal(signal.SIGSTOP)
        use(filled, cluster, PGOF_TASK_SECONDS="10")
        filled.start()
        filled.wait_for_log("bulk read started")
        cluster.scheduler.signal(signal.Signals[name])
        assert answers(filled) == alone
    assert filled.events("cluster failed")


@pytest.mark.exhaustive
def test_a_scheduler_that_went_before_is_noticed(filled: Server, go_profiles: list[bytes]) -> None:
    """Dask's client closes itself then; the next call of it fails at once."""
    with DaskCluster() as cluster:
        use(filled, cluster)
        filled.start()
        answers(filled)
        cluster.scheduler.signal(signal.SIGKILL)
        time.sleep(_GIVES_UP_SECONDS)
        for number in range(_COUNT // 2):
            profile = taken_at(go_profiles[0], 2 * _NANOS + number)
            assert filled.submit(profile, query={"service": "s0"}).status_code == 204
        assert filled.merge(query={"service": "s0"}).status_code == 200
    assert filled.events("cluster failed")
    assert not filled.events("unexpected error")


@pytest.mark.exhaustive
def test_a_server_that_stops_logs_no_error_of_a_client_that_connects_again(filled: Server) -> None:
    with DaskCluster() as cluster:
        use(filled, cluster)
        filled.start()
        answers(filled)
        cluster.scheduler.signal(signal.SIGKILL)
        time.sleep(_TRIES_SECONDS)
        assert filled.stop() == 0
    assert not [line for line in filled.log if line["level"] == "error"]


# Loaded by each process of a worker: what it answers is a program for whoever unpickles it.
_ROGUE = """
import copyreg, os, pickle
from pathlib import Path
import distributed
from distributed.protocol import dask_serialize
from pgo_collector.workers import bulk_parts

CODE = f"import sys\\nif 'pgo_collector.serve.server' in sys.modules: open({os.environ['ROGUE_FILE']!r}, 'w')"

class Evil:
    def __reduce__(self):
        return exec, (CODE,)

class Kind(type):
    pass

class OfKind(metaclass=Kind):
    pass

copyreg.pickle(Kind, lambda kind: (exec, (CODE,)))
dask_serialize.register(OfKind)(lambda of: ({}, []))

def rogue(*arguments):
    said = b'{"fails": 1}'
    match Path(os.environ["ROGUE_MODE"]).read_text():
        case "error":
            raise ValueError(Evil())
        case "warning":
            distributed.get_worker().log_event("warn", {"message": pickle.dumps(Evil())})
        case "result":
            return Evil()
        case "nested":
            return [b"bytes", {"more": Evil()}]
        case "type":
            return OfKind()
        case "no answer":
            return b"x"
        case "no JSON":
            return len(said).to_bytes(8, "little") + said[1:]
        case "others":
            said = b'{"of/another/blob": "why"}'
        case "no rows":
            said = b"{}"
        case "rows":
            said = b"{}" + pickle.dumps(Evil())
            return (2).to_bytes(8, "little") + said
    return len(said).to_bytes(8, "little") + said

bulk_parts.read_part = bulk_parts.inspect_part = rogue
"""
_IGNORED = "no rows", "rows"


@pytest.mark.sqlite
@pytest.mark.folder
@pytest.mark.parametrize(
    "modes",
    [
        ("error", "warning", "type"),
        pytest.param(
            ("result", "nested", "no answer", "no JSON", "others", *_IGNORED), marks=pytest.mark.exhaustive
        ),
    ],
    ids=" ".join,
)
def test_what_a_rogue_worker_answers_runs_nowhere(
    filled: Server, tmp_path: Path, modes: tuple[str, ...]
) -> None:
    alone = answers_alone(filled)
    (tmp_path / "sitecustomize.py").write_text(_ROGUE)
    made, mode = tmp_path / "made", tmp_path / "mode"
    rogue = {"PYTHONPATH": str(tmp_path), "ROGUE_FILE": str(made), "ROGUE_MODE": str(mode)}
    with DaskCluster(rogue) as cluster:
        use(filled, cluster)
        for each in modes:
            mode.write_text(each)
            filled.start()
            assert answers(filled) == alone, each
            assert not made.exists(), each
            assert bool(filled.events("cluster failed")) == (each not in _IGNORED), each
            lose_rows(filled)
        filled.reindex()
        filled.start()
        assert answers(filled) == alone
        assert not made.exists()


@pytest.mark.exhaustive
def test_a_worker_that_dies_costs_its_range(filled: Server) -> None:
    alone = answers_alone(filled)
    with DaskCluster(workers=2) as cluster:
        for worker in cluster.workers:
            worker.signal(signal.SIGSTOP)
        use(filled, cluster)
        filled.start()
        filled.wait_for_log("bulk read started")
        cluster.workers[0].signal(signal.SIGKILL)
        cluster.workers[1].signal(signal.SIGCONT)
        assert answers(filled) == alone
    assert not filled.events("cluster failed")


@pytest.mark.exhaustive
def test_a_server_that_stops_cancels_its_ranges(filled: Server) -> None:
    from distributed import Client  # noqa: PLC0415 - it takes half a second to import

    with DaskCluster() as cluster:
        for worker in cluster.workers:
            worker.signal(signal.SIGSTOP)
        use(filled, cluster)
        filled.start()
        filled.wait_for_log("bulk read started")
        page = Visitor(filled).page("/ui/traces").text
        assert f"The Dask cluster is reading {_COUNT // 2} stored profiles, and has read 0 of them." in page
        assert filled.stop() == 0
        for worker in cluster.workers:
            worker.signal(signal.SIGCONT)
        with Client(cluster.address.replace("dask", "tcp"), set_as_default=False) as client:
            deadline = time.monotonic() + 60
            while client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
                assert time.monotonic() < deadline
                time.sleep(0.1)


@pytest.mark.sqlite
@pytest.mark.folder
def test_a_check_counts_the_workers(stopped: Server, cluster: DaskCluster) -> None:
    stopped.environment["PGOF_BULK"] = cluster.address
    assert checked(stopped)["bulk"] == ("ok", f"workers of {cluster.address}: 1", "")


@pytest.mark.exhaustive
@pytest.mark.sqlite
@pytest.mark.folder
def test_a_check_warns_of_a_cluster_without_workers(stopped: Server) -> None:
    with DaskCluster() as cluster:
        stopped.environment["PGOF_BULK"] = cluster.address
        for worker in cluster.workers:
            worker.stop()
        assert checked(stopped)["bulk"][:2] == ("warning", f"{cluster.address} has no workers")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("cluster", "must be dask://host:port or dask+tls://host:port"),
        ("tcp://127.0.0.1:8786", "must be dask://host:port or dask+tls://host:port"),
        ("dask://127.0.0.1", "must be host:port"),
    ],
)
def test_other_values_are_refused(stopped: Server, value: str, said: str) -> None:
    stopped.environment["PGOF_BULK"] = value
    ended = stopped.run("serve")
    assert (ended.returncode, "PGOF_BULK" in ended.stderr, said in ended.stderr) == (2, True, True)
