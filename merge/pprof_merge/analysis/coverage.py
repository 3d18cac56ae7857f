"""Coverage: how much of a profile is in functions that a given program has.

A profile goes on counting for functions that have since been renamed or removed, and no compiler says so
(golang/go#70291). Functions go by name, as they do in the compiler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pprof_merge.analysis.call_edges import CallEdges
from pprof_merge.analysis.overlap import leaf_functions, leaf_shares, outermost_functions, shares
from pprof_merge.errors import SymbolsInvalid
from pprof_merge.profile import Bools, Floats, Profile

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Share:
    """Shares of weight, which add up to 1; where there is no weight, all are 0."""

    present: float
    missing: float
    unknown: float


@dataclass(frozen=True, slots=True)
class Missing:
    """A function that the program doesn't have, and the share of weight that is in it."""

    function: str
    share: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much is in functions of a program with so many symbols.

    `functions`: a sample counts for the function whose code was running, that is the outermost one where
    calls are inlined; unknown is code without a name. `edges`: a call counts as present if both functions
    are. A function that was only ever seen inlined need not have a symbol, so that a call of it is unknown.
    `missing` are the functions with most weight, at most 20.
    """

    symbols: int
    functions: Share
    edges: Share
    missing: tuple[Missing, ...]


def coverage(profile: Profile, edges: CallEdges, symbols: frozenset[bytes]) -> Coverage:
    """Of a profile, whose call edges these are, by a program's functions."""
    name_of = np.append(profile.functions.name, 0)
    by_name = np.zeros(len(profile.strings))
    np.add.at(by_name, name_of[leaf_functions(profile)], leaf_shares(profile))
    present = np.array([string in symbols for string in profile.strings], np.bool_)
    missing = ~present
    present[0] = missing[0] = False
    lost = np.flatnonzero(missing & (by_name > 0))
    with_code = {profile.strings[row] for row in name_of[outermost_functions(profile)].tolist()}
    return Coverage(
        symbols=len(symbols),
        functions=_share(by_name, present, missing),
        edges=_edge_share(edges, symbols, with_code),
        missing=tuple(
            Missing(profile.strings[row].decode(errors="backslashreplace"), float(by_name[row]))
            for row in lost[np.argsort(-by_name[lost], kind="stable")][:_MOST_NAMED].tolist()
        ),
    )


def _edge_share(edges: CallEdges, symbols: frozenset[bytes], with_code: set[bytes]) -> Share:
    present = np.array([name in symbols for name in edges.names], np.bool_)
    # What had code of its own would have a symbol; an edge without a name is unknown.
    missing = np.array([bool(name) and name in with_code for name in edges.names], np.bool_) & ~present
    is_present = present[edges.caller] & present[edges.callee]
    return _share(shares(edges.weight), is_present, missing[edges.caller] | missing[edges.callee])


def _share(weights: Floats, present: Bools, missing: Bools) -> Share:
    parts = (present, missing, ~(present | missing))
    return Share(*(float(weights[part].sum()) for part in parts))


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
