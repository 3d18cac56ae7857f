"""Standard streams that a command can rely on, closed or full as they may be when it starts."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any

_STREAMS = ("stdin", "stdout", "stderr")


def open_standard_streams() -> None:
    """Open the standard streams that are closed: a file would get their numbers, and what is written to them.

    What is written to a closed standard output fails, as to a full one. A line for standard error that can't
    be written is dropped: it says why a command failed, and must not be why.
    """
    for number, name in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR if name == "stderr" else os.O_RDONLY)  # it gets the lowest number
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - until the end
    if sys.stderr is sys.__stderr__:
        lines = io.BufferedWriter(_Unfailing(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(lines, "utf-8", "backslashreplace", line_buffering=True)


def flush_standard_output() -> None:
    """Write what is left for standard output. Raises OSError, once: the end of the process tries it again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


class _Unfailing(io.FileIO):
    def write(self, data: Any) -> int:
        with suppress(OSError):
            return super().write(data)
        return len(data)
