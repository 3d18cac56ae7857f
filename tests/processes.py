"""Processes as the kernel describes them in /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def stat_of(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may have blanks and brackets in it.

    Raises OSError if the process has ended.
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def state_of(pid: int) -> str:
    """Return the letter of a process's state, such as Z for a zombie; none if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return stat_of(pid)[0]
    return ""
