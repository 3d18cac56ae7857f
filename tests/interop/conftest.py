"""One collector for all tests here, the ways to reach it, and real profiles that it hasn't seen."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from pprof_proto import profile_pb2

from tests.interop.curl import Client
from tests.interop.nginx_process import running_nginx
from tests.server import Server

PROFILE = Path(__file__).parents[1] / "testdata" / "profiles" / "apisvc-v1-s1-002.pb.gz"
_PROXIED = ("nginx-buffers", "nginx-streams")
_WAYS = ["direct", *(pytest.param(way, marks=pytest.mark.system("nginx")) for way in _PROXIED)]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for the session: a test that needs an empty one starts its own."""
    with Server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(
    scope="session",
    params=_WAYS,
)
def url(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where clients send to: the collector itself, or nginx before it."""
    if request.param == "direct":
        yield server.base_url
        return
    buffers = request.param == "nginx-buffers"
    folder = tmp_path_factory.mktemp("nginx")
    with running_nginx(folder, server.base_url, request_buffering=buffers) as proxied:
        yield proxied


@pytest.fixture
def client(url: str, server: Server, tmp_path: Path) -> Client:
    """curl, to the collector in each of the ways."""
    return Client(url, server, tmp_path)


@pytest.fixture
def profile() -> bytes:
    """A real profile, gzipped, with a time that no other test's has: to a collector it is a new one."""
    return next(new_profiles)


@pytest.fixture
def another_profile() -> bytes:
    """As `profile`, of yet another time."""
    return next(new_profiles)


@pytest.fixture
def profiles() -> list[bytes]:
    """As `profile`, six of them."""
    return list(islice(new_profiles, 6))


def _retimed() -> Iterator[bytes]:
    parsed = profile_pb2.Profile.FromString(gzip.decompress(PROFILE.read_bytes()))
    while True:
        parsed.time_nanos += 1
        yield gzip.compress(parsed.SerializeToString())


new_profiles = _retimed()
