"""Settings for all tests: how hypothesis runs, which cases are drawn, which signals programs get."""

from __future__ import annotations

import gc
import os
import re
import secrets
import shutil
import signal
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.catalogs import Files
from tests.interop import azurite as azurite_server
from tests.interop import ceph_cluster
from tests.interop.azurite import Azurite
from tests.interop.ceph_cluster import Gateway, running_cluster
from tests.server import Server
from tests.shared_parts import SharedParts
from tests.storages import Folders
from tests.zygote import Zygote

# Nothing is timed: a busy machine is no fault of the code's.
settings.register_profile(
    "quick", max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quick")
# What `make test-all` tries.
settings.register_profile("long", max_examples=160)
# What CI tries of that, each time others.
settings.register_profile("ci", max_examples=30)
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
    help_ = "draws kill points, and the cases of `--cases drawn`; by default another one each time"
    parser.addoption("--kill-seed", type=int, default=secrets.randbelow(1 << 32), help=help_)
    help_ = "of kill points, tests marked `alike`, and repeats on another storage: all, or a drawn few"
    parser.addoption("--cases", choices=["all", "drawn"], default="all", help=help_)
    help_ = "where collectors have their blobs"
    parser.addoption("--storage", choices=["folder", "s3", "azure"], default="folder", help=help_)
    help_ = "where collectors have their catalogs"
    parser.addoption("--catalog", choices=["sqlite", "postgresql"], default="sqlite", help=help_)


def pytest_report_header(config: pytest.Config) -> str:
    options = ("kill_seed", "cases", "storage", "catalog")
    return " ".join(f"--{name.replace('_', '-')}={config.getoption(name)}" for name in options)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: it is a third of the CPU time, and finds next to none.

    What stays is not looked at later, either.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# A module all of whose tests have a marker that `make test` leaves out.
_LEFT_OUT = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.(exhaustive|system)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules none of whose tests would run, before they are imported, unless they are named."""
    if config.option.markexpr != "not exhaustive and not system":
        return None
    if any(Path(named.partition("::")[0]).name == collection_path.name for named in config.args):
        return None
    is_folder = collection_path.is_dir()
    modules = list(collection_path.rglob("test_*.py")) if is_folder else [collection_path]
    of_python = [module.read_text() for module in modules if module.suffix == ".py"]
    return True if of_python and all(map(_LEFT_OUT.search, of_python)) else None


@pytest.hookimpl(trylast=True)  # once `-m` has left out what it does
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs another storage or catalog than the options say.

    With both options, a test of what only a folder or a file has gets that, beside the other shared part.
    """
    bucket = config.getoption("storage") != "folder"
    postgresql = config.getoption("catalog") == "postgresql"

    def is_left_out(item: pytest.Item) -> bool:
        if not bucket and not postgresql:
            return bool(item.get_closest_marker("bucket") or item.get_closest_marker("shared"))
        of_folder, of_file = map(item.get_closest_marker, ("folder", "sqlite"))
        if item.get_closest_marker("any_store") and (bucket or postgresql):
            return True
        if item.get_closest_marker("bucket") and config.getoption("storage") != "s3":
            return True  # it does more with the Ceph than store in it
        if bucket and postgresql:
            return bool(of_folder and of_file)
        return bool(item.get_closest_marker("shared") or (of_folder and bucket) or (of_file and postgresql))

    left_out = {item for item in items if is_left_out(item)}
    if config.getoption("cases") == "drawn":
        left_out |= _not_drawn([item for item in items if item not in left_out], config)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = _long_first([item for item in items if item not in left_out], config)


_OF_STORES = frozenset({"backups", "blobs", "catalog", "starting", "store", "upkeep"})


def _not_drawn(items: Sequence[pytest.Item], config: pytest.Config) -> set[pytest.Item]:
    """Return what a run with `--cases drawn` leaves out.

    Of the cases of a test marked `alike(n)`, n are drawn, or of all tests of a `family`. Of the images, one
    is. On another storage or catalog, a sixth of the modules of rooms above the store is drawn: without these
    options, all run.
    """
    alike: dict[str, list[pytest.Item]] = {}
    for item in items:
        if mark := item.get_closest_marker("alike"):
            alike.setdefault(mark.kwargs.get("family", item.nodeid.partition("[")[0]), []).append(item)
    left_out: set[pytest.Item] = set()
    for test, cases in alike.items():
        (count,) = next(cases[0].iter_markers("alike")).args
        left_out.update(_draw(config, test).sample(cases, max(0, len(cases) - count)))
    images = sorted({item.path for item in items if item.path.parent.name == "image"})
    not_built = {*_draw(config, "images").sample(images, max(0, len(images) - 1))}
    left_out.update(item for item in items if item.path in not_built)
    if config.getoption("storage") != "folder" or config.getoption("catalog") != "sqlite":
        others = sorted({item.path for item in items if not _is_of_a_store(item)})
        drawn = {*_draw(config, "stores").sample(others, -(-len(others) // 6))}
        left_out.update(item for item in items if not _is_of_a_store(item) and item.path not in drawn)
    return left_out


def _draw(config: pytest.Config, what: str) -> Random:
    return Random(f"{config.getoption('kill_seed')} {what}")  # noqa: S311 - nothing secret


def _is_of_a_store(item: pytest.Item) -> bool:
    """Return whether a test is of the store and what is below it, or of what only some storages have."""
    is_marked = any(map(item.get_closest_marker, ("bucket", "shared")))
    return is_marked or not _OF_STORES.isdisjoint(item.path.parts) or item.path.name == "test_model.py"


def _long_first(items: Sequence[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """Return the items so that each of pytest's workers begins with some of the long ones.

    A worker gets an equal part of all, and what others steal is from its end.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    size = -(-len(others) // workers)
    return [
        item
        for worker in range(workers)
        for item in (*long[worker::workers], *others[worker * size : (worker + 1) * size])
    ]


_PARTS = pytest.StashKey[SharedParts]()
_CLUSTER = pytest.StashKey[Path]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Have all workers of pytest-xdist share one Ceph, of which each has a gateway."""
    config: pytest.Config = node.config
    if config.getoption("storage") == "s3" and not ceph_cluster.MISSING:
        if _CLUSTER not in config.stash:
            stack = ExitStack()
            config.add_cleanup(stack.close)
            config.stash[_CLUSTER] = stack.enter_context(running_cluster())
        node.workerinput["ceph"] = str(config.stash[_CLUSTER])


def pytest_configure(config: pytest.Config) -> None:
    ceph = getattr(config, "workerinput", {}).get("ceph")
    parts = SharedParts(config.getoption("storage"), config.getoption("catalog"), ceph and Path(ceph))
    config.stash[_PARTS] = parts
    config.add_cleanup(parts.close)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have collectors use what the options say, or the folder or file that only this test is about.

    Skip a test marked `system("nginx", "openssl")` where one of these programs is missing, and one marked
    `system("root")` for other users.
    """
    parts = item.config.stash[_PARTS]
    if parts.missing:
        pytest.skip(parts.missing)
    named = [part for mark in item.iter_markers("system") for part in mark.args]
    if "root" in named and os.geteuid() != 0:
        pytest.skip("only root can do this")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [part for part in named if part != "root" and shutil.which(part, path=path) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    Server.storages = Folders() if item.get_closest_marker("folder") else parts.storages
    Server.catalogs = Files() if item.get_closest_marker("sqlite") else parts.catalogs


@pytest.fixture(scope="session", autouse=True)
def zygote() -> Iterator[Zygote]:
    """The process that collectors are forked from."""
    zygote = Zygote()
    Server.launcher = zygote
    yield zygote
    zygote.close()


@pytest.fixture(scope="session")
def azurite(request: pytest.FixtureRequest) -> Azurite:
    """A server of Azure's blobs."""
    if azurite_server.MISSING:
        pytest.skip(azurite_server.MISSING)
    return request.config.stash[_PARTS].azurite


@pytest.fixture(scope="session")
def gateway(request: pytest.FixtureRequest) -> Gateway:
    """The S3 gateway of a Ceph."""
    return request.config.stash[_PARTS].gateway
