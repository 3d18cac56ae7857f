"""Hostile inputs: the cost of each before it is refused, and by which limit; outputs of those accepted."""

from __future__ import annotations

import gzip

from pprof_merge.formats import FORMATS

from tests.bench.measure import progress
from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.merge.hostile import AS_LET_IN, GZIPPED, HOSTILE, IN_32_KB_OF_GZIP
from tests.merge.hostile_outputs import HOSTILE_OUTPUTS
from tests.merge.intake import Intake, intake
from tests.merge.writing import TOO_LARGE, UNFIT, WRITTEN, Writing, writings

TITLE = "Hostile inputs"
OUTPUTS_TITLE = "Outputs of hostile inputs"
# Repetitive data: about a thousandth of its inflated size.
_SMALL = AS_LET_IN // 256
_LEVEL = 6
_BUDGET = 256 << 20
_ROOM = 3 * _BUDGET
_SHOWN = (*FORMATS, "table by function", "flame graph, zoomed", "timeline", "report")


def sections(rig: Rig) -> list[Section]:
    """Measure each input in a process of its own."""
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

Each input is as large as `inflated_bytes` allows, {AS_LET_IN >> 20} MiB, and is taken in by a process of
its own. Memory is how much that process grew. The target is at most 0.1 s and 100 MiB. Repetitive inputs,
made as large as 32 KB of gzip can be ({IN_32_KB_OF_GZIP >> 20} MiB), are refused by {refusals}, at a cost
of {most} at most.""",
        ),
        _outputs(rig),
    ]


def _outputs(rig: Rig) -> Section:
    """Write each output of the profiles whose outputs would be enormous."""
    rows, refused = [], []
    for name, make in HOSTILE_OUTPUTS.items():
        data = make()
        found = writings(data, rig.scratch, _BUDGET, _ROOM)
        refused += [each for each in found.values() if each.result == TOO_LARGE]
        shown = [_output(found[output]) for output in _SHOWN]
        rows.append([name, f"{len(gzip.compress(data, _LEVEL)) / 1000:.0f} KB", *shown])
        progress(" | ".join(rows[-1]))
    time, memory = max(each.seconds for each in refused), max(each.memory for each in refused)
    return Section(
        OUTPUTS_TITLE,
        f"""{table(("input", "gzip", *_SHOWN), rows)}

Each input is a profile within all limits. The table shows the CPU time and the memory growth of a process
that writes each output, within a budget (`PGOF_MAX_OUTPUT_BYTES`) of {_BUDGET >> 20} MiB. A larger output
is **refused**, at a cost of {seconds(time)} and {_mebibytes(memory)} at most. A hyphen means that the
profile can't be written in that format.""",
    )


def _output(writing: Writing) -> str:
    if writing.result == UNFIT:
        return "-"
    cost = f"{seconds(writing.seconds)}, {_mebibytes(writing.memory)}"
    return {WRITTEN: cost, TOO_LARGE: "**refused**"}.get(writing.result, writing.result)


def _row(name: str, data: bytes, cost: Intake) -> list[str]:
    row = [name, f"{len(data) / 1000:.0f} KB", cost.result, seconds(cost.seconds), _mebibytes(cost.memory)]
    progress(" | ".join(row))
    return row


def _mebibytes(size: int) -> str:
    return f"{size >> 20} MiB"
