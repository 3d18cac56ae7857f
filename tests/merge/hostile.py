"""Inputs that are constructed to be expensive, each with the limit that must refuse it.

An input fills the bytes that it is given: as many as `Limits.inflated_bytes` allows, so that another limit
must refuse it, or as many as 32 KB of gzip can inflate to.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, NamedTuple

from pprof_merge import Limits

from tests.merge.intake import MALFORMED, TAKEN
from tests.merge.malformed import FUNCTION, LOCATION, WHOLE
from tests.oracle.wire import BYTES, number, packed, record, tag, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMITS = Limits()
AS_LET_IN = LIMITS.inflated_bytes
IN_32_KB_OF_GZIP = 32 << 20  # deflate expands one byte to at most 1,032
_MIB = 1 << 20


class Hostile(NamedTuple):
    """An input. `refusal` is the name of a limit, MALFORMED or TAKEN; `fill(n)` returns at most n bytes."""

    refusal: str
    fill: Callable[[int], bytes]


def _flood(records: Iterator[bytes], size: int, before: bytes = WHOLE) -> bytes:
    """Return `before`, and then one record after another as long as they fit into `size` bytes."""
    taken, room = [before], size - len(before)
    for each in records:
        room -= len(each)
        if room < 0:
            break
        taken.append(each)
    return b"".join(taken)


def _again(unit: bytes, times: int = 1 << 62) -> Callable[[int], bytes]:
    """Return a maker of the same record again and again, at most `times`."""
    return lambda size: WHOLE + unit * min(times, (size - len(WHOLE)) // len(unit))


def _each(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return a maker of different records: `make` is called with 2, 3, and so on."""
    return lambda size: _flood(map(make, count(2)), size)


