"""The format `json`: the complete table of `go tool pprof -top`, with every sample type.

Functions with the same name are one row, as in `go tool pprof`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pprof_merge.analysis.stacks import default_column
from pprof_merge.analysis.top_table import TopTable
from pprof_merge.budget import Budget
from pprof_merge.profile import Header, Profile, ValueType

_ADVICE = "select fewer profiles, or ask /v1/top for the first rows"


def top(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """Yield JSON: the header's numbers, the totals, and all functions, the largest flat value first.

    The lists `total`, `flat` and `cum` have an entry for each sample type. Times are in ns. Raises
    OutputTooLarge.
    """
    column = default_column(profile.header)
    table = TopTable.of(profile, budget=budget)
    budget.check(sum(map(len, table.names)), _ADVICE)
    yield from budget.within(_document(profile.header, len(profile.samples), table, column), _ADVICE)


def _document(header: Header, n_stacks: int, table: TopTable, column: int) -> Iterator[bytes]:
    first = {
        "sample_types": [_type(sample_type) for sample_type in header.sample_types],
        "default_sample_type": column,
        "period_type": _type(header.period_type),
        "period": header.period,
        "time_nanos": header.time_nanos,
        "duration_nanos": header.duration_nanos,
        "stacks": n_stacks,
        "total": table.total.tolist(),
    }
    yield _text(first)[:-1] + b', "functions": ['
    separator = b""
    for row in table.order(column):
        flat, cum = table.flat[row].tolist(), table.cum[row].tolist()
        yield separator + _text({"name": table.names[row], "flat": flat, "cum": cum})
        separator = b", "
    yield b"]}\n"


def _text(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def _type(value_type: ValueType) -> dict[str, str]:
    return {
        "type": value_type.type.decode(errors="backslashreplace"),
        "unit": value_type.unit.decode(errors="backslashreplace"),
    }
