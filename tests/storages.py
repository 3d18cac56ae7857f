"""Where collectors under test have what they store: in data folders, or elsewhere (`bucket_storages`)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Storages(Protocol):
    """Knows the storage that belongs to a data folder."""

    def settings(self, data: Path) -> Mapping[str, str]:
        """Return the settings with which a collector uses it."""

    def blobs(self, data: Path, suffix: str) -> Sequence[Path]:
        """Return the objects in it whose names end like this, sorted."""

    def drop(self, data: Path) -> None:
        """Delete all objects in it, while no collector uses it."""

    def area(self, data: Path, name: str) -> Path:
        """Return the folder of an area beside the blobs, such as releases."""


class Folders:
    """The folder blobs/ of each data folder."""

    def settings(self, data: Path) -> Mapping[str, str]:
        del data
        return {}

    def blobs(self, data: Path, suffix: str) -> Sequence[Path]:
        return sorted((data / "blobs").rglob(f"*{suffix}"))

    def drop(self, data: Path) -> None:
        shutil.rmtree(data / "blobs", ignore_errors=True)

    def area(self, data: Path, name: str) -> Path:
        return data / name
