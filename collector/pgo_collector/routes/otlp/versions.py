"""Tell which version of OTLP's wire a request is in: 1.10 changed the numbers of a sample's fields.

Both forms parse as the other one, with other values, so the wire types of the fields are what tells them
apart. Requests of 1.7 and before, which had no table of stacks, are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pprof_merge.codec import counted_as_values, tags_below

from pgo_collector.errors import PushInvalid

READ = "versions 1.8 to 1.11 are read: update the sender"
_VARINT, _LENGTH = 0, 2
# The field of a profile with its samples.
_SAMPLES = 2


class _Signs(NamedTuple):
    """Whether any sample has a field as only 1.10, 1.8 or 1.7 write it."""

    of_current: bool
    of_before: bool
    of_ancient: bool


def is_before_1_10(message: bytes, profiles: Sequence[tuple[int, int]], attributes: int) -> bool:
    """Return whether a request is in the wire of 1.8 and 1.9, whose `profiles` are at these bytes.

    `attributes` is how many its dictionary has. Raises PushInvalid for older versions, and for samples that
    contradict each other.
    """
    signs = _signs(message, profiles)
    if signs.of_ancient:
        raise PushInvalid(f"this is OTLP of version 1.7 or before; {READ}")
    if signs.of_current and signs.of_before:
        raise PushInvalid(f"some samples are written as in OTLP 1.10, others as in 1.9; {READ}")
    if signs.of_current or signs.of_before:
        return signs.of_before
    # By how many numbers the samples have: since 1.10 these are attributes, and samples need timestamps.
    counted = [counted_as_values(message, *profile, attributes) for profile in profiles]
    if any(are_alone for are_alone, _, _ in counted):
        return True
    return all(are_as_many for _, are_as_many, _ in counted) and any(is_outside for *_, is_outside in counted)


def _signs(message: bytes, profiles: Sequence[tuple[int, int]]) -> _Signs:
    """Return what the fields of all samples are written as. Raises PushInvalid."""
    of_current = of_before = of_ancient = False
    for begin, end in profiles:
        has = tags_below(message, begin, end, _SAMPLES)
        of_current |= has[_tag(3, _VARINT)] or has[_tag(4, _LENGTH)]
        of_before |= has[_tag(3, _LENGTH)] or has[_tag(4, _VARINT)]
        of_ancient |= has[_tag(2, _VARINT)] or any(has[_tag(6, kind)] for kind in range(8))
    return _Signs(of_current, of_before, of_ancient)


def _tag(number: int, kind: int) -> int:
    return 8 * number + kind
