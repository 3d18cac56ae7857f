"""Use the kernel's tracepoints from programs with bcc, and learn from them which process forked which.

The programs that the agent runs by the Python that has bcc import this file without its package.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

TRACING = Path("/sys/kernel/tracing")
_NEW_NAMESPACE, _PRIVATE, _RECURSIVE = 0x20000, 1 << 18, 0x4000  # CLONE_NEWNS, MS_PRIVATE, MS_REC
_MOST_FOREBEARS = 16
FORK_EVENTS = ("sched:sched_process_fork", "sched:sched_process_exec")

# A forked process has its parent's memory map until it runs another program. Often it ends before its own can
# be read, as the process of a connection of a moment does; its parent's is there. The table forgets what was
# used least; threads are in it, too, and harm nothing.
FORKS = """
BPF_TABLE("lru_hash", u32, u32, forked, 16384);

static inline void note_fork(u32 child) {
    u32 parent = bpf_get_current_pid_tgid() >> 32;
    forked.update(&child, &parent);
}

TRACEPOINT_PROBE(sched, sched_process_exec) {
    u32 pid = bpf_get_current_pid_tgid() >> 32;
    forked.delete(&pid);
    return 0;
}
"""


def mount_tracing() -> None:
    """Mount tracefs for this process only, if it isn't mounted. If that isn't allowed, `missing` says so."""
    if (TRACING / "events").is_dir():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NAMESPACE) == 0:
        libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None)
        libc.mount(b"tracefs", bytes(TRACING), b"tracefs", 0, None)


def missing(tracepoints: Iterable[str]) -> str:
    """Return what keeps these tracepoints from being used, "" if nothing does."""
    if not (TRACING / "events").is_dir():
        return f"tracefs is not mounted: mount -t tracefs tracefs {TRACING}"
    gone = [name for name in tracepoints if not (TRACING / "events" / name.replace(":", "/")).is_dir()]
    return f"this kernel has no tracepoint {' or '.join(gone)}" if gone else ""


def family(forked: Any, pid: int) -> Iterator[int]:
    """Yield a process, the one that it was forked from, and so on, by `FORKS`' table if there is one."""
    yield pid
    with suppress(KeyError):
        for _ in range(0 if forked is None else _MOST_FOREBEARS):
            pid = forked[forked.Key(pid)].value
            yield pid
