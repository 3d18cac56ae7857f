"""Settings for all tests: how hypothesis runs, which kill points are drawn, which signals programs get."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings

from tests.catalogs import Schemas
from tests.interop import ceph_cluster, postgres_cluster
from tests.interop.ceph_cluster import Gateway, running_ceph
from tests.interop.postgres_cluster import running_postgres
from tests.server import Server
from tests.zygote import Zygote

# Nothing is timed: a busy machine is no fault of the code's.
settings.register_profile(
    "untimed", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")
# What `make exhaustive` tries.
settings.register_profile("long", max_examples=160)
# For hours in which there is time for more: `make test ARGS="--hypothesis-profile campaign …"`.
settings.register_profile("campaign", max_examples=1600)

# Temporary files are in memory where there is room for them, since the tests sync thousands of files and
# folders, and a disk that something else writes to makes each of them wait.
_MEMORY, _MEMORY_BYTES = "/dev/shm", 4 << 30  # noqa: S108 - pytest makes folders in it that only its user reads
if os.path.isdir(_MEMORY) and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES:  # noqa: PTH112
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)

# A shell has what it starts in the background ignore Ctrl-C, and the programs under test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "draws the operations on disk at which servers are killed; by default another one each time"
    parser.addoption("--kill-seed", type=int, default=secrets.randbelow(1 << 32), help=help_)
    help_ = "where collectors have their blobs; tests of what only a folder has are left out with s3"
    parser.addoption("--storage", choices=["folder", "s3"], default="folder", help=help_)
    help_ = "where collectors have their catalogs; tests of what only a file has are left out with postgresql"
    parser.addoption("--catalog", choices=["sqlite", "postgresql"], default="sqlite", help=help_)


def pytest_report_header(config: pytest.Config) -> str:
    options = ("kill_seed", "storage", "catalog")
    return " ".join(f"--{name.replace('_', '-')}={config.getoption(name)}" for name in options)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    of_others = ["bucket" if config.getoption("storage") == "folder" else "folder"]
    if config.getoption("catalog") != "sqlite":
        of_others.append("sqlite")
    left_out = [item for item in items if any(map(item.get_closest_marker, of_others))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def zygote() -> Iterator[Zygote]:
    """The process that collectors are forked from."""
    zygote = Zygote()
    Server.launcher = zygote
    yield zygote
    zygote.close()


@pytest.fixture(scope="session")
def gateway() -> Iterator[Gateway]:
    """The S3 gateway of a Ceph."""
    if ceph_cluster.MISSING:
        pytest.skip(ceph_cluster.MISSING)
    with running_ceph() as gateway:
        yield gateway


@pytest.fixture(scope="session", autouse=True)
def _storages(request: pytest.FixtureRequest) -> None:
    """Have collectors keep their blobs in a bucket, if the option says so."""
    if request.config.getoption("storage") == "s3":
        from tests.bucket_storages import Prefixes  # noqa: PLC0415 - it needs an extra

        Server.storages = Prefixes(request.getfixturevalue("gateway"))


@pytest.fixture(scope="session", autouse=True)
def _catalogs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have collectors use catalogs in a PostgreSQL, if the option says so."""
    with ExitStack() as stack:
        if request.config.getoption("catalog") == "postgresql":
            if postgres_cluster.MISSING:
                pytest.skip(postgres_cluster.MISSING)
            Server.catalogs = Schemas(stack.enter_context(running_postgres(scale=0)).port)
        yield
