from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.oracle.oracle import Oracle, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with running(tmp_path_factory.mktemp("oracle")) as oracle:
        yield oracle
