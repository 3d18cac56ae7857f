"""A collector with real profiles of the last two weeks, for browser tests."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from math import log
from pathlib import Path
from random import Random

from tests.collector.edits import taken_at
from tests.collector.recorded_traces import SUBMIT, put_traces
from tests.merge.stacked import heap_of
from tests.merge.tracked import BELOW, MS, Events, tracked
from tests.oracle.builder import seeded
from tests.oracle.oracle import go_root
from tests.server import Server

PROFILES = Path(__file__).parents[1] / "testdata" / "profiles"
POSTGRES = PROFILES.with_name("postgres")
_HOUR = 3600 * 10**9
_HOSTS = 5
SERVICE = "/ui/services/apisvc"
WAITS = "/ui/services/db/latency?type=offcpu"
PAGES = {
    "services": "/ui/",
    "flame": SERVICE,
    "search": f"{SERVICE}?search=malloc",
    "upright": f"{SERVICE}?layout=flame&by=line&recursion=collapse",
    "grouped": f"{SERVICE}?group=version",
    "filtered": f"{SERVICE}?focus=ServeHTTP&hide=%5Eruntime%5C.&by=package",
    "live": f"{SERVICE}/live",
    "values": f"{SERVICE}/top?choose=version&labels=instance!%3Dweb-1",
    "memory": "/ui/services/cached?type=heap&sample_type=alloc_space",
    "top": f"{SERVICE}/top",
    "packages": f"{SERVICE}/top?by=package&sort=cum",
    "no base": f"{SERVICE}/diff",
    "diff": f"{SERVICE}/diff?labels=version%3D1.5.0&base_labels=version%3D1.4.2",
    "function": f"{SERVICE}/function?function=runtime.mallocgc",
    "no function": f"{SERVICE}/function",
    "no series": f"{SERVICE}/series",
    "unnamed": f"{SERVICE}/unnamed",
    "series": f"{SERVICE}/series?function=runtime.mallocgc&step=hour",
    "build": f"{SERVICE}/build",
    "latencies": f"{WAITS}&from=2020-01-01",
    "two windows": f"{WAITS}&base_labels=instance%3Ddb-1",
    "some latencies": "/ui/services/db?type=offcpu&latency_from=16777216ns&latency_to=33554432ns",
    "compiler": "/ui/services/compiler",
    "file": "/ui/file",
    "traces": "/ui/traces",
    "trace": f"/ui/traces/{SUBMIT}",
}


@dataclass(frozen=True)
class Deployment:
    """A version of a service that ran from one time to another, given in hours ago.

    It sent its profiles, the given files in turn, at a fixed interval in hours.
    """

    files: str
    service: str
    version: str
    region: str
    hours: range


DEPLOYMENTS = [
    Deployment("apisvc-v1-*", "apisvc", "1.4.2", "eu", range(290, 60, -7)),
    Deployment("apisvc-v2-*", "apisvc", "1.5.0", "us", range(60, 0, -3)),
    Deployment("etl-*", "etl", "7", "eu", range(312, 0, -24)),
    Deployment("lintd-*", "lintd", "2026.11", "eu", range(100, 0, -9)),
]


def fill(server: Server) -> None:
    """Submit the services' profiles, and the profile of Go's compiler, which is a merge of many."""
    fill_with_services(server)
    merged = (go_root() / "src/cmd/compile/default.pgo").read_bytes()
    submit(server, taken_at(merged, time.time_ns() - _HOUR), "compiler", "version=go1.27")


def fill_with_services(server: Server) -> None:
    """Submit the deployments' profiles, and those of a database and of a cache."""
    now = time.time_ns()
    for deployment in DEPLOYMENTS:
        paths = sorted(PROFILES.glob(deployment.files))
        for number, hours in enumerate(deployment.hours):
            labels = (
                f"version={deployment.version},region={deployment.region},instance=web-{number % _HOSTS + 1}"
            )
            content = taken_at(paths[number % len(paths)].read_bytes(), now - hours * _HOUR)
            submit(server, content, deployment.service, labels)
    fill_with_waits(server, now)
    fill_with_memory(server, now)
    put_traces(server)


def fill_with_memory(server: Server, now: int) -> None:
    """Submit heap profiles of a service whose cache grows from hour to hour."""
    for hour in range(24):
        hours = 24 - hour
        cached = hours << 20
        stacks = {
            "main.main;cache.Fill;cache.grow": [900 * hours, 2 * cached, 300, cached],
            "main.main;net/http.serve;bytes.growSlice": [5000 * hours, hours * 80 << 20, 10, 1 << 20],
        }
        content = heap_of(stacks, time_nanos=now - hour * _HOUR - _HOUR // 2)
        labels = f"version={2 if hour < 12 else 1},instance=cache-{hour % 3}"
        answer = server.submit(content, query={"service": "cached", "type": "heap", "labels": labels})
        assert answer.status_code == 204, answer.text


def fill_with_waits(server: Server, now: int) -> None:
    """Submit a profile of a latency tracker for each of the last 60 hours of a database, with a storm."""
    random = seeded(15)
    for hour in range(60):
        content = tracked(
            _waits(random, is_storm=10 <= hour < 16), time_nanos=now - hour * _HOUR - _HOUR // 2
        )
        answer = server.submit(content, query={"service": "db", "type": "offcpu", "labels": "instance=db-1"})
        assert answer.status_code == 204, answer.text


def _waits(random: Random, *, is_storm: bool) -> list[Events]:
    """Return waits of an hour: for clients, for the log's disk and, mostly in a storm, for a row's lock."""
    found: Counter[tuple[str, int]] = Counter()
    delays: Counter[tuple[str, int]] = Counter()
    for stack, median, spread, count in (
        ("main;ServerLoop;secure_read;epoll_wait", 2 * MS, 1.6, 900),
        ("main;exec_simple_query;CommitTransaction;XLogFlush;fsync", 3 * MS, 0.5, 300),
        ("main;exec_simple_query;ExecUpdate;XactLockTableWait;semop", 40 * MS, 0.7, 400 if is_storm else 4),
    ):
        for _ in range(count):
            delay = int(random.lognormvariate(log(median), spread))
            key = (stack if delay >= MS else BELOW, 1 << (delay.bit_length() - 1))
            found[key] += 1
            delays[key] += delay
    return [Events(*key, waits, delays[key]) for key, waits in found.items()]


def fill_with_postgres(server: Server) -> None:
    """Submit the profiles of the PostgreSQL tutorial: pgbench's lookups, planned each time, and prepared."""
    for number, protocol in enumerate(("simple", "prepared"), start=1):
        content = (POSTGRES / f"{protocol}.pb.gz").read_bytes()
        submit(server, taken_at(content, time.time_ns() - number * _HOUR), "postgres", f"protocol={protocol}")


def submit(server: Server, content: bytes, service: str, labels: str) -> None:
    """Submit one profile."""
    answer = server.submit(content, query={"service": service, "labels": labels})
    assert answer.status_code == 204, answer.text
