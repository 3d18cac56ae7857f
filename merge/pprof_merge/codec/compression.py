"""gzip: bounded when it is read, and the same bytes on every machine when it is written."""

from __future__ import annotations

import deflate
from isal import isal_zlib

from pprof_merge.errors import LimitExceeded, MalformedProfile
from pprof_merge.limits import Limits

GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WBITS = 31
_IsalError: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]  # its stub says instance
# The output is within 1 % of the size that zlib's default level gives, in a fifth of the time.
_LEVEL = 2


def inflate(data: bytes, limits: Limits = Limits()) -> bytes:
    """Return the bare protobuf of a pprof file: inflate gzip, and return all else as is.

    gzip is recognized by its magic bytes.

    Never holds more than `limits.inflated_bytes` and one block of output. Raises LimitExceeded, and
    MalformedProfile if the gzip is truncated, fails its checksum, or is followed by something else.
    """
    if not data.startswith(GZIP_MAGIC):
        limits.check("inflated_bytes", len(data))
        return data
    limits.check("compressed_bytes", len(data))
    members = []
    room = limits.inflated_bytes
    while data:  # a gzip file may have several members, one after another
        member = isal_zlib.decompressobj(_GZIP_WBITS)
        try:
            inflated = member.decompress(data, room + 1)
        except _IsalError as error:
            raise MalformedProfile(f"not valid gzip ({error})", "gzip") from error
        room -= len(inflated)
        if room < 0:
            raise LimitExceeded("inflated_bytes", limits.inflated_bytes)
        if not member.eof:
            raise MalformedProfile("the stream is truncated", "gzip")
        members.append(inflated)
        limits.check("gzip_members", len(members))
        data = member.unused_data
    return members[0] if len(members) == 1 else b"".join(members)


def compress(protobuf: bytes) -> bytes:
    """Return the protobuf as gzip without name or time.

    Build caches are keyed by these bytes, so they must not depend on a machine's zlib. libdeflate's output
    depends only on its version and the input.
    """
    return bytes(deflate.gzip_compress(protobuf, _LEVEL))
