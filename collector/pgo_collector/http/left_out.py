"""The response header PGO-Left-Out: which blobs a merge had to leave out, and why.

An RFC 9651 list of strings with the parameter `reason`; where it is cut short, an integer at its end
says how many more there are: `"default/cpu/…/1-ab.pb.gz";reason="gzip: the stream is truncated", 12`
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pgo_collector.engine.collected import LeftOut

HEADER = "PGO-Left-Out"
_MOST_ENTRIES = 10
_LONGEST_REASON = 120


def left_out_header(left_out: Sequence[LeftOut]) -> str:
    """The header's value; empty if nothing was left out."""
    members = [
        f"{_string(left.blob)};reason={_string(left.reason[:_LONGEST_REASON])}"
        for left in left_out[:_MOST_ENTRIES]
    ]
    if len(left_out) > _MOST_ENTRIES:
        members.append(str(len(left_out) - _MOST_ENTRIES))
    return ", ".join(members)


def _string(text: str) -> str:
    """A structured string: printable ASCII in quotes; what it can't hold becomes a question mark."""
    escaped = re.sub(r'(["\\])', r"\\\1", re.sub(r"[^\x20-\x7e]", "?", text))
    return f'"{escaped}"'
