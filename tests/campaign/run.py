"""The command of the campaign: `make campaign ARGS="bombs --seconds 60 --seed 2"`.

Each part tries to break something for some seconds. It prints its seed, figures and faults; the exit status
is 1 if there are faults. A folder, whose name is printed, keeps what reproduces them.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn, Protocol, cast

from tests.campaign.report import Findings

# The module of each part, imported when the part runs.
PARTS = {
    "merges": "tests.campaign.merges",
    "engines": "tests.campaign.engines",
    "inputs": "tests.campaign.inputs",
    "bombs": "tests.campaign.bombs",
    "cost": "tests.campaign.cost",
    "wire": "tests.campaign.wire",
    "senders": "tests.campaign.senders",
    "scopes": "tests.campaign.scopes",
    "chaos": "tests.campaign.chaos",
    "soak": "tests.campaign.soak",
    "squeeze": "tests.campaign.squeeze",
    "machines": "tests.campaign.machines",
    "programs": "tests.campaign.programs",
}


class Part(Protocol):
    """A module of the campaign."""

    def run(self, seed: int, seconds: float, scratch: Path) -> Findings: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a part; return the exit status."""
    described = argparse.ArgumentParser(prog="make campaign ARGS=", description=__doc__)
    described.add_argument("part", choices=PARTS, help="what to try")
    described.add_argument("--seconds", type=float, default=60.0, help="for how long (default: %(default)s)")
    described.add_argument("--seed", type=int, default=1, help="what all choices are drawn from")
    options = described.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)  # so that parts undo their mounts and stop their processes
    return run_part(options.part, options.seed, options.seconds)


def _stop(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def run_part(name: str, seed: int, seconds: float) -> int:
    """Run a part in a new folder, which stays if there are faults, and print its findings."""
    scratch = Path(tempfile.mkdtemp(prefix=f"campaign-{name}-"))
    print(f"campaign {name}: seed {seed}, {seconds:g} s, files in {scratch}", flush=True)  # noqa: T201
    began = time.monotonic()
    part = cast("Part", import_module(PARTS[name]))
    findings = part.run(seed, seconds, scratch)
    print(*findings.lines(), sep="\n")  # noqa: T201
    took = time.monotonic() - began
    print(f"campaign {name}: {len(findings.faults)} faults; seed {seed}, {took:.0f} s", flush=True)  # noqa: T201
    if findings.faults:
        return 1
    shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
