"""`folded`: a line a stack, as Brendan Gregg's flamegraph.pl and most viewers take it.

    main.main;net/http.(*conn).serve;runtime.mallocgc 20000000

See https://github.com/brendangregg/FlameGraph. The number is of the sample type that `go tool pprof`
shows by default. A semicolon within a name becomes a colon, as stackcollapse-perf.pl has it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pprof_merge.formats.sample_type import default_column
from pprof_merge.formats.stacks import stacks_of
from pprof_merge.profile import Profile

_ESCAPES = str.maketrans({";": ":", "\n": " ", "\r": " "})


def folded(profile: Profile) -> bytes:
    """Lines in the order of their stacks, each stack once, without those that add up to 0; UTF-8."""
    stacks = stacks_of(profile)
    names = [frame.name.translate(_ESCAPES) for frame in stacks.frames]
    path = [names[row] for row in stacks.rows.tolist()]
    numbers: dict[str, int] = {}
    number_of = [
        numbers.setdefault(";".join(path[start:end]) or "<unknown>", len(numbers))
        for start, end in pairwise(stacks.offsets.tolist())
    ]
    totals = np.zeros(len(numbers), np.int64)
    np.add.at(totals, number_of, profile.samples.values[:, default_column(profile.header)])
    lines = [
        f"{stack} {total}\n" for stack, total in sorted(zip(numbers, totals.tolist(), strict=True)) if total
    ]
    return "".join(lines).encode()
