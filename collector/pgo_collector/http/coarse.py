"""The response header PGO-Coarse: how many of the profiles in a merge have more in them than was asked for.

An RFC 9651 integer; with the parameter `labels` where that is so by labels, since roll-ups dropped them, and
these are their keys, percent-encoded: `3;labels="instance,pod"`
"""

from __future__ import annotations

from urllib.parse import quote

from pgo_collector.store.selection import Coarse

HEADER = "PGO-Coarse"


def coarse_headers(coarse: Coarse) -> dict[str, str]:
    """The header; none where just that was found which was asked for."""
    if not coarse.blobs:
        return {}
    keys = ",".join(quote(key, safe="") for key in coarse.labels)
    labels = f';labels="{keys}"' if keys else ""
    return {HEADER: f"{len(coarse.blobs)}{labels}"}
