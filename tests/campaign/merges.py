"""Merges: lists of made-up and damaged profiles, merged by Go and by ours; a difference is a fault."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from tests.campaign.report import Findings
from tests.merge.campaign import cases, check, real_profiles
from tests.oracle.builder import seeded
from tests.oracle.oracle import running


def run(seed: int, seconds: float, scratch: Path) -> Findings:
    """Merge one list after another for `seconds`; see `report`. The profiles of a difference are kept."""
    findings, end = Findings(), time.monotonic() + seconds
    outcomes: Counter[str] = Counter()
    with running(scratch) as oracle:
        for number, case in enumerate(cases(seeded(seed), real_profiles()), start=1):
            try:
                outcomes[f"{case.kind}: {check(case, oracle)}"] += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a difference
                for which, profile in enumerate(case.profiles):
                    (scratch / f"{number:05}-{which}").write_bytes(profile)
                words = f"{case.kind}: {type(error).__name__}: {error}"[:300]
                findings.fault(words, scratch / f"{number:05}-*")
            if time.monotonic() >= end:
                break
    for outcome, count in outcomes.most_common():
        findings.figure(outcome, count)
    return findings
