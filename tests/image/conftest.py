"""Fixtures: one builder for all images, since they share layers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.image.builder import Builder


@pytest.fixture(scope="session")
def builder() -> Iterator[Builder]:
    with Builder() as builder:
        yield builder
