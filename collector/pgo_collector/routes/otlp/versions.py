"""Tell which version of OTLP's wire a request is in: 1.10 changed the numbers of a sample's fields.

Requests of 1.7 and before have no table of stacks, by which they are refused. The others parse as either
wire, with other values. Numbers that aren't packed tell nothing: protobuf lets senders write them so, and
Java's do.
"""

from __future__ import annotations

from collections.abc import Sequence

from pprof_merge.codec import wires_of_samples

from pgo_collector.errors import PushInvalid

READ = "versions 1.8 to 1.11 are read: update the sender"
# Of `wires_of_samples`.
_SURELY_BEFORE, _SURELY_CURRENT, _NOT_BEFORE, _NOT_CURRENT = 1, 2, 4, 8


def is_before_1_10(message: bytes, profiles: Sequence[tuple[int, int]], attributes: int, links: int) -> bool:
    """Return whether a request is in the wire of 1.8 and 1.9, whose `profiles` are at these bytes.

    `attributes` and `links` are how many its dictionary has. Raises PushInvalid for samples that contradict
    each other. A request that can be either is read as of 1.10.
    """
    told = 0
    for profile in profiles:
        told |= wires_of_samples(message, *profile, attributes, links)
    if told & _SURELY_BEFORE and told & _SURELY_CURRENT:
        raise PushInvalid(f"some samples are written as in OTLP 1.10, others as in 1.9; {READ}")
    if told & (_SURELY_BEFORE | _SURELY_CURRENT):
        return bool(told & _SURELY_BEFORE)
    return bool(told & _NOT_CURRENT and not told & _NOT_BEFORE)
