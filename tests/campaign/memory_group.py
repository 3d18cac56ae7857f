"""A control group with a memory limit, version 1 or 2, for all processes of a collector together."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.campaign.collector import Collector
from tests.server import COMMAND, Process

_ROOT: Final = Path("/sys/fs/cgroup")
_PATIENCE_SECONDS: Final = 10.0
# Join the group, set the usual limit on descriptors, and become the collector.
_JOIN: Final = 'echo $$ > "$0/cgroup.procs" && ulimit -Sn 1024 && exec "$@"'


class NoMemoryGroup(Exception):
    """No group can be made here; the message has the reason."""


class MemoryGroup(NamedTuple):
    """The folder of a group, and the names of its files, which depend on the version."""

    folder: Path
    peak_file: str
    events_file: str

    @property
    def peak_bytes(self) -> int:
        """Return the peak memory of the group, including the kernel's file cache for it."""
        return int((self.folder / self.peak_file).read_text())

    @property
    def oom_kills(self) -> int:
        """Return how many processes of the group the kernel has killed for lack of memory."""
        lines = (self.folder / self.events_file).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def pids(self) -> list[int]:
        """Return the processes in the group."""
        return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Make a group below that of this process, for a context. Raises NoMemoryGroup."""
    group = _made(limit_bytes)
    try:
        yield group
    finally:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (left := group.pids()) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        group.folder.rmdir()


class GroupedCollector(Collector):
    """A collector in a group, with the usual soft limit on descriptors."""

    group: MemoryGroup

    def _spawn(self, *arguments: str) -> Process:
        return subprocess.Popen(
            ["sh", "-c", _JOIN, str(self.group.folder), COMMAND, *arguments],
            stderr=subprocess.PIPE,
            env=self.environment,
            start_new_session=True,
        )


def _made(limit_bytes: int) -> MemoryGroup:
    name = f"pgo-campaign-{secrets.token_hex(4)}"
    errors = []
    for parent, limit, peak, events in _candidates():
        folder = parent / name
        try:
            folder.mkdir()
            try:
                (folder / limit).write_text(f"{limit_bytes}\n")
                _forbid_swap(folder, limit_bytes)
                return MemoryGroup(folder, peak, events)
            except OSError:
                folder.rmdir()
                raise
        except OSError as error:
            errors.append(f"{folder}: {error.strerror}")
    raise NoMemoryGroup("; ".join(errors) or "no cgroup file system with the memory controller is mounted")


def _candidates() -> Iterator[tuple[Path, str, str, str]]:
    """Yield the places for a group: below this process's, or beside it if that has processes (version 2)."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        relative = path.lstrip("/")
        if "memory" in controllers.split(","):
            own = _ROOT / "memory" / relative
            # In a container, this process's group may be the root of the mount.
            parents = [own] if own.is_dir() else [_ROOT / "memory"]
            for parent in parents:
                yield parent, "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"
        elif number == "0" and (_ROOT / "cgroup.controllers").exists():
            own = _ROOT / relative
            for parent in (own, *own.parents):
                if parent.is_relative_to(_ROOT) and parent.is_dir():
                    with suppress(OSError):
                        (parent / "cgroup.subtree_control").write_text("+memory\n")
                    yield parent, "memory.max", "memory.peak", "memory.events"


def _forbid_swap(folder: Path, limit_bytes: int) -> None:
    """Forbid swapping, so that the limit is one on memory; kernels that don't count swap lack these files."""
    for name, value in (("memory.memsw.limit_in_bytes", limit_bytes), ("memory.swap.max", 0)):
        with suppress(OSError):
            if (folder / name).exists():
                (folder / name).write_text(f"{value}\n")
