"""Malformed inputs, each with words that the error message must contain.

Most are one small valid profile with one flaw.
"""

from __future__ import annotations

import gzip
from typing import NamedTuple

from tests.oracle.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    GROUP_END,
    GROUP_START,
    number,
    packed,
    record,
    tag,
    varint,
)


class Malformed(NamedTuple):
    """An input with a flaw; `words` are parts of the error message, in lower case."""

    name: str
    profile: bytes
    words: tuple[str, ...]


SAMPLE_TYPE = record(1, number(1, 1), number(2, 2))
SAMPLE = record(2, number(1, 1), number(2, 5), record(3, number(1, 1), number(2, 2)))
MAPPING = record(3, number(1, 1), number(2, 0x1000), number(3, 0x2000), number(5, 3))
LOCATION = record(4, number(1, 1), number(2, 1), number(3, 0x1234), record(4, number(1, 1), number(2, 7)))
FUNCTION = record(5, number(1, 1), number(2, 1), number(3, 1), number(4, 2), number(5, 3))
STRINGS = b"".join(record(6, string) for string in (b"", b"samples", b"count", b"/bin/service"))
TIME = number(9, 17)
PERIOD_TYPE = record(11, number(1, 1), number(2, 2))
WHOLE = SAMPLE_TYPE + SAMPLE + MAPPING + LOCATION + FUNCTION + STRINGS + TIME + PERIOD_TYPE
GZIPPED = gzip.compress(WHOLE, mtime=0)


def _instead(part: bytes, flawed: bytes) -> bytes:
    assert WHOLE.count(part) == 1
    return WHOLE.replace(part, flawed)


def _wrong_types() -> list[Malformed]:
    """Return a case for each field of the schema: a number instead of bytes, 8 bytes instead of a number."""
    whole = [
        ("sample 0", SAMPLE, (1, 2), (3,)),
        ("mapping 0", MAPPING, range(1, 11), ()),
        ("location 0", LOCATION, (1, 2, 3, 5), (4,)),
        ("function 0", FUNCTION, range(1, 6), ()),
        ("value type 0", SAMPLE_TYPE, (1, 2), ()),
        ("period type", PERIOD_TYPE, (1, 2), ()),
    ]
    cases = []
    for name, message, numbers, records in whole:
        outer, body = message[:1], message[2:]  # these messages are shorter than 128 bytes
        flaws = [(field, tag(field, FIXED64) + bytes(8)) for field in numbers]
        flaws += [(field, number(field, 0)) for field in records]
        for field, flaw in flaws:
            flawed = outer + varint(len(body + flaw)) + body + flaw
            cases.append(_wrong_type(name, field, _instead(message, flawed), name))
    label = record(2, number(1, 1), number(2, 5), record(3, tag(1, FIXED32) + bytes(4)))
    cases.append(_wrong_type("label", 1, _instead(SAMPLE, label), "sample 0"))
    line = record(4, number(1, 1), record(4, number(1, 1), tag(2, FIXED64) + bytes(8)))
    cases.append(_wrong_type("line", 2, _instead(LOCATION, line), "location 0"))
    for field in (7, 8, 9, 10, 12, 13, 14, 15):
        flaw = tag(field, FIXED64) + bytes(8)
        # A second time_nanos is refused for being the second, so the flawed one must be the only one.
        rest = WHOLE.replace(TIME, b"") if field == 9 else WHOLE
        cases.append(_wrong_type("profile", field, rest + flaw, f"field {field}"))
    cases += [
        _wrong_type("profile", field, WHOLE + number(field, 0), f"field {field}")
        for field in (1, 2, 3, 4, 5, 6, 11)
    ]
    return cases


def _wrong_type(message: str, field: int, profile: bytes, where: str) -> Malformed:
    return Malformed(f"{message}: field {field} of another wire type", profile, (where, "wire type"))


