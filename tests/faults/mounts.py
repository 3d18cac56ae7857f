"""File systems that tests mount, which needs root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of a size such as `64k` at `folder`; yield the folder."""
    folder.mkdir()
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield folder


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make `folder` read-only within the block, also for processes that have files of it open."""
    with _mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield


@contextmanager
def _mounted(folder: Path, *arguments: str) -> Iterator[None]:
    done = subprocess.run(["mount", *arguments, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
