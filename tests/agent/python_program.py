"""A Python program that C calls in many ways, and that counts the CPU time of each of its stacks itself.

Its argument is for how many seconds of CPU time it computes, once it has read a line. Then it prints the
seconds by the functions of the stack, innermost first. It runs on any version of Python, without a package.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

DEPTH = 300  # more frames than the kernel's side tells
used: Counter[str] = Counter()


def spin(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        sum(range(100))
    stack = list[str]()
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - documented, and there is no other way
    while frame:
        stack.append(frame.f_code.co_qualname)
        frame = frame.f_back
    used[" ".join(stack)] += time.thread_time() - began  # type: ignore[assignment]


def key(_: int) -> int:
    spin(0.002)
    return 0


def by_sort() -> None:
    sorted(range(2), key=key)


def steps() -> Iterator[None]:
    for _ in range(2):
        spin(0.002)
        yield


def by_generator() -> None:
    list(steps())


def encode(_: object) -> str:
    spin(0.004)
    return ""


def by_json() -> None:
    json.dumps([object()], default=encode)


class Made:
    def __init__(self) -> None:
        spin(0.004)


def by_class() -> None:
    Made()


async def wait() -> None:
    spin(0.004)
    await asyncio.sleep(0)


def by_asyncio() -> None:
    asyncio.run(wait())


def by_thread() -> None:
    thread = threading.Thread(target=spin, args=(0.004,))
    thread.start()
    thread.join()


def without_lock() -> None:
    began = time.thread_time()
    while time.thread_time() - began < 0.004:
        hashlib.sha256(bytes(500_000))
    used["without_lock serve <module>"] += time.thread_time() - began  # type: ignore[assignment]


def deep(left: int = DEPTH) -> None:
    if left:
        deep(left - 1)
    else:
        spin(0.004)


def größe() -> None:  # noqa: PLC2401 - that is the point
    spin(0.004)


WAYS: tuple[Callable[[], None], ...] = (by_sort, by_generator, by_json, by_class, by_asyncio, by_thread)
WAYS += (without_lock, deep, größe)


def serve(seconds: float) -> None:
    while time.process_time() < seconds:
        for way in WAYS:
            way()


if __name__ == "__main__":
    # A name that no other process of the machine has.
    Path("/proc/self/comm").write_text(f"python-{os.getpid()}")
    print("ready", flush=True)  # noqa: T201 - what the test waits for
    sys.stdin.readline()
    used.clear()
    serve(time.process_time() + float(sys.argv[1]))
    print(json.dumps(used), flush=True)  # noqa: T201 - its answer
    sys.stdin.readline()
