"""The cost of some work, measured in a child process with a cap on it."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pprof_merge.heap import trim_heap

_WALL_SECONDS = 300.0


class Cap(NamedTuple):
    """A cap on work: memory in bytes, beyond what the process has at the start, and CPU time in s."""

    memory: int = 1 << 30
    cpu: int = 60


class Cost(NamedTuple):
    """The cost of work: memory and output in bytes, CPU time in s.

    `fault` says what is wrong, if anything; `refusal` is the documented error that the work ended with, if
    any.
    """

    memory: int = 0
    output: int = 0
    cpu: float = 0.0
    refusal: str = ""
    fault: str = ""


def cost_of(work: Callable[[], int], documented: tuple[type[Exception], ...], cap: Cap) -> Cost:
    """Run the work in a child process. Return its cost; the work returns the size of its output.

    An undocumented exception, a signal, and exceeding the cap are faults.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's threads are idle meanwhile
        child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.close(reading)
            os.write(writing, json.dumps(_measured(work, documented, cap)).encode())
        os._exit(0)
    os.close(writing)
    told = _all_of(reading, child)
    _, status = os.waitpid(child, 0)
    if told:
        return Cost(*json.loads(told))
    number = os.waitstatus_to_exitcode(status)
    cause = signal.Signals(-number).name if number < 0 else f"exit status {number}"
    return Cost(cap.memory, 0, float(cap.cpu), "", f"the process was ended by {cause}")


def _all_of(reading: int, child: int) -> bytes:
    """Return what the child writes; nothing if that takes minutes: the child is then killed."""
    told, deadline = b"", time.monotonic() + _WALL_SECONDS
    with os.fdopen(reading, "rb") as pipe:
        while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not (part := os.read(reading, 1 << 16)):
                return told
            told += part
        os.kill(child, signal.SIGKILL)
    return b""


def _measured(work: Callable[[], int], documented: tuple[type[Exception], ...], cap: Cap) -> Cost:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    trim_heap()  # or memory that is free already would be reused at no cost
    before = _status("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (before + cap.memory, before + cap.memory))
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = used.ru_utime + used.ru_stime
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + cap.cpu, int(spent) + cap.cpu + 1))
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    resident = _status("VmRSS")
    output, refusal, fault = 0, "", ""
    try:
        output = work()
    except documented as error:
        refusal = type(error).__name__
    except MemoryError:
        fault = f"more than {cap.memory >> 20} MiB of memory"
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        fault = f"{type(error).__name__} at {where}: {str(error)[:200]}"
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = cap.memory if fault.startswith("more than") else max(_status("VmHWM") - resident, 0)
    return Cost(peak, output, used.ru_utime + used.ru_stime - spent, refusal, fault)


def _status(name: str) -> int:
    """Return a field of this process's status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise LookupError(name)
