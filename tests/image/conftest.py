"""One builder for all images, since they have layers in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.image.builder import Builder


@pytest.fixture(scope="session")
def builder() -> Iterator[Builder]:
    with Builder() as builder:
        yield builder
