"""Engines: the compiled engine and the interpreted one read the same made-up and damaged profiles.

A difference in what they take, refuse or write is a fault, and so is any error but `ProfileError`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO

from pprof_merge import ENGINE, Collection, ProfileError, encode
from pprof_merge.compiled import INTERPRETED

from tests.campaign.report import Findings
from tests.merge.campaign import cases, real_profiles
from tests.oracle.builder import seeded

_ROOT = Path(__file__).parents[2]
# How many lists of profiles each of the two works through before they are compared.
_ROUND = 50


def run(seed: int, seconds: float, scratch: Path) -> Findings:
    """Compare the engines for `seconds`; see `report`. The profiles of a difference are kept."""
    findings, end = Findings(), time.monotonic() + seconds
    command = [sys.executable, "-m", "tests.campaign.engines", str(seed)]
    environment = {**os.environ, INTERPRETED: "1"}
    compared = refused = 0
    with subprocess.Popen(
        command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other_engine = other.stdout.readline().strip()
        if other_engine == ENGINE:
            findings.fault(f"both engines are {ENGINE}", "make setup")
        made = cases(seeded(seed), real_profiles())
        while not findings.faults:
            print("go on", file=other.stdin, flush=True)
            for case in islice(made, _ROUND):
                ours, theirs = outcome(case.profiles), _next(other.stdout)
                compared += 1
                refused += "merged" not in ours
                if ours != theirs:
                    for which, profile in enumerate(case.profiles):
                        (scratch / f"{compared:05}-{which}").write_bytes(profile)
                    findings.fault(
                        f"{ENGINE}: {ours}; {other_engine}: {theirs}", scratch / f"{compared:05}-*"
                    )
            if time.monotonic() >= end:
                break
        other.stdin.close()
    findings.figure("lists of profiles compared", compared)
    findings.figure("of which none could be merged", refused)
    return findings


def outcome(profiles: list[bytes]) -> str:
    """Return, in one line, what the engine says to each profile, and the digest of their merge."""
    collection, other = Collection(), Collection()
    said = [repr(str(taken)) for taken in collection.extend(profiles)]
    try:
        other.absorb(collection)
        merged = encode(collection.merge())
        if encode(other.merge()) != merged:
            said.append("absorbed, it is another merge")
        said.append(f"merged {sha256(merged).hexdigest()}")
    except ProfileError as error:
        said.append(repr(str(error)))
    return ", ".join(said)


def _next(lines: IO[str]) -> str:
    return lines.readline().rstrip("\n")


def _answer(seed: int) -> None:
    """Print the outcomes of the same lists of profiles, a round for each line that comes."""
    print(ENGINE, flush=True)  # noqa: T201
    made = cases(seeded(seed), real_profiles())
    for _ in sys.stdin:
        for case in islice(made, _ROUND):
            print(outcome(case.profiles), flush=True)  # noqa: T201


if __name__ == "__main__":
    _answer(int(sys.argv[1]))
