"""Work of a Python program, with the profiler or without: `python -m tests.bench.sampled LOAD WAY PASSES`.

Prints what a pass takes, with what the profiler's process takes: a JSON list of one {"cpu": s, "wall": s}.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable

from pgo_agent import StackSampler

from tests.cpu_meter import CpuMeter

_TEXT = b"".join(b"%d" % (number**3) for number in range(150_000))


def _compute() -> None:
    total = 0
    for number in range(3_000_000):
        total += number % 7


def _compress() -> None:
    zlib.compress(_TEXT, 6)


def _in_two_threads(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def _tasks() -> None:
    async def one() -> None:
        for _ in range(10):
            sum(number % 7 for number in range(200))
            await asyncio.sleep(0)

    await asyncio.gather(*(one() for _ in range(2000)))


_LOADS: dict[str, Callable[[], None]] = {
    "threads": lambda: _in_two_threads(_compute),
    "extensions": lambda: _in_two_threads(_compress),
    "asyncio": lambda: asyncio.run(_tasks()),
}


def main() -> None:
    """Measure the passes."""
    load, way, passes = sys.argv[1:]
    over = threading.Event()
    sampler = threading.Thread(target=lambda: StackSampler(100).sample(3600, over))
    if way == "sampled":
        sampler.start()
        time.sleep(0.2)
    meter = CpuMeter(os.getpid())
    cpu, wall = meter.taken(), time.perf_counter()
    for _ in range(int(passes)):
        _LOADS[load]()
    taken = meter.taken() - cpu, time.perf_counter() - wall
    over.set()
    if way == "sampled":
        sampler.join()
    json.dump([dict(zip(("cpu", "wall"), (each / int(passes) for each in taken), strict=True))], sys.stdout)


if __name__ == "__main__":
    main()
