"""The profiles that the benchmarks merge: copies of real ones with later times.

A copy differs from its source in its time only, and has the same layout, since the layout decides how fast a
profile is read. `corpus.py FOLDER COUNT SOURCE ...` makes a folder of them in a process of its own, since the
measuring process must stay small.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
import zlib
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.oracle import wire

DEFAULT = Path(__file__).parents[1] / "testdata" / "profiles"
_MINUTE = 60 * 10**9
_TIME_NANOS = wire.tag(9, wire.VARINT)


class Source(NamedTuple):
    """A bare protobuf, as the two parts before and after its time in ns."""

    before: bytes
    time: int
    after: bytes

    def later(self, nanoseconds: int) -> bytes:
        """Return the profile with a later time, gzipped as Go's runtime does it: at the fastest level."""
        time = wire.number(9, self.time + nanoseconds)
        return zlib.compress(self.before + time + self.after, 1, zlib.MAX_WBITS | 16)


def find(folder: Path) -> list[Path]:
    """Return all profiles of a folder, in a fixed order that mixes the programs."""
    files = [file for file in folder.resolve().rglob("*.gz") if file.is_file()]
    if not files:
        raise SystemExit(f"{folder}: no *.gz in there")
    return sorted(files, key=lambda file: hashlib.sha256(file.read_bytes()).digest())


def copies(files: list[Path]) -> Iterator[bytes]:
    """Yield copies of profiles in turn, one minute apart, without end."""
    sources = [_source(gzip.decompress(file.read_bytes())) for file in files]
    for number, source in enumerate(cycle(sources)):
        yield source.later(number * _MINUTE)


def make(files: list[Path], count: int, folder: Path) -> None:
    """Write `count` copies to a new folder, named in order."""
    folder.mkdir()
    for number, profile in enumerate(islice(copies(files), count)):
        (folder / f"{number:05}.pb.gz").write_bytes(profile)


def describe(files: list[Path]) -> str:
    """Return the number and the size of the files, as text."""
    inflated = [len(gzip.decompress(file.read_bytes())) for file in files]
    gzipped = [file.stat().st_size for file in files]
    return (
        f"{len(files)} real profiles (median {median(gzipped) / 1000:.0f} KB, "
        f"{median(inflated) / 1000:.0f} KB inflated)"
    )


def _source(protobuf: bytes) -> Source:
    position = 0
    while position < len(protobuf):
        tag, value = _varint(protobuf, position)
        if tag & 7 not in {wire.VARINT, wire.BYTES}:
            raise ValueError(f"a field at byte {position} that no profiler writes")
        number, end = _varint(protobuf, value)
        if tag == _TIME_NANOS[0]:
            return Source(protobuf[:position], number, protobuf[end:])
        position = end + (number if tag & 7 == wire.BYTES else 0)
    raise ValueError("a profile without its time")


def _varint(protobuf: bytes, position: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = protobuf[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


if __name__ == "__main__":
    make([Path(name) for name in sys.argv[3:]], int(sys.argv[2]), Path(sys.argv[1]))
