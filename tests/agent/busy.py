"""A C program that is busy in functions with known names, and what the kernel says it has taken."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Self

import pytest

SOURCE = Path(__file__).with_name("busy.c")
# No other process of the machine has this name.
NAME = f"busy-{os.getpid()}"
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing")


def build(folder: Path) -> Path:
    """The program, with debug information and frame pointers."""
    binary = folder / NAME
    flags = ("-O1", "-g", "-fno-omit-frame-pointer", "-pthread")
    subprocess.run(["gcc", *flags, "-o", binary, SOURCE], check=True)
    return binary


@contextmanager
def running(binary: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program at work; children that it has forked end by themselves."""
    with subprocess.Popen([binary, *arguments]) as process:
        try:
            yield process
        finally:
            process.kill()


class CpuMeter:
    """Reads, while it is entered, what `pids` have taken, so that it is known for any time in between."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._read: list[tuple[int, float]] = []
        self._ended = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()

    def seconds(self, began: int, duration: int) -> float:
        """The CPU time taken from `began` (ns since 1970) on, for `duration` ns; 0.05 s are uncertain."""
        (_, first), *_ = [read for read in self._read if read[0] >= began]
        *_, (_, last) = [read for read in self._read if read[0] <= began + duration]
        return last - first

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            self._read.append((time.time_ns(), sum(map(_cpu_seconds, self._pids))))


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
