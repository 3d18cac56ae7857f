"""The cost of builds of one program for the same work: executed instructions, and CPU seconds in turns."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple, TypeVar

from tests.bench.measure import run

# The beginning of a command whose executed instructions Valgrind counts, into a log.
COUNTING = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


Given = TypeVar("Given")
Done = TypeVar("Done")


class Compared(NamedTuple):
    """The median CPU seconds of a build, and the ratios of the first build's to them in the same rounds.

    `low` and `high` are the quartiles of these ratios, and `ratio` is their median.
    """

    seconds: float
    ratio: float
    low: float
    high: float


def instructions(program: Path, arguments: Sequence[str], folder: Path, start: Sequence[str] = ()) -> int:
    """Return how many instructions a program executes, the libraries' included, as Valgrind counts them.

    Machines without hardware counters can count in no other way. Two counts of a program differ by some
    thousands, since its environment differs. `start` is the beginning of the command.
    """
    # Names of one length, since that of a program's file is in its memory, and moves what follows.
    with tempfile.TemporaryDirectory(dir=folder) as own:
        return counted(start, stripped(program, Path(own, "stripped")), arguments, Path(own))


def at_once(work: Callable[[Given], Done], given: Iterable[Given]) -> list[Done]:
    """Return what `work` makes of each. As many are at work at once as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [*pool.map(work, given)]


def stripped(program: Path, to: Path) -> Path:
    """Write a program for Valgrind, without debug information, and return where it is.

    Valgrind 3.19 gives up on some debug information of clang.
    """
    subprocess.run(["strip", "-o", to, program], check=True)
    return to


def counted(
    start: Sequence[str],
    program: Path,
    arguments: Sequence[str],
    folder: Path,
    text: Path = Path("/dev/null"),
) -> int:
    """Return how many instructions a program without debug information executes on a text that it reads.

    `start` is the beginning of the command, such as one that makes it another user's.
    """
    log = folder / "cachegrind.log"
    log.unlink(missing_ok=True)
    command = [*start, *COUNTING, f"--log-file={log}", str(program), *arguments]
    with text.open("rb") as read:
        subprocess.run(command, cwd=folder, check=True, stdin=read, stdout=subprocess.DEVNULL)
    count, *_ = counts_in(log).values()
    return count


def counts_in(log: Path) -> dict[str, int]:
    """Return how many instructions each process executed, by its id, from what `COUNTING` wrote."""
    found = re.findall(r"^==(\d+)== I +refs: +([\d,]+)", log.read_text(), re.MULTILINE)
    return {process: int(count.replace(",", "")) for process, count in found}


def in_turns(commands: Mapping[str, Sequence[str | Path]], rounds: int, folder: Path) -> dict[str, Compared]:
    """Return the CPU time of each build. They take turns, so that other load affects all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            seconds[name].append(run(command, folder).cost.cpu)
    return compared(seconds)


def compared(seconds: Mapping[str, Sequence[float]]) -> dict[str, Compared]:
    """Return what builds cost whose CPU seconds are given by round, the first without a profile."""
    first = next(iter(seconds.values()))
    found = {}
    for name, of_build in seconds.items():
        ratios = [one / other for one, other in zip(first, of_build, strict=True)]
        low, middle, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else 3 * ratios
        found[name] = Compared(median(of_build), middle, low, high)
    return found
