"""PostgreSQL under pgbench, profiled by each profiler that works here, up to the merge of a collector."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_agent.backends import backends
from pprof_proto.profile_pb2 import Profile

from tests.agent.sampling import working
from tests.agent.serving import Serving, parsed
from tests.cpu_meter import CpuMeter, children_of
from tests.interop.go_toolchain import go
from tests.interop.postgres_cluster import MISSING, Cluster, running_postgres
from tests.server import Server

pytestmark = [pytest.mark.system, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
IN_REQUESTS = {"bcc": "BccProfile", "perf": "Perf", "bpftrace": "Bpftrace"}
SECONDS = 6
# So many samples that chance has no part in the outcome.
FREQUENCY = 499
# It is busy for a third of the time; more would take the other tests' CPU.
QUERIES = ("--rate", "2000")
CONNECTIONS = ("-C", "--rate", "100")
# Functions that every query goes through, the outermost first.
OF_POSTGRES = {b"main", b"PostmasterMain", b"PostgresMain", b"PortalRun", b"standard_ExecutorRun"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Another PostgreSQL may run on the machine.
    with running_postgres(name=f"pg-{os.getpid()}") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("agent"), "--executable", cluster.name) as agent:
        yield agent


@pytest.fixture(
    scope="module",
    params=[pytest.param(of, marks=pytest.mark.alike(1)) for of in ("bcc", "perf", "bpftrace")],
)
def profiler(request: pytest.FixtureRequest) -> str:
    """One that works here, as requests call it."""
    working(backends()[request.param])
    return IN_REQUESTS[request.param]


def of_processes(profile: Profile, pids: set[int]) -> Profile:
    """The part of a profile that is of these."""
    kept = Profile()
    kept.CopyFrom(profile)
    pid = [*profile.string_table].index(b"pid")
    del kept.sample[:]
    kept.sample.extend(
        sample for sample in profile.sample if {of.num for of in sample.label if of.key == pid} <= pids
    )
    return kept


def functions_in(profile: Profile) -> set[bytes]:
    """The system names of all functions in samples."""
    names = {of.id: profile.string_table[of.system_name] for of in profile.function}
    lines = {of.id: [names[line.function_id] for line in of.line] for of in profile.location}
    return {name for sample in profile.sample for id_ in sample.location_id for name in lines[id_]}


def total(profile: Profile) -> tuple[int, int]:
    """Samples and nanoseconds."""
    samples, nanoseconds = (sum(sample.value[of] for sample in profile.sample) for of in (0, 1))
    return samples, nanoseconds


@pytest.mark.exhaustive  # `test_the_schedule_pushes_and_a_merge_gives_it_back` samples them, too
def test_its_backends_are_sampled_as_often_as_they_were_busy(
    agent: Serving, cluster: Cluster, profiler: str, tmp_path: Path
) -> None:
    """Takes over 20 s where nothing is in Go's cache: Go builds its pprof on first use."""
    with CpuMeter(cluster.pid) as meter, cluster.pgbench(600, *QUERIES):
        response = agent.post(profiler, SECONDS, sampling_frequency=FREQUENCY)
        pids = {cluster.pid, *children_of(cluster.pid)}
    assert response.status_code == 200, response.text
    profile = of_processes(parsed(response.content), pids)
    samples, nanoseconds = total(profile)
    taken = meter.seconds(profile.time_nanos, profile.duration_nanos)
    assert taken > 0.3, "pgbench kept it idle"
    assert samples / FREQUENCY == pytest.approx(taken, rel=0.3)
    assert nanoseconds / 1e9 == pytest.approx(taken, rel=0.3)
    assert functions_in(profile) >= OF_POSTGRES
    text = profile.string_table
    binaries = {(text[of.filename].decode(), text[of.build_id].decode()) for of in profile.mapping}
    ((path, build_id),) = ((path, id_) for path, id_ in binaries if path.endswith("/bin/postgres"))
    assert build_id in text_of_notes(Path(path))

    (tmp_path / "cpu.pb").write_bytes(response.content)
    top = go("tool", "pprof", "-top", "-cum", tmp_path / "cpu.pb")
    assert "Type: cpu" in top
    assert "PostgresMain" in top


def text_of_notes(binary: Path) -> str:
    """All of a binary, in hexadecimal: its build id is somewhere in there."""
    return binary.read_bytes().hex()


@pytest.mark.exhaustive  # each profiler's own tests have processes that come and go
def test_connections_that_come_later_are_in_it(agent: Serving, cluster: Cluster, profiler: str) -> None:
    """pgbench connects again for each transaction, so each of those processes lives for a few ms."""
    before = {cluster.pid, *children_of(cluster.pid)}
    with cluster.pgbench(600, *CONNECTIONS):
        response = agent.post(profiler, SECONDS, sampling_frequency=FREQUENCY)
    profile = parsed(response.content)
    pid = [*profile.string_table].index(b"pid")
    later = {of.num for sample in profile.sample for of in sample.label if of.key == pid} - before
    assert len(later) > 10
    of_later = of_processes(profile, later)
    assert b"PostgresMain" in functions_in(of_later)
    # Those that ended before anybody could look at their memory have that of the postmaster.
    known, unknown = in_files(of_later)
    assert known > 50
    assert unknown < known / 10


@pytest.mark.exhaustive  # as above
def test_connections_of_two_servers_have_the_functions_of_their_own(
    profiler: str, cluster: Cluster, tmp_path: Path
) -> None:
    """Both have one name, and processes that live for a few ms. Takes over 20 s: it starts a server."""
    with (
        running_postgres(name=cluster.name) as other,
        cluster.pgbench(600, *CONNECTIONS),
        other.pgbench(600, *CONNECTIONS),
        Serving(tmp_path, "--executable", cluster.name) as agent,
    ):
        response = agent.post(profiler, SECONDS, sampling_frequency=FREQUENCY)
    known, unknown = in_files(parsed(response.content))
    assert known > 100
    assert unknown < known / 100


def in_files(profile: Profile) -> tuple[int, int]:
    """The numbers of samples with frames of files, and of those with none, of all that were in a program."""
    locations = {of.id: of for of in profile.location}
    in_user_space = [
        (
            [locations[id_].mapping_id for id_ in sample.location_id if locations[id_].address < 1 << 63],
            sample,
        )
        for sample in profile.sample
    ]
    known = sum(sample.value[0] for mappings, sample in in_user_space if any(mappings))
    return known, sum(sample.value[0] for mappings, sample in in_user_space if mappings and not any(mappings))


def test_the_schedule_pushes_and_a_merge_gives_it_back(cluster: Cluster, tmp_path: Path) -> None:
    """Takes over 20 s on a busy machine: it waits for its moment, and each profiler is tried for a second."""
    with Server(tmp_path / "collector") as collector, cluster.pgbench(300, *QUERIES):
        pushing = ("--url", collector.base_url, "--submit-key-file", collector.submit_keys)
        kept = ("--spool", tmp_path / "spool", "--every", "6", "--duration", "2")
        sent = ("--service", "database", "--label", "region=eu")
        with Serving(tmp_path, *pushing, *kept, *sent, "--executable", cluster.name) as agent:
            deadline = time.monotonic() + 200
            while (merge := collector.merge(query={"service": "database"})).status_code != 200:
                assert time.monotonic() < deadline, agent.log
                time.sleep(0.5)
            assert agent.stop() == 0
    merged = parsed(merge.content)
    assert functions_in(merged) >= OF_POSTGRES
    assert total(merged)[1] == pytest.approx(total(merged)[0] * 1e9 / 99, rel=0.01)
