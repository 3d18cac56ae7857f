"""The cost from the last sample to the profile: `python -m tests.bench.finishing BACKEND SECONDS FILE`.

Prints the CPU time of the agent and its profiler (s), and the number of samples.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

from pgo_agent.backends import ProcessSampler, backends
from pgo_agent.native import native_profile

from tests.agent.sampling import wait_until_begun
from tests.cpu_meter import CpuMeter


class _Ending(threading.Event):
    """An event that is set when sampling ends; `taken` is the CPU time (s) of both processes until then."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.taken = 0.0
        threading.Thread(target=self._end_after, args=(seconds,), daemon=True).start()

    def _end_after(self, seconds: float) -> None:
        wait_until_begun(os.getpid())
        time.sleep(seconds)
        self.taken = CpuMeter(os.getpid()).taken()
        self.set()


def main() -> None:
    """Measure it once."""
    name, seconds, file = sys.argv[1:]
    ending = _Ending(float(seconds))
    recording = ProcessSampler(backends()[name], ("postgres",)).record(600 + float(seconds), ending)
    Path(file).write_bytes(native_profile(recording))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    taken = sum(of.ru_utime + of.ru_stime for of in used) - ending.taken
    samples = sum(count for count, _ in recording.stacks.values())
    json.dump({"cpu": taken, "samples": samples}, sys.stdout)


if __name__ == "__main__":
    main()
