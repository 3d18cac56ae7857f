"""Inputs: damaged profiles, thousands a second, are read and merged by the compiled engine alone.

Each is taken or refused with a `ProfileError`; any other error is a fault. So is a crash, which ends the
command, and which the same seed brings about again. What the engine takes is compared with Go in `merges`,
and with the interpreted engine in `engines`.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from pprof_merge import ENGINE, ProfileError, encode
from pprof_merge.merging.batch import Batch

from tests.campaign.report import Findings
from tests.merge.campaign import real_profiles
from tests.oracle.builder import World, seeded
from tests.oracle.mutation import mutate_bytes, mutate_fields

# How many batches are made of the same sources, and of how many inputs each.
_BATCHES = 50
_INPUTS = 20
# One input in this number is a damaged real profile, which takes longer.
_REAL = 20


def run(seed: int, seconds: float, scratch: Path) -> Findings:
    """Read damaged profiles for `seconds`; see `report`. An input that is a fault is kept."""
    findings, end = Findings(), time.monotonic() + seconds
    random, real = seeded(seed), real_profiles()
    outcomes: Counter[str] = Counter()
    while time.monotonic() < end and not findings.faults:
        world = World(random, empty_strings=random.randrange(2) == 0)
        sources = [world.profile() for _ in range(10)]
        damaged = [mutate_fields(random, source) for source in sources]
        for _ in range(_BATCHES):
            batch = Batch()
            for _ in range(_INPUTS):
                whole = random.choice(real if random.randrange(_REAL) == 0 else [*sources, *damaged])
                outcomes[_read(batch, mutate_bytes(random, whole), findings, scratch)] += 1
            outcomes[_merged(batch, findings, seed)] += 1
    findings.figure("engine", ENGINE)
    for outcome, count in outcomes.most_common():
        findings.figure(outcome, count)
    return findings


def _read(batch: Batch, data: bytes, findings: Findings, scratch: Path) -> str:
    """Read an input; return the outcome in a word."""
    try:
        batch.read(data)
    except ProfileError:
        return "refused"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
        (scratch / "fault").write_bytes(data)
        findings.fault(f"{type(error).__name__}: {error}", scratch / "fault")
    return "taken"


def _merged(batch: Batch, findings: Findings, seed: int) -> str:
    """Merge and write what was taken; return the outcome in a word."""
    try:
        encode(batch.merge())
    except ProfileError:
        return "batches of different types, or of none that was taken"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
        findings.fault(f"the merge: {type(error).__name__}: {error}", f"seed {seed}")
    return "batches merged"
