"""Our side of the benchmarks, within one process; gobench.go is Go's side.

    engine.py merge FOLDER COUNT REPEAT [PROCESSES]  do the work of the command `pprof-merge`, without its
    start engine.py inflate FOLDER COUNT REPEAT            read and inflate the profiles only engine.py submit
    FOLDER COUNT                    decode and intern one profile at a time engine.py warm FOLDER COUNT REPEAT
    merge a collection that has all profiles

The profiles are the first COUNT files of the folder by name. Prints the seconds as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pprof_merge import Collection, inflate
from pprof_merge.command.cli import main as pprof_merge
from pprof_merge.formats import FORMATS, Format
from pprof_merge.heap import keep_heap

from tests.oracle.builder import seeded

if TYPE_CHECKING:
    from collections.abc import Callable


Cost = dict[str, float]
# The formats in which warm merges are written.
_WARM_FORMATS = ("pprof", "go")


def _cpu_seconds() -> float:
    """Return the CPU time of this process, and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _measured(work: Callable[[], object]) -> Cost:
    gc.collect()  # no run pays for the garbage of the one before
    cpu, wall = _cpu_seconds(), time.perf_counter()
    work()
    return {"cpu": _cpu_seconds() - cpu, "wall": time.perf_counter() - wall}


def _merge(files: list[Path], processes: str) -> None:
    options = ["-j", processes] if processes != "1" else []
    if pprof_merge([*options, "-o", os.devnull, *map(str, files)]):
        raise SystemExit("the merge failed")


def _inflate(files: list[Path]) -> None:
    for file in files:
        inflate(file.read_bytes())


def _submit(files: list[Path]) -> list[float]:
    collection = Collection()
    seconds = []
    for file in files:
        data = file.read_bytes()
        began = time.perf_counter()
        collection.add(data)
        seconds.append(time.perf_counter() - began)
    return seconds


def _warm(files: list[Path], count: int, repeat: int) -> dict[str, list[Cost]]:
    """Measure merges of a collection, format by format; no selection is asked for twice."""
    collection = Collection()
    taking_in = _measured(lambda: list(collection.extend(file.read_bytes() for file in files[:count])))
    costs = {"all are taken in": [taking_in]}
    others = iter(files[count:])
    random = seeded(1)

    def all_of_them(wanted: Format) -> None:
        wanted.write(collection.merge(depth=wanted.depth))

    def one_more(wanted: Format, file: Path) -> None:
        collection.add(file.read_bytes())
        all_of_them(wanted)

    def any_half(wanted: Format, numbers: list[int]) -> None:
        wanted.write(collection.merge(numbers, depth=wanted.depth))

    for name in _WARM_FORMATS:
        wanted = FORMATS[name]
        all_of_them(wanted)
        costs[f"one more is, then all are merged: {name}"] = [
            _measured(partial(one_more, wanted, file)) for file in islice(others, repeat)
        ]
        costs[f"any half of them is merged: {name}"] = [
            _measured(partial(any_half, wanted, random.sample(range(count), count // 2)))
            for _ in range(repeat)
        ]
    return costs


def _run(work: str, folder: str, count: str, repeat: str = "1", processes: str = "1") -> object:
    keep_heap()  # as the collector's workers do
    files = sorted(Path(folder).iterdir())
    if work == "warm":
        return _warm(files, int(count), int(repeat))
    files = files[: int(count)]
    if work == "submit":
        return _submit(files)

    def do(some: list[Path]) -> None:
        if work == "merge":
            _merge(some, processes)
        else:
            _inflate(some)

    do(files[:1])
    return [_measured(lambda: do(files)) for _ in range(int(repeat))]


if __name__ == "__main__":
    json.dump(_run(*sys.argv[1:]), sys.stdout)
