"""Find the processes and control groups that filters name, and what the kernel kept from a tracker.

latency_program.py reads this file, too, with a Python that has no package of the agent, so it imports none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_SKIPPED = "recursion_misses:"


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
    """Yield the ids of these cgroups and of those inside; a path begins below /sys/fs/cgroup."""
    for path in paths:
        root = Path("/sys/fs/cgroup") / path.strip("/")
        for folder, _, _ in os.walk(root):
            with suppress(OSError):
                yield Path(folder).stat().st_ino


def skipped_runs(pid: int) -> int:
    """Return how often the kernel skipped a BPF program of a process, since another ran on the same CPU."""
    skipped = 0
    for file in Path(f"/proc/{pid}/fdinfo").glob("*"):
        with suppress(OSError):
            lines = file.read_text().splitlines()
            skipped += sum(int(line.removeprefix(_SKIPPED)) for line in lines if line.startswith(_SKIPPED))
    return skipped
