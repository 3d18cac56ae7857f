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
# Names have labels in them, up to some KB; proxies and clients take headers of 8 KB in all.
_LONGEST = 6000


def left_out_header(left_out: Sequence[LeftOut]) -> str:
    """The header's value; empty if nothing was left out."""
    members: list[str] = []
    size = 0
    for left in left_out[:_MOST_ENTRIES]:
        member = f"{_string(left.blob)};reason={_string(left.reason[:_LONGEST_REASON])}"
        size += len(member) + 2
        if size > _LONGEST:
            break
        members.append(member)
    if len(left_out) > len(members):
        members.append(str(len(left_out) - len(members)))
    return ", ".join(members)


def _string(text: str) -> str:
    """A structured string: printable ASCII in quotes; what it can't hold becomes a question mark."""
    escaped = re.sub(r'(["\\])', r"\\\1", re.sub(r"[^\x20-\x7e]", "?", text))
    return f'"{escaped}"'
