"""Packing: objects as bytes with a checksum, whose arrays can be used in place, as in a mapped file.

    BLAKE2b of all that follows    64 bytes
    size of all that follows        8
    number of parts                 8
    size of each part               8 each
    parts                          each filled up to a multiple of 8

Numbers are unsigned and little-endian. The first part is JSON, the others are its bytes and arrays, in order.
Besides texts and numbers, there may be only segments, what they are made of, and weighed stacks; all else is
refused. No part is a pickle, which could run code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from hashlib import blake2b
from inspect import signature
from itertools import accumulate
from struct import pack as numbers
from struct import unpack_from
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
from pprof_merge.analysis import WeighedStacks
from pprof_merge.merging import SEGMENT_PARTS

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_UNIT = 8
_DIGEST_SIZE = blake2b().digest_size
# What may be packed, by number.
_STRUCTS: Final[tuple[type[Any], ...]] = (*SEGMENT_PARTS, WeighedStacks)
_ARRAY, _BYTES, _TEXTS, _LIST, _TUPLE = "array", "bytes", "texts", "list", "tuple"
_DTYPES = {"|u1", "<u2", "<i4", "<u4", "<i8", "<u8"}
# Most arrays have small numbers in wide columns: an eighth of the bytes is left, and compressing them takes
# less time than sending the others.
_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}


def layout_of(structs: Sequence[type[Any]]) -> str:
    """Return a text that differs if these classes have other fields, or have them in another order."""
    names = [[*signature(each).parameters] for each in structs]
    return f"{crc32(repr(names).encode()):08x}"


# Files of another layout can't be read, even if they are of the same version.
LAYOUT = layout_of(_STRUCTS)


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


def pack_tightly(content: object) -> bytes:
    """Return an object packed and compressed as a frame of zstd, whose checksum stands for the digest."""
    compressor = zstd.ZstdCompressor(options=_OPTIONS)
    pieces = [compressor.compress(piece) for piece in _pieces(content)]
    return b"".join((*pieces, compressor.flush()))


def unpack_tight(packed: bytes) -> object:
    """Return the object in what `pack_tightly` made; None if that is damaged, or anything else is in it."""
    try:
        return _content(memoryview(zstd.decompress(packed)))
    except (zstd.ZstdError, _NotPacked):
        return None


def _pieces(content: object) -> list[bytes | memoryview]:
    """Return the parts of an object, in pieces, after their number and sizes."""
    buffers: list[bytes | memoryview] = []
    text = json.dumps(_plain(content, buffers)).encode()
    parts = [memoryview(part) for part in (text, *buffers)]
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
        return _object(json.loads(bytes(text)), iter(buffers))
    except MemoryError:
        raise  # the content may be sound
    except Exception as error:  # what isn't the collector's can raise anything
        raise _NotPacked from error


def _plain(value: Any, buffers: list[bytes | memoryview]) -> object:
    """Return an object as JSON has it; its bytes are added to the buffers, in order."""
    if value is None or isinstance(value, int | str):
        return value
    kind: tuple[object, ...]
    inside: Iterable[object] = ()
    if isinstance(value, np.ndarray):
        buffers.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        kind = _ARRAY, value.dtype.str, *value.shape
    elif isinstance(value, bytes):
        buffers.append(value)
        kind = (_BYTES,)
    elif isinstance(value, list) and all(isinstance(each, bytes) for each in value):
        buffers += b"".join(value), np.array([*map(len, value)], np.int64).view(np.uint8).data
        kind = (_TEXTS,)
    elif type(value) in {list, tuple}:
        kind, inside = (_LIST if isinstance(value, list) else _TUPLE,), value
    else:
        kind = (_STRUCTS.index(type(value)),)
        inside = value if isinstance(value, tuple) else (getattr(value, of.name) for of in fields(value))
    return [*kind, *(_plain(each, buffers) for each in inside)]


def _object(plain: Any, buffers: Iterator[memoryview]) -> Any:
    """Return the object that `_plain` made this of. Raises any exception if there can't be one."""
    if plain is None or isinstance(plain, int | str):
        return plain
    match plain:
        case [str(kind), str(dtype), *shape] if kind == _ARRAY and dtype in _DTYPES:
            return np.frombuffer(next(buffers), dtype).reshape(shape)
        case [str(kind)] if kind == _BYTES:
            return bytes(next(buffers))
        case [str(kind)] if kind == _TEXTS:
            return _texts(bytes(next(buffers)), np.frombuffer(next(buffers), np.int64).tolist())
        case [str(kind), *rest] if kind in {_LIST, _TUPLE}:
            objects = [_object(each, buffers) for each in rest]
            return objects if kind == _LIST else tuple(objects)
        case [int(number), *rest] if 0 <= number < len(_STRUCTS):
            return _STRUCTS[number](*(_object(each, buffers) for each in rest))
    raise _NotPacked


def _texts(joined: bytes, sizes: Sequence[int]) -> list[bytes]:
    ends = [*accumulate(sizes)]
    if min(sizes, default=0) < 0 or (ends[-1] if ends else 0) != len(joined):
        raise _NotPacked
    return [joined[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _digest(parts: Sequence[bytes | memoryview]) -> bytes:
    digest = blake2b()
    for part in parts:
        digest.update(part)
    return digest.digest()
