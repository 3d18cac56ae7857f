"""The cost of one capture: `python -m tests.bench.finishing BACKEND EXECUTABLE SECONDS FILE`.

Prints the CPU time of the agent and its profiler while they sample, and from the last sample to the profile
(s); their memory at the end of sampling (MiB); the number of samples, and how many stacks are cut short, if
that is known.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import threading
import time
from pathlib import Path

from pgo_agent.backends import ProcessSampler, backends
from pgo_agent.native import native_profile

from tests.agent.sampling import wait_until_begun
from tests.cpu_meter import CpuMeter, children_of

_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


class _Ending(threading.Event):
    """An event that is set when sampling ends.

    `sampling` is the CPU time (s) of the agent and its profiler from when it began, `taken` all until then;
    `memory` is that of both then (MiB).
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.taken = self.sampling = self.memory = 0.0
        threading.Thread(target=self._end_after, args=(seconds,), daemon=True).start()

    def _end_after(self, seconds: float) -> None:
        wait_until_begun(os.getpid())
        meter = CpuMeter(os.getpid())
        before = meter.taken()
        time.sleep(seconds)
        self.taken = meter.taken()
        self.sampling = self.taken - before
        self.memory = sum(map(memory_of, (os.getpid(), *children_of(os.getpid()))))
        self.set()


def memory_of(pid: int) -> float:
    """Return the memory of a process (MiB)."""
    found = _RESIDENT.search(Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def main() -> None:
    """Measure it once."""
    name, program, seconds, file = sys.argv[1:]
    ending = _Ending(float(seconds))
    recording = ProcessSampler(backends()[name], (program,)).record(600 + float(seconds), ending)
    Path(file).write_bytes(native_profile(recording))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    taken = sum(of.ru_utime + of.ru_stime for of in used) - ending.taken
    cost = {
        "cpu": taken,
        "sampling": ending.sampling,
        "memory": ending.memory,
        "samples": sum(count for count, _ in recording.stacks.values()),
        "cut_short": recording.cut_short,
    }
    json.dump(cost, sys.stdout)


if __name__ == "__main__":
    main()
