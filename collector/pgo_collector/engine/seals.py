"""Seals: what a combined blob is made of, at the end of its own file, so that the two can't be parted.

    gzip of the profile | empty gzip members with the packed inputs | one more, the footer, of a fixed size

What follows the profile inflates to nothing. So every reader of gzip reads the profile alone, and the
SHA-256 in the blob's name stays that of the bare protobuf. The inputs are in the "extra" field of the
members' headers (RFC 1952, 2.3.1.1), up to 64 KiB in each, as the zlib of what the file .inputs says.

Clients' bodies are stored as they come, but never with a seal: see `received`. Otherwise a client could have
a profile of its own pass for what others sent.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from pathlib import Path

# The begin of a gzip header: deflate, with an "extra" field, no time, of an unknown system.
_HEADER = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"
_SUBFIELD = b"PG"
# The sizes of the extra field and of the subfield in it.
_BEFORE = struct.Struct(f"<{len(_HEADER)}sH{len(_SUBFIELD)}sH")
# An empty deflate stream, the CRC-32 of nothing, and its size.
_NOTHING = b"\x03\x00" + bytes(8)
_MOST_PAYLOAD = 65_000
# A word to know it by, how many bytes the members before it have, and the SHA-256 of what these hold.
_MAGIC = b"pgoinput"
_FOOTER = struct.Struct(f"<{len(_MAGIC)}sQ32s")
_FOOTER_BYTES = _BEFORE.size + _FOOTER.size + len(_NOTHING)


def seal(inputs: bytes) -> bytes:
    """Return what is to follow the gzip of a combined profile; `inputs` is the text of its .inputs."""
    packed = zlib.compress(inputs)
    members = b"".join(
        _member(packed[start : start + _MOST_PAYLOAD]) for start in range(0, len(packed), _MOST_PAYLOAD)
    )
    return members + _member(_FOOTER.pack(_MAGIC, len(members), hashlib.sha256(packed).digest()))


def is_sealed(content: bytes) -> bool:
    """Return whether a file with that content ends as a sealed blob does."""
    return _footer(content[-_FOOTER_BYTES:]) is not None


def seal_size(path: Path) -> int:
    """Return how many bytes of a file are its seal, 0 if it has none. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        found = _footer(os.pread(descriptor, _FOOTER_BYTES, max(size - _FOOTER_BYTES, 0)))
    finally:
        os.close(descriptor)
    if found is None or found[0] > size - _FOOTER_BYTES:
        return 0
    return found[0] + _FOOTER_BYTES


def read_seal(path: Path) -> bytes | None:
    """Return the text of .inputs that a blob is sealed with; None if it has no seal, or a damaged one.

    Raises OSError.
    """
    size = seal_size(path)
    if not size:
        return None
    with path.open("rb") as file:
        file.seek(-size, os.SEEK_END)
        content = file.read()
    footer = _footer(content[-_FOOTER_BYTES:])
    packed = _payload(content[:-_FOOTER_BYTES])
    if footer is None or hashlib.sha256(packed).digest() != footer[1]:
        return None
    return zlib.decompress(packed)


def _member(payload: bytes) -> bytes:
    """Return a gzip member that inflates to nothing, with the payload in its header."""
    extra = len(payload) + len(_SUBFIELD) + 2
    return _BEFORE.pack(_HEADER, extra, _SUBFIELD, len(payload)) + payload + _NOTHING


def _footer(tail: bytes) -> tuple[int, bytes] | None:
    """Return what a footer says: the length of the members before it, and the digest of what they hold."""
    if len(tail) != _FOOTER_BYTES:
        return None
    magic, length, digest = _FOOTER.unpack_from(tail, _BEFORE.size)
    if magic != _MAGIC or tail != _member(tail[_BEFORE.size : -len(_NOTHING)]):
        return None
    return length, digest


def _payload(members: bytes) -> bytes:
    """Return what is in the headers of some members; damaged ones give something else."""
    parts, begin = [], 0
    while begin + _BEFORE.size <= len(members):
        *_, size = _BEFORE.unpack_from(members, begin)
        begin += _BEFORE.size
        parts.append(members[begin : begin + size])
        begin += size + len(_NOTHING)
    return b"".join(parts)
