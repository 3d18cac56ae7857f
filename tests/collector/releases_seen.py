"""Releases as clients see them, and profiles that drift apart."""

from __future__ import annotations

from typing import Any

import pprof_merge

from tests.collector.conftest import PROFILES
from tests.server import Server

Known = dict[str, Any]
SOON = {"PGOF_RELEASE_CHECK_SECONDS": "0"}


def profiles_of(pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(PROFILES.glob(f"{pattern}.pb.gz"))]


VERSION_1, VERSION_2 = profiles_of("apisvc-v1-*"), profiles_of("apisvc-v2-*")
OTHER_PROGRAM = profiles_of("compile-*")


def merge_of(profiles: list[bytes]) -> pprof_merge.Profile:
    return pprof_merge.merge(map(pprof_merge.decode, profiles))


def submit_all(server: Server, profiles: list[bytes]) -> None:
    for profile in profiles:
        assert server.submit(profile).status_code == 204


def listed(server: Server) -> list[Known]:
    answer = server.releases()
    assert answer.status_code == 200, answer.text
    releases: list[Known] = answer.json()["releases"]
    return releases


def state(server: Server) -> tuple[list[int], int, bool]:
    """Return the numbers of all releases, the current one's number, and whether it is pinned."""
    releases = listed(server)
    (current,) = (release for release in releases if release["current"])
    return [release["number"] for release in releases], current["number"], current["pinned"]


def number_in(server: Server) -> int:
    answer = server.release()
    assert answer.status_code == 200, answer.text
    return int(answer.headers["PGO-Release"])
