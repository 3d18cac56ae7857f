"""Fixtures of the fault tests: the killer, compiled once, and the points that it strikes at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.killer import SOURCE
from tests.faults.lane import KillableZygote
from tests.faults.sample import All, Kinds, Sample, Some
from tests.preloads import build_preload


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled killer.c."""
    try:
        return build_preload(SOURCE, tmp_path_factory.mktemp("killer"))
    except FileNotFoundError as missing:
        pytest.skip(f"{missing}: killer.c can't be compiled")


@pytest.fixture(scope="session")
def killable(library: Path) -> Iterator[KillableZygote]:
    """The process that the collectors of all lanes are forked from."""
    zygote = KillableZygote(library)
    yield zygote
    zygote.close()


@pytest.fixture(params=["some", pytest.param("many", marks=pytest.mark.exhaustive)])
def sample(request: pytest.FixtureRequest) -> Sample:
    """Where it strikes: each test draws other points from the seed of the run."""
    many = request.param == "many"
    if many and request.config.getoption("cases") == "all":
        return All()
    seed = f"{request.config.getoption('kill_seed')} {request.node.name}"
    return Kinds(seed) if many else Some(seed)


@pytest.fixture(scope="session")
def seen() -> set[str]:
    """The digests of stored files for which a reindex has been tried."""
    return set()
