"""The memory of large merges, and how it grows."""

from __future__ import annotations

from tests.bench.measure import progress, run
from tests.bench.report import Section, ratio, table
from tests.bench.rig import LARGE, Rig

MEMORY = "Memory"


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    rows = []
    for folder, asked in ((rig.real, ""), (rig.mutated, "≥ 10")):
        files = sorted(folder.iterdir())
        ours = []
        for count in (rig.count(LARGE // 5), rig.count(LARGE)):
            cost = run([rig.pprof_merge, "-o", rig.scratch / "ours", *files[:count]], rig.scratch).cost
            progress(f"memory: {count} {folder.name}: {cost.memory:.0f} MiB, {cost.cpu:.1f} s CPU")
            ours.append(cost.memory)
        go = rig.go_at_large[folder].memory
        cells = [f"{mebibytes:.0f} MiB" for mebibytes in (*ours, go)]
        rows.append([folder.name, asked, ratio(go, ours[1]), *cells])
    head = ("profiles", "asked", "Go ÷ ours at 10,000", "ours at 2,000", "ours at 10,000", "Go at 10,000")
    return [
        Section(
            MEMORY,
            f"""{table(head, rows)}

The peak memory of `pprof-merge`, beside pgo-fleet's way: `Parse` all profiles, then `Merge` and `Write`.""",
        )
    ]
