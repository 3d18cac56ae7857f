"""Compression of a push or its parts: zstd and LZ4 are inflated here, gzip where all profiles are read."""

from __future__ import annotations

import sys
from typing import Protocol

from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-untyped]  # it has no stubs
from pprof_merge import LimitExceeded, Limits, MalformedProfile

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# A frame says how much memory its reader needs. No tracer's best level needs more than 32 MiB.
_ZSTD_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 25}
_CHUNK_BYTES = 1 << 20


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes: ...


def unframed(content: bytes, limits: Limits) -> bytes:
    """Return the content of a zstd or LZ4 frame, and all else as it is; the magic bytes tell.

    Never holds more than `limits.inflated_bytes` and a chunk. Raises LimitExceeded and MalformedProfile.
    """
    if content.startswith(_ZSTD_MAGIC):
        return _inflated("zstd", zstd.ZstdDecompressor(options=_ZSTD_WINDOW), content, limits)
    if content.startswith(_LZ4_MAGIC):
        return _inflated("lz4", LZ4FrameDecompressor(), content, limits)
    return content


def _inflated(name: str, frame: _Decompressor, content: bytes, limits: Limits) -> bytes:
    limits.check("compressed_bytes", len(content))
    inflated = bytearray()
    while not frame.eof:
        try:
            chunk = frame.decompress(content, max_length=_CHUNK_BYTES)
        except (zstd.ZstdError, RuntimeError) as error:
            raise MalformedProfile(f"not valid {name} ({error})", name) from error
        content = b""
        if not chunk and not frame.eof:
            raise MalformedProfile("the stream is truncated", name)
        inflated += chunk
        if len(inflated) > limits.inflated_bytes:
            raise LimitExceeded("inflated_bytes", limits.inflated_bytes)
    if frame.unused_data:
        raise MalformedProfile("something follows the frame", name)
    return bytes(inflated)
