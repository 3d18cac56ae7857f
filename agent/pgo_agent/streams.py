"""Standard streams that a command can rely on, closed or full as they may be when it starts."""

from __future__ import annotations

import os
import sys

_STREAMS = ("stdin", "stdout", "stderr")


def open_standard_streams() -> None:
    """Open the standard streams that are closed: a file would get their numbers, and what is written to them.

    What is written to a closed standard output fails, as to a full one.
    """
    for number, name in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR if name == "stderr" else os.O_RDONLY)  # it gets the lowest number
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - until the end


def flush_standard_output() -> None:
    """Write what is left for standard output. Raises OSError, once: the end of the process tries it again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def say(text: str) -> None:
    """Write a line to standard error, if it can be written: it is beside what a command does."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - what a person reads
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
