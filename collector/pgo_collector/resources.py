"""Linux's view of this machine and its processes: memory limits, process states, OOM kills, free pages.

On other systems the functions return the value for "unknown", and set no limit.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from pprof_merge.heap import trim_heap

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
# cgroup v1 writes a number close to 2^63 for "no limit".
_NO_LIMIT = 1 << 60
# How often free pages go back to the system.
_TRIM_SECONDS = 10.0


class HeapTrimming:
    """The background task that gives free pages back to the system.

    What bodies, unfinished heads and calls of gRPC took stays with the process otherwise.
    """

    async def run(self) -> NoReturn:
        """Trim the heap again and again, in a thread: if much is free, it takes some milliseconds."""
        while True:
            await asyncio.sleep(_TRIM_SECONDS)
            await asyncio.to_thread(trim_heap)


class ProcessStatus(NamedTuple):
    """A process in /proc/PID/stat: the letter of its state, and the CPU time that it has used, in ticks."""

    state: str
    cpu_ticks: int

    @property
    def is_stopped(self) -> bool:
        """Return whether a signal or a debugger has stopped it."""
        return self.state in {"T", "t"}

    @property
    def is_waiting(self) -> bool:
        """Return whether it waits for something other than a CPU or a disk."""
        return self.state == "S"


def process_status(pid: int) -> ProcessStatus | None:
    """Return the status of a process; None if there is no such process or no /proc."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before may have blanks and brackets in it
    return ProcessStatus(fields[0], int(fields[11]) + int(fields[12]))


def memory_bytes() -> int:
    """Return how much memory this process may use, in bytes: its control groups' limit or the machine's."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_cgroup_limits()])


def limit_data(extra_bytes: int) -> None:
    """Let this process allocate `extra_bytes` more than it has now; beyond that it gets a MemoryError.

    The limit is RLIMIT_DATA, which counts private writable memory and not files that are mapped for reading.
    """
    with suppress(OSError):
        found = re.search(r"^VmData:\s*(\d+) kB", (_PROC / "self/status").read_text(), re.MULTILINE)
        if found:
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            most = (int(found[1]) << 10) + extra_bytes
            if hard != resource.RLIM_INFINITY:
                most = min(most, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def prefer_oom_kill() -> None:
    """Have the kernel end this process, rather than the server that it works for, when memory runs short."""
    with suppress(OSError):
        (_PROC / "self/oom_score_adj").write_text("500")


def oom_kills() -> int:
    """Return how many processes the kernel has ended for lack of memory, as far as this process can see."""
    count = 0
    for file in (_PROC / "vmstat", *(folder / "memory.events" for folder in _cgroup_folders())):
        with suppress(OSError):
            found = re.search(r"^oom_kill (\d+)", file.read_text(), re.MULTILINE)
            count += int(found[1]) if found else 0
    return count


def _cgroup_limits() -> list[int]:
    limits = []
    for folder in _cgroup_folders():
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # it may be `max`, for no limit
                limits.append(int((folder / name).read_text()))
    return [limit for limit in limits if limit < _NO_LIMIT]


def _cgroup_folders() -> list[Path]:
    """Return the folders of this process's memory control groups, v1 and v2, from its own up to the root."""
    try:
        lines = (_PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = _CGROUPS / "memory" if controllers else _CGROUPS
        # In a container the path may be the one outside; the process's own group is then the root.
        group = Path(path.lstrip("/"))
        folders += [root / group, *(root / above for above in group.parents)]
    return folders
