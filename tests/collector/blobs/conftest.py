"""Buckets for storages of this process, each a new one: in memory, of a Ceph, and of Azurite."""

from __future__ import annotations

import secrets

import pytest

from tests.interop.azurite import Azurite
from tests.interop.ceph_cluster import Gateway


@pytest.fixture
def memory_url() -> str:
    """A prefix in the memory of this process, where obstore does what it does in a bucket."""
    return f"memory:///{secrets.token_hex(8)}/pre/fix"


@pytest.fixture
def url(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix in a bucket of the Ceph, which this process can use."""
    for name, value in gateway.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{gateway.new_bucket()}/pre/fix"


@pytest.fixture
def azure_url(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same in a container of Azure's."""
    for name, value in azurite.environment.items():
        monkeypatch.setenv(name, value)
    return f"az://{azurite.new_bucket()}/pre/fix"
