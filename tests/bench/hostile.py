"""Inputs made to cost much: what each costs before it is refused, and by which limit."""

from __future__ import annotations

import gzip

from tests.bench.measure import progress
from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.merge.hostile import AS_LET_IN, GZIPPED, HOSTILE, IN_32_KB_OF_GZIP
from tests.merge.intake import Intake, intake

TITLE = "Hostile inputs"
# A thousandth of what it inflates to, give or take: what repeats itself.
_SMALL = AS_LET_IN // 256
_LEVEL = 6


def sections(rig: Rig) -> list[Section]:
    """Measures each in a process of its own."""
    rows, larger = [], []
    for name, (_, fill) in HOSTILE.items():
        as_let_in = gzip.compress(fill(AS_LET_IN), _LEVEL)
        rows.append(_row(name, as_let_in, intake(as_let_in, rig.scratch)))
        if len(as_let_in) < _SMALL and len(flood := fill(IN_32_KB_OF_GZIP)) > AS_LET_IN:
            larger.append(intake(gzip.compress(flood, _LEVEL), rig.scratch))
    for name, (_, fill) in GZIPPED.items():
        data = fill(32 << 10)
        rows.append(_row(name, data, intake(data, rig.scratch)))
    refusals = " and ".join(f"`{name}`" for name in sorted({cost.result for cost in larger}))
    most = f"{seconds(max(cost.seconds for cost in larger))} and {_mebibytes(max(c.memory for c in larger))}"
    return [
        Section(
            TITLE,
            f"""{table(("input", "gzip", "refused by", "CPU", "memory"), rows)}

Each is as large as `inflated_bytes` lets in, {AS_LET_IN >> 20} MiB, and is taken in by a process of its own;
memory is by how much that grew. Less than 0.3 s and 150 MiB is asked. Those that repeat themselves, made
as large as 32 KB of gzip can be ({IN_32_KB_OF_GZIP >> 20} MiB), are refused by {refusals}, at a cost of
{most} at most.""",
        )
    ]


def _row(name: str, data: bytes, cost: Intake) -> list[str]:
    row = [name, f"{len(data) / 1000:.0f} KB", cost.result, seconds(cost.seconds), _mebibytes(cost.memory)]
    progress(" | ".join(row))
    return row


def _mebibytes(size: int) -> str:
    return f"{size >> 20} MiB"