def _out_of_range() -> list[Malformed]:
    """Return cases for every reference to the string table: one past its end, and -1."""
    cases = []
    for index in (4, -1):
        string = {
            "sample type": _instead(SAMPLE_TYPE, record(1, number(1, index), number(2, 2))),
            "sample type unit": _instead(SAMPLE_TYPE, record(1, number(1, 1), number(2, index))),
            "period type": _instead(PERIOD_TYPE, record(11, number(1, index), number(2, 2))),
            "label key": _instead(SAMPLE, record(2, number(2, 5), record(3, number(1, index), number(2, 2)))),
            "label text": _instead(
                SAMPLE, record(2, number(2, 5), record(3, number(1, 1), number(2, index)))
            ),
            "label unit": _instead(
                SAMPLE, record(2, number(2, 5), record(3, number(1, 1), number(3, 2), number(4, index)))
            ),
            "key of a label without a value": _instead(
                SAMPLE, record(2, number(2, 5), record(3, number(1, index)))
            ),
            "mapping filename": _instead(MAPPING, record(3, number(1, 1), number(5, index))),
            "mapping build id": _instead(MAPPING, record(3, number(1, 1), number(6, index))),
            "function name": _instead(FUNCTION, record(5, number(1, 1), number(2, index))),
            "function system name": _instead(FUNCTION, record(5, number(1, 1), number(3, index))),
            "function filename": _instead(FUNCTION, record(5, number(1, 1), number(4, index))),
            "drop frames": WHOLE + number(7, index),
            "keep frames": WHOLE + number(8, index),
            "comment": WHOLE + number(13, index),
            "second of packed comments": WHOLE + packed(13, 1, index),
            "default sample type": WHOLE + number(14, index),
            "doc url": WHOLE + number(15, index),
        }
        cases += [
            Malformed(f"{name} is string {index}", profile, ("string", str(index)))
            for name, profile in string.items()
        ]
    return cases


