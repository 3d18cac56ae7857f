"""Find the processes and control groups that filters name, and what the kernel kept from a tracker.

latency_program.py reads this file, too, with a Python that has no package of the agent, so it imports none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgo_agent.latency.settings import TrackerSettings

_SKIPPED = "recursion_misses:"
_VERSION_2 = "0::"  # begins the line of /proc/PID/cgroup that has the cgroup of version 2


def pids_of(executables: Iterable[str]) -> Iterator[int]:
    """Yield the processes that run one of these, by the path or the file name of the executable."""
    wanted = {*executables}
    if not wanted:
        return
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                path = str((folder / "exe").readlink()).removesuffix(" (deleted)")
                if path in wanted or path.rpartition("/")[2] in wanted:
                    yield int(folder.name)


def cgroup_ids(paths: Iterable[str]) -> Iterator[int]:
    """Yield the ids of these cgroups and of those inside.

    A path is the one in /proc/PID/cgroup, or the folder's. A BPF program only knows those of version 2, which
    have another folder where /sys/fs/cgroup has those of version 1.
    """
    root = _cgroup_root()
    for path in paths:
        inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path(path.strip("/"))
        for folder, _, _ in os.walk(root / inside):
            with suppress(OSError):
                yield Path(folder).stat().st_ino


def cgroup_id_of(pid: int) -> int | None:
    """Return the id of the cgroup that a process is in; None if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            if line.startswith(_VERSION_2):
                path = line.removeprefix(_VERSION_2).strip("/")
                return (_cgroup_root() / path).stat().st_ino
    return None


def unmatched(settings: TrackerSettings) -> Iterator[str]:
    """Yield, for each name in the filters that nothing here has, a sentence that says so."""
    for executable in settings.executables:
        if not any(pids_of([executable])):
            yield f"no process runs {executable}"
    for pid in settings.pids:
        if not Path(f"/proc/{pid}").exists():
            yield f"no process has the number {pid}"
    for cgroup in settings.cgroups:
        if not any(cgroup_ids([cgroup])):
            yield f"no control group of version 2 is {cgroup}, in {_cgroup_root()}"
    for comm in {*settings.comms} - ({*_comms()} if settings.comms else set()):
        yield f"no thread is named {comm}"


def _comms() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/task/*/comm"):
        with suppress(OSError):
            yield file.read_text(errors="surrogateescape").rstrip("\n")


def _cgroup_root() -> Path:
    """Return the folder in which cgroups of version 2 are mounted."""
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            mounted, _, kind = line.partition(" - ")
            if kind.startswith("cgroup2 "):
                return Path(mounted.split(" ")[4])
    return Path("/sys/fs/cgroup")


def skipped_runs(pid: int) -> int:
    """Return how often the kernel skipped a BPF program of a process, since another ran on the same CPU."""
    skipped = 0
    for file in Path(f"/proc/{pid}/fdinfo").glob("*"):
        with suppress(OSError):
            lines = file.read_text().splitlines()
            skipped += sum(int(line.removeprefix(_SKIPPED)) for line in lines if line.startswith(_SKIPPED))
    return skipped
