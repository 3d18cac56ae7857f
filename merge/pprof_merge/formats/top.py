"""`json`: the table of `go tool pprof -top`, whole and with every sample type.

Functions are told apart by name, as there.
"""

from __future__ import annotations

import json

from pprof_merge.formats.sample_type import default_column
from pprof_merge.profile import Profile, ValueType
from pprof_merge.top_table import TopTable


def top(profile: Profile) -> bytes:
    """JSON: the header's numbers, totals, and every function, the one with most of its own first.

    What is a list has an entry for each sample type; times in ns.
    """
    header, table = profile.header, TopTable.of(profile)
    names, flat, cum = table.names, table.flat.tolist(), table.cum.tolist()
    column = default_column(header)
    document = {
        "sample_types": [_type(sample_type) for sample_type in header.sample_types],
        "default_sample_type": column,
        "period_type": _type(header.period_type),
        "period": header.period,
        "time_nanos": header.time_nanos,
        "duration_nanos": header.duration_nanos,
        "stacks": len(profile.samples),
        "total": table.total.tolist(),
        "functions": [
            {"name": names[row], "flat": flat[row], "cum": cum[row]} for row in table.order(column)
        ],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _type(value_type: ValueType) -> dict[str, str]:
    return {
        "type": value_type.type.decode(errors="backslashreplace"),
        "unit": value_type.unit.decode(errors="backslashreplace"),
    }
