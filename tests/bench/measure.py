"""The cost of programs that run to their end, in turns with those that they are compared with.

The kernel counts a child's memory from what its parent had at the start, so this process stays small.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from threading import Timer
from typing import NamedTuple

from tests.oracle.oracle import go_environment

_TIMEOUT = 900.0


class Cost(NamedTuple):
    """CPU seconds on all cores, wall-clock seconds, and the peak memory of the largest process in MiB.

    Of many tasks, `slowest` is the 99th percentile of their wall-clock seconds.
    """

    cpu: float
    wall: float
    memory: float
    slowest: float = 0.0


class Ended(NamedTuple):
    """A program that ended with status 0: its cost and its standard output."""

    cost: Cost
    output: bytes


def progress(line: str) -> None:
    """Print a line of progress."""
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)  # noqa: T201 - a command speaks by printing


def run(command: Sequence[str | Path], folder: Path) -> Ended:
    """Run a command in a folder. Raises CalledProcessError, also after a quarter of an hour."""
    environment = {**go_environment(), "PPROF_TMPDIR": str(folder), "PPROF_BINARY_PATH": os.devnull}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=messages)
        timer = Timer(_TIMEOUT, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        if process.returncode:
            messages.seek(0)
            said = messages.read().decode(errors="replace")
            sys.stderr.write(said)
            raise subprocess.CalledProcessError(process.returncode, command[:4], stderr=said)
        return Ended(Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024), output.read())


def within(command: Sequence[str | Path], folder: Path) -> Cost:
    """Return the median of the costs that a program prints: a JSON list of {"cpu": s, "wall": s}."""
    ended = run(command, folder)
    costs = json.loads(ended.output)
    return Cost(
        median(cost["cpu"] for cost in costs), median(cost["wall"] for cost in costs), ended.cost.memory
    )


def in_turns(name: str, rounds: int, contenders: Mapping[str, Callable[[], Cost]]) -> dict[str, Cost]:
    """Return the medians of all contenders, which take turns, so that other load affects all alike."""
    costs: dict[str, list[Cost]] = {contender: [] for contender in contenders}
    for _ in range(rounds):
        for contender, measure in contenders.items():
            costs[contender].append(measure())
    medians = {contender: Cost(*map(median, zip(*of, strict=True))) for contender, of in costs.items()}
    for contender, cost in medians.items():
        progress(f"{name}: {contender}: {cost.cpu:.3f} s CPU, {cost.wall:.3f} s, {cost.memory:.0f} MiB")
    return medians
