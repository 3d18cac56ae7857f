"""The overhead of the agent's client in a program."""

from __future__ import annotations

import re
import sys
from functools import partial

from tests.bench.measure import Cost, in_turns, run
from tests.bench.report import Section, seconds, table
from tests.bench.rig import ROOT, Rig

_ROUNDS = 21
# The memory of the process itself, without that of its parent.
_STATUS = "print(open('/proc/self/status').read())"
_PROGRAMS = {"with": "import pgo_agent", "without": "pass"}


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    ran = {name: partial(_cost, program) for name, program in _PROGRAMS.items()}
    costs = in_turns("client", rig.rounds(_ROUNDS), ran)
    more = [having - lacking for having, lacking in zip(costs["with"], costs["without"], strict=True)]
    head = ("`import pgo_agent`", "CPU", "clock", "memory")
    rows = [
        ["asked", "", "< 150 ms", "< 30 MiB"],
        ["takes", seconds(more[0]), seconds(more[1]), f"{more[2]:.0f} MiB"],
    ]
    return [
        Section(
            "The client in a program",
            f"""{table(head, rows)}

The additional cost of a Python program that imports the client and ends, over one that does nothing.""",
        )
    ]


def _cost(program: str) -> Cost:
    ended = run([sys.executable, "-c", f"{program}\n{_STATUS}"], ROOT)
    memory = re.search(rb"VmHWM:\s+(\d+) kB", ended.output)
    assert memory
    return ended.cost._replace(memory=int(memory[1]) / 1024)
