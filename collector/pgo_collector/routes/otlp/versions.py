"""Tell which version of OTLP's wire a request is in: 1.10 changed the numbers of a sample's fields.

Both forms parse as the other one, with other values, so the wire types of the fields are what tells them
apart. Requests of 1.7 and before, which had no table of stacks, are refused.
"""

from __future__ import annotations

from typing import NamedTuple

from pprof_merge.codec import messages_in, tags_below

from pgo_collector.errors import PushInvalid
from pgo_collector.routes.otlp.export_pb2 import ExportRequest, ResourceProfiles

READ = "versions 1.8 to 1.11 are read: update the sender"
_VARINT, _LENGTH = 0, 2
# The numbers of the fields that lead to a profile, of a request, its resource and its scope, and to a sample.
_WAY_TO_PROFILES = (1, 2, 2)
_SAMPLES = 2


class _Signs(NamedTuple):
    """Whether any sample has a field as only 1.10, 1.8 or 1.7 write it."""

    of_current: bool
    of_before: bool
    of_ancient: bool


def is_before_1_10(message: bytes, request: ExportRequest) -> bool:
    """Return whether a request is in the wire of 1.8 and 1.9; `request` is the `message`, parsed as 1.10.

    Raises PushInvalid for older versions, and for samples that contradict each other.
    """
    signs = _signs(message)
    check_tables(request, has_samples=any(map(has_samples, request.resource_profiles)))
    if signs.of_ancient:
        raise PushInvalid(f"this is OTLP of version 1.7 or before; {READ}")
    if signs.of_current and signs.of_before:
        raise PushInvalid(f"some samples are written as in OTLP 1.10, others as in 1.9; {READ}")
    if signs.of_current or signs.of_before:
        return signs.of_before
    return _counts_tell(request)


def has_samples(resource: ResourceProfiles) -> bool:
    """Return whether any profile of a resource has a sample."""
    return any(profile.samples for scope in resource.scope_profiles for profile in scope.profiles)


def _counts_tell(request: ExportRequest) -> bool:
    """Return whether a request is in the wire of 1.8 and 1.9 by how many numbers its samples have.

    The samples are looked at one by one: all of them at once take much memory.
    """
    attributes = len(request.dictionary.attribute_table)
    may_be_values, is_outside = True, False
    for resource in request.resource_profiles:
        for scope in resource.scope_profiles:
            for profile in scope.profiles:
                for sample in profile.samples:
                    numbers, timestamps = sample.attribute_indices, len(sample.timestamps_unix_nano)
                    if not numbers:
                        continue
                    if not timestamps:
                        return True  # since 1.10, these are attributes, and such a sample needs timestamps
                    may_be_values = may_be_values and len(numbers) == timestamps
                    is_outside = is_outside or any(not 0 <= value < attributes for value in numbers)
    return may_be_values and is_outside


def check_tables(request: ExportRequest, *, has_samples: bool) -> None:
    """Raise PushInvalid for a request whose samples refer to tables that it doesn't have."""
    if not has_samples:
        return
    if not request.HasField("dictionary"):
        raise PushInvalid(f"there is no dictionary, as in OTLP of version 1.6 and before; {READ}")
    if not request.dictionary.stack_table:
        raise PushInvalid(f"the dictionary has no stack_table, as in OTLP of version 1.7; {READ}")


def _signs(message: bytes) -> _Signs:
    """Return what the fields of all samples are written as. Raises PushInvalid."""
    of_current = of_before = of_ancient = False
    for begin, end in _profiles(message):
        has = tags_below(message, begin, end, _SAMPLES)
        of_current |= has[_tag(3, _VARINT)] or has[_tag(4, _LENGTH)]
        of_before |= has[_tag(3, _LENGTH)] or has[_tag(4, _VARINT)]
        of_ancient |= has[_tag(2, _VARINT)] or any(has[_tag(6, kind)] for kind in range(8))
    return _Signs(of_current, of_before, of_ancient)


def _profiles(message: bytes) -> list[tuple[int, int]]:
    """Return where the profiles of a request are."""
    spans = [(0, len(message))]
    for number in _WAY_TO_PROFILES:
        spans = [
            found for begin, end in spans for found in messages_in(message, begin, end, number, len(message))
        ]
    return spans


def _tag(number: int, kind: int) -> int:
    return 8 * number + kind
