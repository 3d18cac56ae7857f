"""Folded stacks: one stack a line, the outermost call first, as flamegraph.pl and its many producers have it.

    main.main;net/http.(*conn).serve;runtime.mallocgc 20000000

See https://github.com/brendangregg/FlameGraph. The number has no unit. A profile of them counts samples.
"""

from __future__ import annotations

import re
from collections import Counter

from pprof_merge import Limits

from pgo_collector.errors import NotPprof
from pgo_collector.readers.stack_profile import StackProfile, lines_of

# Looked at from the end of a line, which takes no time that depends on the stack.
_COUNT = re.compile(r"(?<= )\d{1,20}(?:\.\d{1,20})?\Z", re.ASCII)
_LONGEST_COUNT = 42
_LONGEST_SHOWN = 60


def folded_stack(line: str) -> tuple[str, int] | None:
    """Return the stack in a line, and its number, rounded; None if the line has no number at its end."""
    stripped = line.rstrip()
    found = _COUNT.search(stripped, max(0, len(stripped) - _LONGEST_COUNT))
    if found is None:
        return None
    count = round(float(found[0])) if "." in found[0] else int(found[0])
    return stripped[: found.start()].strip(), count


def read_folded(text: str, limits: Limits) -> bytes:
    """Return a profile of the stacks as bare protobuf; empty lines and comments (`#`) say nothing.

    Raises NotPprof, which names the first line that isn't a stack, and LimitExceeded.
    """
    counts: Counter[str] = Counter()
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = folded_stack(line)
        if found is None:
            shown = line[:_LONGEST_SHOWN]
            raise NotPprof(f"line {number:,} isn't a folded stack, which ends with a number: {shown!r}")
        stack, count = found
        counts[stack] += count
        limits.check("samples", len(counts))
    profile = StackProfile([("samples", "count")], limits)
    for stack, count in counts.items():
        names = stack.split(";") if stack else []
        limits.check("stack_depth", len(names))
        profile.add([profile.location(name) for name in reversed(names)], [count])
    return profile.written()
