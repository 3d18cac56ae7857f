"""Functions and lines from debug information and symbol tables, as the package `symbolic` reads them.

`symbolic` reads ELF and DWARF, in Rust, and makes a SymCache: sorted ranges of addresses with the calls that
are inlined there, which become the arrays of a table. It was chosen over llvm-symbolizer, which starts for
each question, and pyelftools, which takes minutes for a large program.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from posixpath import join, normpath

import numpy as np

from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_merge.symbols.table import Places

# The form of a SymCache: magic, version and debug id, then the machine and how many rows each table has.
_MAGIC, _VERSION = b"SYMC", 9
_HEAD = struct.Struct("<4sI32x6I16x")
_FILE = np.dtype([("folder", "<u4"), ("subfolder", "<u4"), ("name", "<u4"), ("source_server", "<u4", 3)])
_FUNCTION = np.dtype([("name", "<u4"), ("folder", "<u4"), ("start", "<u4"), ("language", "<u4")])
_PLACE = np.dtype([("file", "<u4"), ("line", "<u4"), ("function", "<u4"), ("into", "<u4")])
_NONE = (1 << 32) - 1
_COLD = re.compile(rb"\.cold(\.\d+)?\Z")


def read_debug_information(path: Path, limits: BinaryLimits) -> Places:
    """Return the places in a program's debug information and symbol table. Raises BinaryInvalid.

    It takes some four times the memory of the program's debug information.
    """
    from symbolic.debuginfo import Archive  # noqa: PLC0415 - an extra
    from symbolic.exceptions import SymbolicError  # noqa: PLC0415 - an extra

    try:
        found = next(Archive.open(str(path)).iter_objects())
        return _places(found.make_symcache().open_stream().read(), limits)
    except SymbolicError as error:
        raise BinaryInvalid(f"it is a damaged program: {error}") from error


def _places(cache: bytes, limits: BinaryLimits) -> Places:
    """Return the places in a SymCache."""
    magic, version, _, *counts, _ = _HEAD.unpack_from(cache)
    if (magic, version) != (_MAGIC, _VERSION):
        raise BinaryInvalid(f"symbolic writes version {version} of its tables; only {_VERSION} can be read")
    if max(counts) > limits.ranges:
        raise BinaryInvalid(f"it has more than {limits.ranges:,} ranges of addresses with a line")
    at, tables = _HEAD.size, []
    for type_, count in zip((_FILE, _FUNCTION, _PLACE, np.dtype("<u4")), counts, strict=True):
        at += -at % 8
        tables.append(np.frombuffer(cache, type_, count, at))
        at += tables[-1].nbytes
    files, functions, places, starts = tables
    text = _Texts(cache, at + -at % 8)
    # A function of the table is one with a file, which here each line has.
    pairs = (places["function"].astype(np.uint64) << np.uint64(32)) | places["file"].astype(np.uint64)
    distinct, rows = np.unique(pairs, return_inverse=True)
    paths = [_path(*map(text.at, each)) for each in files[["folder", "subfolder", "name"]].tolist()]
    # GCC's symbol of a function's cold part, where that comes first, is no name of all of the function.
    names = [_COLD.sub(b"", text.at(name)) for name in functions["name"].tolist()]
    named = [
        (names[function], paths[file] if file != _NONE else b"")
        for function, file in zip((distinct >> 32).tolist(), (distinct & _NONE).tolist(), strict=True)
        if function != _NONE
    ]
    # Places of no function come last among the distinct ones.
    rows = rows.reshape(-1)
    rows[rows >= len(named)] = -1
    into = places["into"].astype(np.int64)
    into[into == _NONE] = -1
    lines = places["line"].astype(np.int64)
    lines[(rows < 0) | (places["file"] == _NONE)] = 0
    # A call whose name is in a file that isn't read is as if it were not inlined.
    has_name = np.array([*(bool(name) for name, _ in named), True])  # the last is of no function
    while len(nameless := np.flatnonzero(~has_name[rows])):
        outer = into[nameless]  # which is an earlier place
        for column in (rows, lines, into):
            column[nameless] = np.where(outer < 0, -1, column[outer])
    return Places(starts.astype(np.int64), rows, lines, into, named)


class _Texts:
    """The texts of a SymCache, each with its length before it, as LEB128."""

    def __init__(self, cache: bytes, begin: int) -> None:
        self._cache, self._begin = cache, begin
        self._known = dict[int, bytes]()

    def at(self, place: int) -> bytes:
        """Return the text at a place; an empty one for none."""
        if place == _NONE:
            return b""
        if place not in self._known:
            at = self._begin + place
            length = shift = 0
            while True:
                byte = self._cache[at]
                length |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if byte < 0x80:
                    break
            self._known[place] = self._cache[at : at + length]
        return self._known[place]


def _path(folder: bytes, subfolder: bytes, name: bytes) -> bytes:
    """Return the path of a file as debuggers show it."""
    if not name or (name.startswith(b"<") and name.endswith(b">")):
        return name
    return normpath(join(folder, subfolder, name))