MALFORMED = [
    Malformed("nothing", b"", ("empty",)),
    Malformed("text", b"--- contention:\ncycles/second=1\n", ()),
    Malformed("a web page", b"<!doctype html><title>502</title>", ()),
    Malformed("gzip cut", GZIPPED[:-12], ("gzip", "truncated")),
    Malformed("gzip without its checksum", GZIPPED[:-8], ("gzip", "truncated")),
    Malformed("gzip cut in its header", GZIPPED[:7], ("gzip",)),
    Malformed("gzip's first two bytes", GZIPPED[:2], ("gzip",)),
    Malformed("gzip with a bad checksum", GZIPPED[:-8] + b"\0\0\0\0" + GZIPPED[-4:], ("gzip",)),
    Malformed("gzip with a bad length", GZIPPED[:-4] + b"\0\0\0\0", ("gzip",)),
    Malformed("gzip and something else", GZIPPED + b"garbage", ("gzip",)),
    Malformed("gzip and zeros", GZIPPED + bytes(8), ("gzip",)),
    Malformed("gzip of nothing", gzip.compress(b"", mtime=0), ("empty",)),
    Malformed(
        "gzip of gzip of gzip", gzip.compress(gzip.compress(GZIPPED, mtime=0), mtime=0), ("gzip inside gzip",)
    ),
    Malformed("cut in a tag", WHOLE + b"\x80", ("truncated",)),
    Malformed("cut in a number", WHOLE + tag(12, 0) + b"\x80\x80", ("truncated",)),
    Malformed("cut in a length", WHOLE + tag(6, BYTES) + b"\x80", ("truncated",)),
    Malformed(
        "cut in 8 bytes", WHOLE + tag(99, FIXED64) + bytes(7), ("longer than the bytes that are left",)
    ),
    Malformed(
        "cut in 4 bytes", WHOLE + tag(99, FIXED32) + bytes(3), ("longer than the bytes that are left",)
    ),
    Malformed(
        "cut in a string", WHOLE + tag(6, BYTES) + b"\x05abcd", ("longer than the bytes that are left",)
    ),
    Malformed(
        "a length past the end of a sample", WHOLE + record(2, tag(1, BYTES) + b"\x09\x01"), ("sample 1",)
    ),
    Malformed(
        "a length past the end of a label",
        WHOLE + record(2, record(3, tag(1, BYTES) + b"\x09")),
        ("sample 1",),
    ),
    Malformed(
        "a length of 2^63", WHOLE + tag(6, BYTES) + varint(1 << 63), ("longer than the bytes that are left",)
    ),
    Malformed("a number of 11 bytes", WHOLE + tag(12, 0) + b"\xff" * 10 + b"\x01", ("varint",)),
    Malformed("a tag of 11 bytes", WHOLE + b"\xff" * 10 + b"\x01", ("varint",)),
    Malformed(
        "a number of 11 bytes in a sample",
        _instead(SAMPLE, record(2, tag(2, 0) + b"\xff" * 10 + b"\x01")),
        ("sample 0",),
    ),
    Malformed(
        "packed numbers that end in one cut",
        _instead(SAMPLE, record(2, record(1, b"\x01\x81"), number(2, 5))),
        ("sample 0",),
    ),
    Malformed("packed comments that end in one cut", WHOLE + record(13, b"\x01\x81"), ("truncated",)),
    Malformed("a group", WHOLE + tag(99, GROUP_START) + tag(99, GROUP_END), ("wire type",)),
    Malformed("the end of a group", WHOLE + tag(99, GROUP_END), ("wire type",)),
    Malformed(
        "a group in a sample",
        WHOLE + record(2, number(2, 5), tag(99, GROUP_START), tag(99, GROUP_END)),
        ("sample 1",),
    ),
    Malformed(
        "a group in a location",
        WHOLE + record(4, number(1, 2), tag(9, GROUP_START), tag(9, GROUP_END)),
        ("location 1",),
    ),
    Malformed("wire type 6", WHOLE + tag(99, 6), ("wire type",)),
    Malformed("wire type 7 in a function", WHOLE + record(5, number(1, 2), tag(99, 7)), ("function 1",)),
    Malformed("no string table", WHOLE.replace(STRINGS, b""), ("string",)),
    Malformed("a string table without the empty string", _instead(STRINGS, STRINGS[2:]), ("string", "empty")),
    Malformed(
        "a location that isn't there",
        _instead(SAMPLE, record(2, number(1, 9), number(2, 5))),
        ("sample 0", "location 9"),
    ),
    Malformed(
        "location 0", _instead(SAMPLE, record(2, number(1, 0), number(2, 5))), ("sample 0", "location 0")
    ),
    Malformed(
        "a function that isn't there",
        _instead(LOCATION, record(4, number(1, 1), record(4, number(1, 9)))),
        ("location", "function 9"),
    ),
    Malformed(
        "a line without a function",
        _instead(LOCATION, record(4, number(1, 1), record(4, number(2, 7)))),
        ("location", "function 0"),
    ),
    Malformed("two locations of one id", WHOLE + LOCATION, ("location", "1")),
    Malformed("two functions of one id", WHOLE + FUNCTION, ("function", "1")),
    Malformed("two mappings of one id", WHOLE + MAPPING, ("mapping", "1")),
    Malformed("a location with id 0", WHOLE + record(4, number(3, 5)), ("location", "0")),
    Malformed("a function with id 0", WHOLE + record(5, number(2, 1)), ("function", "0")),
    Malformed("a mapping with id 0", WHOLE + record(3, number(2, 1)), ("mapping", "0")),
    Malformed("a sample without values", _instead(SAMPLE, record(2, number(1, 1))), ("sample 0", "value")),
    Malformed("a value too many", _instead(SAMPLE, record(2, packed(2, 5, 6))), ("sample 0", "value")),
    Malformed("no sample types", _instead(SAMPLE_TYPE, b""), ("sample type",)),
    Malformed(
        "no sample types, no values",
        WHOLE.replace(SAMPLE_TYPE, b"").replace(SAMPLE, record(2, number(1, 1))),
        ("sample type",),
    ),
    Malformed("two profiles in one", WHOLE + WHOLE.replace(STRINGS, b""), ("one after the other",)),
    Malformed("two times", WHOLE + number(9, 18), ("one after the other",)),
    *_wrong_types(),
    *_out_of_range(),
]