def _one(field: int, unit: bytes, *rest: bytes) -> Callable[[int], bytes]:
    """Return a maker of one record that holds `rest` and then the unit again and again."""
    room = len(WHOLE) + sum(map(len, rest)) + 16
    return lambda size: WHOLE + record(field, *rest, unit * ((size - room) // len(unit)))


def _packed(field: int, unit: bytes, *rest: bytes) -> Callable[[int], bytes]:
    """Return a maker of one sample with a packed field that holds the unit again and again."""
    room = len(WHOLE) + 32
    return lambda size: WHOLE + record(2, *rest, record(field, unit * ((size - room) // len(unit))))


def _locations(size: int) -> Iterator[bytes]:
    """Yield as many locations as the limit allows, besides the one that `WHOLE` has."""
    return (record(4, number(1, id_), number(3, 16 * id_), _LINE) for id_ in range(2, size + 1))


def _stack(row: int) -> bytes:
    """Return a sample with 30 of 997 locations, a different one for each row."""
    return record(2, packed(1, *(1 + (row * step * 7919 + step) % 997 for step in range(30))), number(2, 5))


_VALUE = number(2, 5)
_SAMPLE = number(1, 1) + _VALUE
_LABEL = record(3, number(1, 1), number(2, 2))
_LINE = record(4, number(1, 1), number(2, 7))
_NESTED = LIMITS.nested_messages

HOSTILE: dict[str, Hostile] = {
    "zeros": Hostile("irregular_fields", bytes),
    "empty strings": Hostile("strings", _again(record(6))),
    "strings of a byte": Hostile("strings", _again(record(6, b"a"))),
    "distinct strings": Hostile("strings", _each(lambda row: record(6, row.to_bytes(4)))),
    "as many strings as may be": Hostile(TAKEN, _again(record(6, b"a"), LIMITS.strings - 4)),
    "a string as long as may be": Hostile(TAKEN, lambda _: WHOLE + record(6, bytes(LIMITS.name_bytes))),
    "a long string": Hostile("name_bytes", lambda size: WHOLE + record(6, bytes(size - len(WHOLE) - 16))),
    "empty samples": Hostile("samples", _again(record(2))),
    "samples of one stack": Hostile("samples", _again(record(2, _SAMPLE))),
    "samples of a location that isn't there": Hostile("samples", _again(record(2, number(1, 9), _VALUE))),
    "as many samples as may be": Hostile(TAKEN, _again(record(2, _SAMPLE), LIMITS.samples - 1)),
    "samples with a field of another schema": Hostile("samples", _again(record(2, _SAMPLE, number(9, 1)))),
    "samples in an odd form": Hostile(
        "irregular_fields", _again(record(2, _VALUE, number(1, 1) * 12, number(9, 1)))
    ),
    "samples in ever another form": Hostile(
        "frames", _each(lambda row: record(2, number(1, 1) * (row % 90), _VALUE))
    ),
    "distinct stacks": Hostile(
        "frames", lambda size: _flood(chain(_locations(997), map(_stack, count(2))), size)
    ),
    "stacks as deep as may be": Hostile(
        "frames", _again(record(2, _VALUE, record(1, b"\x01" * LIMITS.stack_depth)))
    ),
    "a deep stack": Hostile("stack_depth", _packed(1, b"\x01", _VALUE)),
    "a deep stack, not packed": Hostile("stack_depth", _one(2, number(1, 1), _VALUE)),
    "a deep stack of ids of two bytes": Hostile("stack_depth", _packed(1, varint(300), _VALUE)),
    "many values": Hostile("sample_types", _packed(2, b"\x01")),
    "many values, not packed": Hostile("sample_types", _one(2, number(2, 1))),
    "labels of one sample": Hostile("nested_messages", _one(2, _LABEL, _VALUE)),
    "empty labels of one sample": Hostile("nested_messages", _one(2, record(3), _VALUE)),
    "labels of many samples": Hostile("labels", _again(record(2, _SAMPLE, _LABEL * (_NESTED - 1)))),
    "as many labels as may be": Hostile(
        TAKEN, _again(record(2, _SAMPLE, _LABEL * (_NESTED - 1)), LIMITS.labels // _NESTED)
    ),
    "empty locations": Hostile("locations", _again(record(4))),
    "locations of one id": Hostile("locations", _again(LOCATION)),
    "distinct locations": Hostile(
        "locations", _each(lambda row: record(4, number(1, row), number(3, 7 * row)))
    ),
    "locations with far ids": Hostile(
        "locations", _each(lambda row: record(4, number(1, row << 40), number(3, 7 * row)))
    ),
    "as many locations as may be": Hostile(TAKEN, lambda size: _flood(_locations(LIMITS.locations), size)),
    "lines of one location": Hostile("nested_messages", _one(4, _LINE, number(1, 2))),
    "lines of many locations": Hostile(
        "lines", _each(lambda row: record(4, number(1, row), number(3, 16 * row), _LINE * (_NESTED - 1)))
    ),
    "empty functions": Hostile("functions", _again(record(5))),
    "functions of one id": Hostile("functions", _again(FUNCTION)),
    "distinct functions": Hostile(
        "functions", _each(lambda row: record(5, number(1, row), number(4, 2), number(5, row)))
    ),
    "empty mappings": Hostile("mappings", _again(record(3))),
    "distinct mappings": Hostile(
        "mappings", _each(lambda row: record(3, number(1, row), number(2, row << 12)))
    ),
    "sample types": Hostile("sample_types", _again(record(1))),
    "period types": Hostile("irregular_fields", _again(record(11))),
    "periods": Hostile("irregular_fields", _again(number(12, 1))),
    "comments": Hostile("irregular_fields", _again(number(13, 1))),
    "packed comments": Hostile("irregular_fields", _one(13, b"\x01")),
    "unknown numbers": Hostile("irregular_fields", _again(number(99, 1))),
    "unknown records": Hostile("irregular_fields", _again(record(99))),
    "a length of 2^63": Hostile(
        "samples", lambda size: _again(record(2))(size - 16) + tag(6, BYTES) + varint(1 << 63)
    ),
}


def bomb(mebibytes: int) -> bytes:
    """Return gzip that inflates to this many MiB of zeros, a thousand times its size."""
    chunk = bytes(_MIB)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # A chunk that ends in a full flush does not depend on anything before it, so it can be repeated.
    deflated = deflate.compress(chunk) + deflate.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for each in repeat(chunk, mebibytes):
        checksum = zlib.crc32(each, checksum)
    length = (mebibytes << 20) & 0xFFFFFFFF
    return _GZIP_HEADER + deflated * mebibytes + deflate.flush() + struct.pack("<II", checksum, length)


def _members(*parts: bytes) -> bytes:
    return b"".join(gzip.compress(part, mtime=0) for part in parts)


_GZIP_HEADER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
_NAMED = b"\x1f\x8b\x08\x08" + bytes(5) + b"\xff"
_EMPTY_BLOCK = b"\x00\x00\x00\xff\xff"

# Attacks by gzip itself. Their sizes are of the gzip, not of what it inflates to.
GZIPPED: dict[str, Hostile] = {
    "a bomb": Hostile("inflated_bytes", lambda size: bomb(size // 1040)),
    "a bomb after a profile": Hostile("inflated_bytes", lambda size: _members(WHOLE) + bomb(size // 1040)),
    "members of a MiB": Hostile("inflated_bytes", lambda size: _members(bytes(_MIB)) * (size // 1060)),
    "empty members": Hostile("gzip_members", lambda size: _members(b"") * (size // 20)),
    "a profile in members of a byte": Hostile(
        "gzip_members", lambda _: _members(*(WHOLE[at : at + 1] for at in range(len(WHOLE))))
    ),
    "empty blocks": Hostile(MALFORMED, lambda size: _GZIP_HEADER + _EMPTY_BLOCK * (size // 5)),
    "a file name without end": Hostile(MALFORMED, lambda size: _NAMED + b"a" * size),
}
