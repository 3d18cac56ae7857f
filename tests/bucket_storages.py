"""The blobs of collectors under test in a bucket of a Ceph or of Azurite; see `tests.storages`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import ClassVar, Protocol, cast

import obstore
from obstore.store import ObjectStore, from_url


class Buckets(Protocol):
    """A server of buckets, whose URLs have this scheme."""

    scheme: str

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which clients find it."""

    def new_bucket(self) -> str:
        """Make a bucket, and return its name."""


class Prefixes:
    """A prefix for each data folder, in one bucket."""

    def __init__(self, buckets: Buckets) -> None:
        self._environment = buckets.environment
        self._url = f"{buckets.scheme}://{buckets.new_bucket()}"
        os.environ |= buckets.environment
        ObjectPath.store = from_url(
            self._url, client_options={"allow_http": True, "timeout": timedelta(seconds=60)}
        )

    def settings(self, data: Path) -> Mapping[str, str]:
        return {"PGOF_STORAGE": f"{self._url}/{_prefix(data)}", **self._environment}

    def blobs(self, data: Path, suffix: str) -> Sequence[Path]:
        root = ObjectPath(_prefix(data))
        found = [path for path in root.rglob(f"*{suffix}") if path.relative_to(root).parts[0][0] != "."]
        return cast("list[Path]", found)

    def area(self, data: Path, name: str) -> Path:
        return cast("Path", ObjectPath(f"{_prefix(data)}/.{name}"))

    def drop(self, data: Path) -> None:
        for page in obstore.list(ObjectPath.store, _prefix(data)):
            obstore.delete(ObjectPath.store, [meta["path"] for meta in page])


class ObjectPath(PurePosixPath):
    """An object of the bucket with those methods of a path that tests call."""

    store: ClassVar[ObjectStore]

    def read_bytes(self) -> bytes:
        return bytes(obstore.get(self.store, str(self)).bytes())

    def write_bytes(self, content: bytes) -> int:
        obstore.put(self.store, str(self), content)
        return len(content)

    def stat(self) -> os.stat_result:
        return os.stat_result([0] * 6 + [len(self.read_bytes()), 0, 0, 0])

    def exists(self) -> bool:
        try:
            obstore.head(self.store, str(self))
        except FileNotFoundError:
            return False
        return True

    def is_file(self) -> bool:
        return self.exists()

    def unlink(self) -> None:
        obstore.delete(self.store, str(self))

    def rglob(self, pattern: str) -> list[ObjectPath]:
        pages = obstore.list(self.store, str(self))
        return sorted(
            path for page in pages for meta in page if (path := ObjectPath(meta["path"])).match(pattern)
        )

    def iterdir(self) -> list[ObjectPath]:
        below = {path.relative_to(self).parts[0] for path in self.rglob("*")}
        return [self / name for name in sorted(below)]


def _prefix(data: Path) -> str:
    return hashlib.sha256(str(data).encode()).hexdigest()[:32]
