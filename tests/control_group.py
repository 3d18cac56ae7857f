"""Control groups (cgroups): processes whose memory and CPU time the kernel bounds, as on a small machine.

Version 1 of control groups has a hierarchy for each resource, version 2 has one for all: see cgroups(7).
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.server import descendants

_ROOT: Final = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS: Final = 100_000
_PATIENCE_SECONDS: Final = 30.0

# The files to write in a new group, by the name of the hierarchy; that of version 2 has none.
_Bounds = Mapping[str, Mapping[str, str]]


class NoControlGroup(Exception):
    """No group can be made here; the message has the reason."""


class ControlGroup:
    """A group of processes with bounds for all of them together; `folders` has one for each hierarchy."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders

    def add(self, pid: int) -> None:
        """Add a process and all that it has started; what they start later is in the group as well."""
        for each in (pid, *descendants(pid)):
            for folder in self.folders:
                with suppress(ProcessLookupError):
                    (folder / "cgroup.procs").write_text(str(each))

    def joined(self, *command: str) -> list[str]:
        """Return a command that runs another one as a process of the group."""
        joining = "".join(f"echo $$ > {shlex.quote(str(folder))}/cgroup.procs && " for folder in self.folders)
        return ["sh", "-c", f'{joining}exec "$0" "$@"', *command]

    def pids(self) -> list[int]:
        """Return the processes in the group."""
        return [int(line) for line in (self.folders[0] / "cgroup.procs").read_text().split()]

    @property
    def peak_bytes(self) -> int:
        """Return the peak memory of the group, including the kernel's file cache for it."""
        return int(self._memory_file("memory.max_usage_in_bytes", "memory.peak"))

    @property
    def oom_kills(self) -> int:
        """Return how many processes of the group the kernel has killed for lack of memory."""
        lines = self._memory_file("memory.oom_control", "memory.events").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def _memory_file(self, version_1: str, version_2: str) -> str:
        """Return the content of a file, which each version calls otherwise."""
        file = self.folders[0] / version_1
        return (file if file.exists() else self.folders[0] / version_2).read_text()


@contextmanager
def control_group(memory_bytes: int, cores: float | None = None) -> Iterator[ControlGroup]:
    """Make a group below that of this process, for a context; processes that are left in it are killed.

    Raises NoControlGroup.
    """
    group = ControlGroup(_made(memory_bytes, cores))
    try:
        yield group
    finally:
        _kill_all(group)
        _remove(group.folders)


def _made(memory_bytes: int, cores: float | None) -> list[Path]:
    """Return the folders of a new group."""
    name = f"pgo-collector-{secrets.token_hex(4)}"
    errors = []
    for parents, bounds in _places(memory_bytes, cores):
        folders: list[Path] = []
        try:
            for hierarchy, parent in parents.items():
                folder = parent / name
                folder.mkdir()
                folders.append(folder)
                for file, value in bounds[hierarchy].items():
                    (folder / file).write_text(value)
            _forbid_swap(folders[0], memory_bytes)
        except OSError as error:
            errors.append(f"{error.filename}: {error.strerror}")
            _remove(folders)
        else:
            return folders
    raise NoControlGroup("; ".join(errors) or "no cgroup file system with the memory controller is mounted")


def _places(memory_bytes: int, cores: float | None) -> Iterator[tuple[Mapping[str, Path], _Bounds]]:
    """Yield where a group may be made, by hierarchy, the one for memory first, and the files to write there.

    With version 2 that is below this process's group, or beside it if that has processes.
    """
    quota = None if cores is None else str(round(cores * _PERIOD_MICROSECONDS))
    groups = {
        controller: path.lstrip("/")
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        for _, controllers, path in [line.split(":", 2)]
        for controller in controllers.split(",")
    }
    if "memory" in groups:
        bounds = {"memory": {"memory.limit_in_bytes": str(memory_bytes)}}
        if quota is not None:
            bounds["cpu"] = {"cpu.cfs_period_us": str(_PERIOD_MICROSECONDS), "cpu.cfs_quota_us": quota}
        own = {each: _ROOT / each / groups.get(each, "") for each in bounds}
        # In a container, this process's group may be the root of the mount.
        yield {each: folder if folder.is_dir() else _ROOT / each for each, folder in own.items()}, bounds
    elif (_ROOT / "cgroup.controllers").exists():
        files = {"memory.max": str(memory_bytes)}
        if quota is not None:
            files["cpu.max"] = f"{quota} {_PERIOD_MICROSECONDS}"
        folder = _ROOT / groups[""]
        for parent in (folder, *folder.parents):
            if parent.is_relative_to(_ROOT) and parent.is_dir():
                with suppress(OSError):
                    wanted = "+memory" if quota is None else "+memory +cpu"
                    (parent / "cgroup.subtree_control").write_text(wanted)
                yield {"": parent}, {"": files}


def _forbid_swap(folder: Path, memory_bytes: int) -> None:
    """Forbid swapping, so that the limit is one on memory; kernels that don't count swap lack these files."""
    for name, value in (("memory.memsw.limit_in_bytes", memory_bytes), ("memory.swap.max", 0)):
        with suppress(OSError):
            if (folder / name).exists():
                (folder / name).write_text(f"{value}\n")


def _kill_all(group: ControlGroup) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (left := group.pids()) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _remove(folders: Sequence[Path]) -> None:
    """Remove a group's folders, as soon as the last of its processes is gone; give up after a while."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for folder in folders:
        while True:
            try:
                folder.rmdir()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
