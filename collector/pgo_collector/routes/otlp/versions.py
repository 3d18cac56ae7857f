"""Tell which version of OTLP's wire a request is in: 1.10 changed the numbers of a sample's fields.

Both forms parse as the other one, with other values, so the wire types of the fields are what tells them
apart. Requests of 1.7 and before, which had no table of stacks, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pprof_merge import Limits

from pgo_collector.errors import PushInvalid
from pgo_collector.routes.otlp.export_pb2 import ExportRequest

READ = "versions 1.8 to 1.11 are read: update the sender"
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
# The numbers of the fields that lead to a sample: of a request, its resource, its scope and its profile.
_WAY_TO_SAMPLES = (1, 2, 2, 2)
_TABLE_OF_STACKS = 7


class _Signs(NamedTuple):
    """Whether any sample has a field as only 1.10, 1.8 or 1.7 write it."""

    of_current: bool
    of_before: bool
    of_ancient: bool


def is_before_1_10(message: bytes, request: ExportRequest, limits: Limits) -> bool:
    """Return whether a request is in the wire of 1.8 and 1.9; `request` is the `message`, parsed as 1.10.

    Raises PushInvalid for older versions, and for samples that contradict each other.
    """
    signs = _signs(message, limits)
    samples = [
        sample
        for resource in request.resource_profiles
        for scope in resource.scope_profiles
        for profile in scope.profiles
        for sample in profile.samples
    ]
    check_tables(request, has_samples=bool(samples))
    if signs.of_ancient:
        raise PushInvalid(f"this is OTLP of version 1.7 or before; {READ}")
    if signs.of_current and signs.of_before:
        raise PushInvalid(f"some samples are written as in OTLP 1.10, others as in 1.9; {READ}")
    if signs.of_current or signs.of_before:
        return signs.of_before
    counted = [sample for sample in samples if sample.attribute_indices]
    if not all(sample.timestamps_unix_nano for sample in counted):
        return True  # since 1.10, field 2 has attributes, and a sample without values needs timestamps
    attributes = len(request.dictionary.attribute_table)
    return (
        bool(counted)
        and all(len(sample.attribute_indices) == len(sample.timestamps_unix_nano) for sample in counted)
        and any(not 0 <= value < attributes for sample in counted for value in sample.attribute_indices)
    )


def check_tables(request: ExportRequest, *, has_samples: bool) -> None:
    """Raise PushInvalid for a request whose samples refer to tables that it doesn't have."""
    if not has_samples:
        return
    if not request.HasField("dictionary"):
        raise PushInvalid(f"there is no dictionary, as in OTLP of version 1.6 and before; {READ}")
    if not request.dictionary.stack_table:
        raise PushInvalid(f"the dictionary has no stack_table, as in OTLP of version 1.7; {READ}")


def _signs(message: bytes, limits: Limits) -> _Signs:
    of_current = of_before = of_ancient = False
    samples = _messages(message, 0, len(message), _WAY_TO_SAMPLES)
    for count, (begin, end) in enumerate(samples, 1):
        limits.check("samples", count)
        for number, kind, _, _ in _fields(message, begin, end):
            match number, kind:
                case (3, 0) | (4, 2):
                    of_current = True
                case (3, 2) | (4, 0):
                    of_before = True
                case (2, 0) | (6, _):
                    of_ancient = True
    return _Signs(of_current, of_before, of_ancient)


def _messages(data: bytes, begin: int, end: int, way: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield where each message begins and ends that these numbers of fields lead to."""
    for number, kind, start, stop in _fields(data, begin, end):
        if number != way[0] or kind != _LENGTH:
            continue
        if len(way) == 1:
            yield start, stop
        else:
            yield from _messages(data, start, stop, way[1:])


def _fields(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the number and wire type of each field of a message, and where its content begins and ends.

    Raises PushInvalid.
    """
    at = begin
    while at < end:
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == _VARINT:
            start, (_, at) = at, _varint(data, at, end)
        elif kind == _LENGTH:
            length, start = _varint(data, at, end)
            at = start + length
        elif kind in _WIDTHS:
            start, at = at, at + _WIDTHS[kind]
        else:
            raise PushInvalid(f"a field has the wire type {kind}, which OTLP doesn't use")
        if at > end:
            raise PushInvalid("a field ends after its message")
        yield tag >> 3, kind, start, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at `at`, and where it ends. Raises PushInvalid."""
    value = shift = 0
    while at < end and shift < 70:  # ten bytes of seven bits
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise PushInvalid("a number is cut off")
