"""Packing: objects as bytes with a checksum, whose arrays can be used in place, as in a mapped file.

    BLAKE2b of all that follows    64 bytes
    size of all that follows        8
    number of parts                 8
    size of each part               8 each
    parts                          each filled up to a multiple of 8

Numbers are unsigned and little-endian. The first part is a pickle (protocol 5), the others are its buffers:
the arrays. A pickle may hold only the merge engine's own classes and NumPy arrays; anything else is refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate
from struct import pack as numbers
from struct import unpack_from
from typing import Any, NamedTuple

from isal import isal_zlib

_UNIT = 8
_DIGEST_SIZE = blake2b().digest_size
_ARRAYS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}
_OURS = "pprof_merge."
# Most arrays have small numbers in wide columns: a fifth of the bytes is sent, and compressing them takes
# less time than sending the others.
_LEVEL = 0
_IsalError: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]  # its stub says instance


class Unpacked(NamedTuple):
    """An unpacked object, the size of its packed bytes, and the digest at their beginning."""

    content: object
    size: int
    digest: bytes


class _NotPacked(Exception):
    """These bytes aren't those of an object that was packed."""


def pack(content: object) -> list[bytes | memoryview]:
    """Return an object as bytes, in pieces to be written one after another; the first is the digest."""
    pieces = _pieces(content)
    size = numbers("<Q", sum(map(len, pieces)))
    return [_digest([size, *pieces]), size, *pieces]


def unpack(packed: memoryview) -> Unpacked | None:
    """Return the object that is packed at the beginning; its arrays use this memory.

    Returns None if it is incomplete or damaged, or has anything else in it than `pack` writes.
    """
    begin = _DIGEST_SIZE + _UNIT
    if len(packed) < begin:
        return None
    end = begin + unpack_from("<Q", packed, _DIGEST_SIZE)[0]
    digest = bytes(packed[:_DIGEST_SIZE])
    if end > len(packed) or _digest([packed[_DIGEST_SIZE:end]]) != digest:
        return None
    try:
        return Unpacked(_content(packed[begin:end]), end, digest)
    except _NotPacked:
        return None


def pack_to_send(content: object) -> bytes:
    """Return an object packed and compressed, in the format of zlib, whose checksum stands for the digest."""
    compressor = isal_zlib.compressobj(_LEVEL)
    pieces = [compressor.compress(piece) for piece in _pieces(content)]
    return b"".join((*pieces, compressor.flush()))


def unpack_sent(sent: bytes) -> object:
    """Return the object in what `pack_to_send` made; None if that is damaged, or anything else is in it."""
    try:
        return _content(memoryview(isal_zlib.decompress(sent)))
    except (_IsalError, _NotPacked):
        return None


def _pieces(content: object) -> list[bytes | memoryview]:
    """Return the parts of an object, in pieces, after their number and sizes."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(content, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(text), *(buffer.raw() for buffer in buffers)]
    sizes = [len(part) for part in parts]
    pieces: list[bytes | memoryview] = [numbers(f"<{1 + len(sizes)}Q", len(sizes), *sizes)]
    for part in parts:
        pieces += part, bytes(-len(part) % _UNIT)
    return pieces


def _content(packed: memoryview) -> object:
    """Return the object that has these `_pieces`. Raises _NotPacked if there can't be one."""
    try:
        (count,) = unpack_from("<Q", packed)
        sizes = unpack_from(f"<{count}Q", packed, _UNIT)
        starts = accumulate((size + -size % _UNIT for size in sizes), initial=_UNIT * (1 + count))
        text, *buffers = (packed[start : start + size] for start, size in zip(starts, sizes, strict=False))
        return _Unpickler(io.BytesIO(text), buffers=buffers).load()
    except MemoryError:
        raise  # the content may be sound
    except Exception as error:  # a pickle that isn't the collector's can raise anything
        raise _NotPacked from error


def _digest(parts: Sequence[bytes | memoryview]) -> bytes:
    digest = blake2b()
    for part in parts:
        digest.update(part)
    return digest.digest()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAYS:
            return super().find_class(module, name)
        if module.startswith(_OURS):
            found = super().find_class(module, name)
            # A name that an engine's module only imports is not the engine's.
            if isinstance(found, type) and found.__module__.startswith(_OURS):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} isn't a class of the engine or of NumPy's arrays")
