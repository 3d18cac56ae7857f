"""Symbols: which functions a program has, as `go tool nm` or nm print them, or in a list."""

from __future__ import annotations

import re

from pprof_merge.errors import SymbolsInvalid

# Address, with -size a size, kind, and a name, in which there may be spaces:
#   4d53a0 T main.find[go.shape.interface { Len() int }]
# What repeats gives nothing back, so that a line of a million spaces is read once.
_NM_LINE = re.compile(rb"(?:\s*+[0-9a-f]++)?\s++(?:[0-9]++\s++)?([A-Za-z?_])\s(\S.*)")
# In nm's letters: text, and weak symbols. The others are variables, or undefined.
_CODE = b"TtWw"
# What Go's linker appends to functions in assembly, and profiles don't have.
_ABI = b".abi0"


def parse_symbols(text: bytes) -> frozenset[bytes]:
    """The functions in what nm prints, or in a list with a name a line. Raises SymbolsInvalid if none is."""
    names = frozenset(name for line in text.splitlines() if (name := _function(line)))
    if not names:
        raise SymbolsInvalid("there is no function among the symbols; nm finds none in a stripped program")
    return names


def _function(line: bytes) -> bytes:
    """The function that a line names; empty if it is none."""
    found = _NM_LINE.fullmatch(line)
    if found is None:
        return line.strip().removesuffix(_ABI)
    kind, name = found.groups()
    return name.rstrip().removesuffix(_ABI) if kind in _CODE else b""
