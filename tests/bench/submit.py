"""The engine's work for one submit: decode a profile, which validates it, and intern it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from tests.bench.measure import progress, run
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import ENGINE, ROOT, Rig


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    cases = [
        ("real, one after another", rig.real, rig.count(1000)),
        ("mutated", rig.mutated, rig.count(1000)),
        ("the compiler's `default.pgo`", rig.compiler, rig.count(200)),
    ]
    rows = []
    for name, folder, count in cases:
        arguments = ["submit", str(folder), str(count)]
        ours, go = [], []
        for _ in range(rig.rounds(3)):
            ours.append(_latency([*ENGINE, *arguments]))
            go.append(_latency([rig.gobench, *arguments]))
        mine, theirs = (tuple(map(median, zip(*each, strict=True))) for each in (ours, go))
        ratios = [ratio(*pair) for pair in zip(theirs, mine, strict=True)]
        size = median(file.stat().st_size for file in sorted(folder.iterdir())[:count])
        rows.append([f"{name}, {size / 1000:.0f} KB", "≥ 1", *ratios, *map(seconds, (*mine, *theirs))])
        progress(f"submit: {' | '.join(rows[-1])}")
    head = ("profiles", "asked", "Go ÷ ours: median", "99 %", "ours: median", "99 %", "Go: median", "99 %")
    return [
        Section(
            "One submit",
            f"""{table(head, rows)}

By the clock, one profile at a time: a `Collection` takes it in, beside Go's `Parse` and `Write`, which is
what pgo-fleet does. "99 %" is the 99th percentile.""",
        )
    ]


def _latency(command: Sequence[str | Path]) -> tuple[float, float]:
    """Return the median and the 99th percentile, in seconds."""
    latencies = json.loads(run(command, ROOT).output)
    return median(latencies), quantiles(latencies, n=100, method="inclusive")[98]
