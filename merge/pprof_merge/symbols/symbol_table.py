"""Functions from the symbol tables of a program without debug information, and from MiniDebugInfo.

That is a section of Fedora's programs, `.gnu_debugdata`: a compressed ELF file that has a symbol table of
what `.dynsym` leaves out.
"""

from __future__ import annotations

import lzma
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pprof_merge.arrays import Int64s
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_merge.symbols.elf import Elf, Texts
from pprof_merge.symbols.table import Places

_MINI = ".gnu_debugdata"
_MOST_MINI, _MOST_MEMORY = 64 << 20, 128 << 20  # bytes that come out of it, and that the decompressor takes
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_KIND, _FUNCTIONS = 0xF, (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_UNDEFINED = 0


class _Functions(NamedTuple):
    """The functions of a table: their addresses, sizes, the ends of their sections, and places of names."""

    start: Int64s
    size: Int64s
    section_end: Int64s
    name: Int64s
    texts: Texts


def read_symbols(elf: Elf, limits: BinaryLimits) -> Places:
    """Return the functions in the symbol tables of a program, by address. Raises BinaryInvalid.

    Functions without a size go on to the next one or to the end of their section, but in `.dynsym`, which
    leaves out what may follow.
    """
    tables = [_functions(elf, ".symtab", ".strtab", limits)]
    if _MINI in elf.sections:
        tables.append(_functions(_mini(elf, limits), ".symtab", ".strtab", limits))
    tables.append(_functions(elf, ".dynsym", ".dynstr", limits, only_sized=True))
    start = np.concatenate([of.start for of in tables])
    size = np.concatenate([of.size for of in tables])
    end = np.where(size > 0, start + size, np.concatenate([of.section_end for of in tables]))
    end = np.maximum(start, end)  # agents leave out the sizes of sections, too
    names = [name for of in tables for name in of.texts.at(of.name)]
    starts, first = np.unique(start, return_index=True)
    ends = np.minimum(end[first], np.append(starts[1:], 1 << 62))
    has_gap = ends < np.append(starts[1:], 1 << 62)
    every = np.concatenate((starts, ends[has_gap]))
    rows = np.concatenate((np.arange(len(starts)), np.full(int(has_gap.sum()), -1)))
    order = np.argsort(every, kind="stable")
    is_near = every[order] - elf.base < 1 << 32
    order = order[is_near & (every[order] >= elf.base)]
    nothing = np.zeros(len(order), np.int64)
    return Places(
        every[order] - elf.base,
        rows[order],
        nothing,
        nothing - 1,
        [(names[row], b"") for row in first.tolist()],
    )


def without_sizeless(places: Places, elf: Elf, limits: BinaryLimits) -> Places:
    """Return places in which symbols without a size end with their section, and aren't those of `.dynsym`.

    What has a file has a size.
    """
    functions = _functions(elf, ".symtab", ".strtab", limits)
    cut = dict(zip(*(column[functions.size == 0].tolist() for column in functions[:3:2]), strict=True))
    is_bare = np.array([*(not file for _, file in places.functions), False])
    n_others = len(places.function) - len(places.starts)
    at = places.function[n_others:]
    starts, ends = places.starts, np.append(places.starts[1:], 1 << 62)
    found = np.flatnonzero(is_bare[at] & np.isin(starts, np.array([*cut], np.int64) - elf.base))
    until = np.array([cut[start] for start in (starts[found] + elf.base).tolist()], np.int64) - elf.base
    until = np.maximum(until, starts[found])  # agents leave out the sizes of sections, too
    is_cut = until < ends[found]
    order = np.argsort(np.concatenate((starts, until[is_cut])), kind="stable")

    def added(column: Int64s, value: int) -> Int64s:
        new = np.full(int(is_cut.sum()), value)
        return np.concatenate((column[:n_others], np.concatenate((column[n_others:], new))[order]))

    return replace(
        places,
        starts=np.concatenate((starts, until[is_cut]))[order],
        function=added(places.function, -1),
        line=added(places.line, 0),
        into=added(places.into, -1),
    )


def _functions(
    elf: Elf, table: str, texts: str, limits: BinaryLimits, *, only_sized: bool = False
) -> _Functions:
    """Return the functions in a symbol table, whose names are in another section; none if it isn't there."""
    content = elf.sections[table].content if table in elf.sections else b""
    if len(content) // _SYMBOL.itemsize > limits.symbols:
        raise BinaryInvalid(f"it has more than {limits.symbols:,} symbols")
    every = np.frombuffer(content[: len(content) // _SYMBOL.itemsize * _SYMBOL.itemsize], _SYMBOL)
    is_defined = (every["section"] != _UNDEFINED) & (every["section"] < len(elf.section_ends))
    is_near = (every["value"] > 0) & (every["value"] < 1 << 62) & (every["size"] < 1 << 32)
    found = every[is_defined & is_near & np.isin(every["info"] & _KIND, _FUNCTIONS)]
    if only_sized:
        found = found[found["size"] > 0]
    return _Functions(
        found["value"].astype(np.int64),
        found["size"].astype(np.int64),
        elf.section_ends[found["section"]],
        found["name"].astype(np.int64),
        Texts(np.frombuffer(elf.sections[texts].content if texts in elf.sections else b"", np.uint8)),
    )


def _mini(elf: Elf, limits: BinaryLimits) -> Elf:
    """Return the ELF file within a program. Raises BinaryInvalid."""
    unpack = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)
    try:
        content = unpack.decompress(bytes(elf.sections[_MINI].content), min(_MOST_MINI, limits.unpacked))
    except lzma.LZMAError as error:
        raise BinaryInvalid(f"its section {_MINI} is damaged: {error}") from error
    if not unpack.eof:
        raise BinaryInvalid(
            f"its section {_MINI} is cut off, or has more than {_MOST_MINI:,} bytes when unpacked"
        )
    return Elf(content, limits)
