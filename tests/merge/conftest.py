from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pprof_merge import compress

from tests.merge.differential import merged
from tests.oracle.oracle import Oracle, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with running(tmp_path_factory.mktemp("oracle")) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def profiles() -> Path:
    """Return the folder of real profiles."""
    return Path(__file__).parents[1] / "testdata" / "profiles"


@pytest.fixture
def files(profiles: Path) -> list[Path]:
    """Return real profiles of one program."""
    return sorted(profiles.glob("etl-*"))


@pytest.fixture
def expected(files: list[Path]) -> bytes:
    """Return the merge of `files`, gzipped."""
    return compress(merged([file.read_bytes() for file in files]))
