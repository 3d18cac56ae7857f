"""Seals: the list of the profiles inside a combined blob, at the end of the blob's own file, so that the two
can't be separated.

    gzip of the profile | empty gzip members with the packed inputs | one more, the footer, of a fixed size

Everything after the profile inflates to nothing. So every reader of gzip gets the profile alone, and the
SHA-256 in the blob's name stays that of the bare protobuf. The inputs are in the "extra" field of the
members' headers (RFC 1952, 2.3.1.1), up to 65,000 bytes in each, as the zlib of the text of the .inputs file.

Submitted bodies are stored as they come, but never with a seal: `validation` removes it. Otherwise a client
could pass a profile of its own off as the profiles of others.
"""

from __future__ import annotations

import hashlib
import struct
import zlib

# The beginning of a gzip header: deflate, with an "extra" field, without a time, from an unknown system.
_HEADER = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"
_SUBFIELD = b"PG"
# The header, with the sizes of the extra field and of the subfield in it.
_BEFORE = struct.Struct(f"<{len(_HEADER)}sH{len(_SUBFIELD)}sH")
# An empty deflate stream, the CRC-32 of nothing, and its size.
_NOTHING = b"\x03\x00" + bytes(8)
_MOST_PAYLOAD = 65_000
# The footer's payload: a magic word, the size of the members before it, and the SHA-256 of their payloads.
_MAGIC = b"pgoinput"
_FOOTER = struct.Struct(f"<{len(_MAGIC)}sQ32s")
FOOTER_BYTES = _BEFORE.size + _FOOTER.size + len(_NOTHING)


def seal(inputs: bytes) -> bytes:
    """Return the seal to append to the gzip of a combined profile; `inputs` is the text of its .inputs."""
    packed = zlib.compress(inputs)
    members = b"".join(
        _member(packed[start : start + _MOST_PAYLOAD]) for start in range(0, len(packed), _MOST_PAYLOAD)
    )
    return members + _member(_FOOTER.pack(_MAGIC, len(members), hashlib.sha256(packed).digest()))


def is_sealed(content: bytes) -> bool:
    """Return whether a file with this content ends as a sealed blob does."""
    return content.endswith(_NOTHING) and _footer(content[-FOOTER_BYTES:]) is not None


def seal_size(tail: bytes) -> int:
    """Return the size in bytes of the seal at the end of a blob, of which `tail` is the end; 0 without a
    seal.

    The last FOOTER_BYTES tell it. A damaged footer may tell more than the blob's size.
    """
    found = _footer(tail[-FOOTER_BYTES:])
    return 0 if found is None else found[0] + FOOTER_BYTES


def read_seal(tail: bytes) -> bytes | None:
    """Return the text of .inputs in a blob's seal, given the end of the blob with all of the seal in it.

    Returns None if there is no seal, or a damaged one.
    """
    size = seal_size(tail)
    footer = _footer(tail[-FOOTER_BYTES:])
    if footer is None or size > len(tail):
        return None
    packed = _payload(tail[-size:-FOOTER_BYTES])
    if hashlib.sha256(packed).digest() != footer[1]:
        return None
    return zlib.decompress(packed)


def _member(payload: bytes) -> bytes:
    """Return a gzip member that inflates to nothing, with the payload in its header."""
    extra = len(payload) + len(_SUBFIELD) + 2
    return _BEFORE.pack(_HEADER, extra, _SUBFIELD, len(payload)) + payload + _NOTHING


def _footer(tail: bytes) -> tuple[int, bytes] | None:
    """Return what a footer has: the size of the members before it, and the SHA-256 of their payloads.

    Returns None if this isn't a footer.
    """
    if len(tail) != FOOTER_BYTES:
        return None
    magic, length, digest = _FOOTER.unpack_from(tail, _BEFORE.size)
    if magic != _MAGIC or tail != _member(tail[_BEFORE.size : -len(_NOTHING)]):
        return None
    return length, digest


def _payload(members: bytes) -> bytes:
    """Return the joined payloads of members. It doesn't check them: those of damaged members are garbage."""
    parts, begin = [], 0
    while begin + _BEFORE.size <= len(members):
        *_, size = _BEFORE.unpack_from(members, begin)
        begin += _BEFORE.size
        parts.append(members[begin : begin + size])
        begin += size + len(_NOTHING)
    return b"".join(parts)
