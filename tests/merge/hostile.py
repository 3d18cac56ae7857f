"""Inputs made to cost much, each as large as the limits let in: 8 MiB, some 8 KiB of it gzipped."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from pprof_merge import Limits

from tests.merge.malformed import WHOLE
from tests.oracle.wire import BYTES, number, packed, record, tag, varint

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOM = Limits().inflated_bytes - len(WHOLE) - 64


def bomb() -> bytes:
    """512 MiB of zeros in some 530 KB of gzip."""
    chunk = bytes(1 << 20)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # A chunk that ends in a full flush hangs on nothing before it, so it can be repeated as it is.
    deflated = deflate.compress(chunk) + deflate.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(512):
        checksum = zlib.crc32(chunk, checksum)
    header = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    return header + deflated * 512 + deflate.flush() + struct.pack("<II", checksum, 512 << 20)


def _many(unit: bytes) -> Callable[[], bytes]:
    return lambda: WHOLE + unit * (_ROOM // len(unit))


def _one(field: int, unit: bytes, *rest: bytes) -> Callable[[], bytes]:
    """One record of as many `unit` as there is room for, between the other fields of a good one."""
    return lambda: WHOLE + record(field, *rest, unit * (_ROOM // len(unit) - 16))


def _distinct_stacks() -> bytes:
    locations = [record(4, number(1, id_), number(3, 16 * id_)) for id_ in range(2, 1000)]
    stacks = (
        record(2, packed(1, *(2 + (row * depth * 7919 + depth) % 997 for depth in range(30))), number(2, 5))
        for row in range(1, 60_000)
    )
    return WHOLE + b"".join(locations) + b"".join(stacks)


_IDS = b"\x01" * 9_999
_SAMPLE = number(1, 1) + number(2, 5)
_LABEL = record(3, number(1, 1), number(2, 2))

HOSTILE: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: bytes(_ROOM),
    "strings": _many(record(6, b"")),
    "samples": _many(record(2, b"")),
    "locations": _many(record(4, b"")),
    "mappings": _many(record(3, b"")),
    "sample types": _many(record(1, b"")),
    "period types": _many(record(11, b"")),
    "periods": _many(number(12, 1)),
    "comments": _many(number(13, 1)),
    "packed comments": _one(13, b"\x01"),
    "unknown numbers": _many(number(99, 1)),
    "unknown records": _many(record(99, b"")),
    "a deep stack": lambda: WHOLE + record(2, number(2, 5), record(1, b"\x01" * _ROOM)),
    "a deep stack, not packed": _one(2, number(1, 1), number(2, 5)),
    "many values": _one(2, number(2, 1)),
    "many labels": _one(2, _LABEL, number(2, 5)),
    "many empty labels": _one(2, record(3, b""), number(2, 5)),
    "many lines": _one(4, record(4, number(1, 1)), number(1, 2)),
    "deepest stacks": lambda: WHOLE + record(2, number(2, 5), record(1, _IDS)) * (_ROOM // 10_010),
    "samples with a field of another schema": lambda: WHOLE + record(2, _SAMPLE, number(9, 1)) * 490_000,
    "samples in an odd form": lambda: (
        WHOLE + record(2, number(2, 5), number(1, 1) * 12, number(9, 1)) * 490_000
    ),
    "distinct stacks": _distinct_stacks,
    "a length of 2^63": lambda: WHOLE + tag(6, BYTES) + varint(1 << 63),
}
