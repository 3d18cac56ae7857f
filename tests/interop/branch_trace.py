"""A recording of perf record -b of a real run, made without a CPU that records branches.

The program runs instruction by instruction, which shows each branch that it takes. What the CPU would have
recorded is written into perf's own recording of the run.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import pairwise
from pathlib import Path

import capstone
import numpy as np

from tests.agent.native.perf_data import Branches, of_hardware, with_branches
from tests.interop.native_program import run

_STEP = Path(__file__).with_name("step.c")
_RECORDS = 32  # as many as Intel's CPUs have
_MAP = re.compile(r"(\w+)-(\w+) r.xp (\w+) \S+ \d+ +(/.*)")


def recorded_branches(binary: Path, *arguments: str, n: int) -> Path:
    """Return the recording of one run: each n-th branch makes a sample, which has the latest ones."""
    recording, steps, step = (binary.with_name(name) for name in ("branches.data", "steps", "step"))
    run("clang", "-O1", "-o", step, _STEP)
    perf = ("perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "--buildid-mmap", "--no-bpf-event")
    said = run(*perf, "-o", recording, step, steps, binary, *arguments)
    pid = re.search(r"^\d+$", said, re.MULTILINE)
    assert pid
    of_hardware(recording, b"cycles:u")
    taken = _taken(np.fromfile(steps, np.uint64).tolist(), said)
    with_branches(recording, _stacks(taken, n), int(pid[0]))
    return recording


def _taken(steps: list[int], maps: str) -> list[tuple[int, int]]:
    """Return the branches between steps: where the next isn't what follows in memory."""
    machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    code = [
        (int(start, 16), int(end, 16), int(offset, 16), Path(file).read_bytes())
        for start, end, offset, file in _MAP.findall(maps)
    ]
    after: dict[int, int] = {}
    taken = []
    for at, following in pairwise(steps):
        if at not in after:
            here = (
                content[offset + at - start :][:15]
                for start, end, offset, content in code
                if start <= at < end
            )
            instruction = next(machine.disasm(next(here, b""), at, 1), None)
            after[at] = at + instruction.size if instruction else 0
        # A repeated instruction is no branch, nor is what the kernel did meanwhile.
        if following not in {at, after[at]} and after[at]:
            taken.append((at, following))
    return taken


def _stacks(taken: list[tuple[int, int]], n: int) -> list[Branches]:
    latest: deque[tuple[int, int]] = deque(maxlen=_RECORDS)
    stacks: list[Branches] = []
    for number, branch in enumerate(taken, 1):
        latest.appendleft(branch)
        if number % n == 0:
            stacks.append(tuple(latest))
    return stacks
