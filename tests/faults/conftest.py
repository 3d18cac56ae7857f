"""Fixtures of the fault tests: the killer, compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.killer import build_library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled killer.c."""
    try:
        return build_library(tmp_path_factory.mktemp("killer"))
    except FileNotFoundError as missing:
        pytest.skip(f"{missing}: killer.c can't be compiled")


@pytest.fixture(scope="session")
def seen() -> set[str]:
    """The digests of stored files for which a reindex has been tried."""
    return set()
