"""Warm merges: of profiles that are interned already, as a collector makes them after each submit."""

from __future__ import annotations

import json
from statistics import median

from tests.bench.measure import progress, run
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import ENGINE, LARGE, ROOT, Rig

# The target, as a factor below Go's full merge, by the end of a row's name.
_ASKED = {"pprof": {"real": "≥ 100", "mutated": "≥ 50"}, "go": {"real": "≥ 200", "mutated": "≥ 200"}}
_REPEAT = 7


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    rows = []
    for folder in (rig.real, rig.mutated):
        ended = run([*ENGINE, "warm", str(folder), str(rig.count(LARGE)), str(_REPEAT)], ROOT)
        progress(f"warm: {folder.name}: {ended.cost.cpu:.1f} s CPU, {ended.cost.memory:.0f} MiB")
        go = rig.go_at_large[folder].cpu
        for what, costs in json.loads(ended.output).items():
            ours = median(cost["cpu"] for cost in costs)
            asked = _ASKED.get(what.rpartition(" ")[2], {}).get(folder.name, "")
            rows.append([f"{folder.name}: {what}", asked, ratio(go, ours), seconds(ours), seconds(go)])
            progress(" | ".join(rows[-1]))
    head = ("10,000 profiles", "asked", "Go ÷ ours: CPU", "ours", "Go's full merge")
    return [
        Section(
            "Warm",
            f"""{table(head, rows)}

A `Collection` takes in all profiles once. Then one more profile is added, or any half of them is merged,
until the bytes of the merge are ready in a format. The profile and the half are different each time, so
that no answer comes from a cache. Go's full merge is `Parse` of all profiles, `Merge` and `Write`.""",
        )
    ]
