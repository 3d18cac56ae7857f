"""Shares of the machine: processes whose CPU and memory the kernel bounds, by control groups (cgroups).

So one machine shows how processes do that have a core to themselves each, only slower. Version 1 of control
groups has a hierarchy for each resource, version 2 has one for all: see cgroups(7).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from tests.server import descendants

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS = 100_000
_PATIENCE_SECONDS = 30.0
_NUMBERS = count()


class Share:
    """A part of the machine, to which processes can be `add`ed."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders

    def add(self, pid: int) -> None:
        """Bound a process and all that it has started, and will start."""
        for each in (pid, *descendants(pid)):
            for folder in self._folders:
                with suppress(ProcessLookupError):
                    (folder / "cgroup.procs").write_text(str(each))


@contextmanager
def share(cores: float, mebibytes: int) -> Iterator[Share]:
    """Yield a share of so many cores and so much memory, page cache included. Its processes must end first.

    Raises OSError where `missing` says why.
    """
    name = f"pgo-collector-bench-{os.getpid()}-{next(_NUMBERS)}"
    quota, size = str(round(cores * _PERIOD_MICROSECONDS)), str(mebibytes << 20)
    folders = []
    try:
        for folder, bounds in _bounds(quota, size).items():
            made = folder / name
            made.mkdir()
            folders.append(made)
            for file, value in bounds.items():
                (made / file).write_text(value)
        yield Share(folders)
    finally:
        for made in folders:
            _remove(made)


def missing() -> str:
    """Return why no share can be made here, by trying; an empty text if one can."""
    try:
        with share(1.0, 64):
            return ""
    except OSError as error:
        return f"no control group can be made: {error}"


def _remove(group: Path) -> None:
    """Remove a group, as soon as the last of its processes is gone. Raises OSError if that takes too long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _bounds(quota: str, size: str) -> Mapping[Path, Mapping[str, str]]:
    """Return the files to write, in a group below each folder."""
    if (_ROOT / "cgroup.controllers").exists():  # version 2
        (_ROOT / "cgroup.subtree_control").write_text("+cpu +memory")
        return {_ROOT: {"cpu.max": f"{quota} {_PERIOD_MICROSECONDS}", "memory.max": size}}
    return {
        _ROOT / "cpu": {"cpu.cfs_period_us": str(_PERIOD_MICROSECONDS), "cpu.cfs_quota_us": quota},
        _ROOT / "memory": {"memory.limit_in_bytes": size},
    }
