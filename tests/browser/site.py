"""A collector with real profiles of the last two weeks, for browser tests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.collector.edits import taken_at
from tests.oracle.oracle import go_root
from tests.server import Server

PROFILES = Path(__file__).parents[1] / "testdata" / "profiles"
POSTGRES = PROFILES.with_name("postgres")
_HOUR = 3600 * 10**9
_HOSTS = 5


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
    """Submit the deployments' profiles, and the profile of Go's compiler, which is a merge of many."""
    now = time.time_ns()
    for deployment in DEPLOYMENTS:
        paths = sorted(PROFILES.glob(deployment.files))
        for number, hours in enumerate(deployment.hours):
            labels = (
                f"version={deployment.version},region={deployment.region},instance=web-{number % _HOSTS + 1}"
            )
            content = taken_at(paths[number % len(paths)].read_bytes(), now - hours * _HOUR)
            submit(server, content, deployment.service, labels)
    merged = (go_root() / "src/cmd/compile/default.pgo").read_bytes()
    submit(server, taken_at(merged, now - _HOUR), "compiler", "version=go1.27")


def fill_with_postgres(server: Server) -> None:
    """Submit the profiles of the PostgreSQL tutorial: pgbench's lookups, planned each time, and prepared."""
    for number, protocol in enumerate(("simple", "prepared"), start=1):
        content = (POSTGRES / f"{protocol}.pb.gz").read_bytes()
        submit(server, taken_at(content, time.time_ns() - number * _HOUR), "postgres", f"protocol={protocol}")


def submit(server: Server, content: bytes, service: str, labels: str) -> None:
    """Submit one profile."""
    answer = server.submit(content, query={"service": service, "labels": labels})
    assert answer.status_code == 204, answer.text
