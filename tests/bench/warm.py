"""Merges of profiles that are known already, as a collector makes them after each submit."""

from __future__ import annotations

import json
from statistics import median

from tests.bench.measure import progress, run
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import ENGINE, LARGE, MORE, ROOT, Rig

WORDS = {
    "one more": "one more is submitted, then all are merged",
    "any half": "any half of them is merged",
}


def sections(rig: Rig) -> list[Section]:
    """Measures the table."""
    rows = []
    for folder, asked in ((rig.real, "≥ 100"), (rig.mutated, "≥ 50")):
        command = [*ENGINE, "warm", str(folder), str(rig.count(LARGE)), str(MORE)]
        ended = run(command, ROOT)
        costs = json.loads(ended.output)
        medians = {what: median(cost["cpu"] for cost in of) for what, of in costs.items()}
        progress(f"warm: {folder.name}: {medians}, {ended.cost.memory:.0f} MiB")
        go = rig.go_at_large[folder].cpu
        rows += [
            [f"{folder.name}: {words}", asked, ratio(go, medians[what]), seconds(medians[what]), seconds(go)]
            for what, words in WORDS.items()
        ]
        rows.append(
            [
                f"{folder.name}: all are taken in, before",
                "",
                ratio(go, medians["taking all in"]),
                seconds(medians["taking all in"]),
                seconds(go),
            ]
        )
    head = ("10,000 profiles", "asked", "Go ÷ ours: CPU", "ours", "Go's full merge")
    return [
        Section(
            "Warm",
            f"""{table(head, rows)}

A `Collection` has taken in all profiles; what is measured goes from there to the bytes of the merge,
compressed. Go's full merge is `Parse` of all, `Merge` and `Write`, once. A half is another one each time,
chosen at random; so is the profile that comes in.""",
        )
    ]
