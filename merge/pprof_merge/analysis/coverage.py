"""Coverage: how much of a profile is in functions that a given program has. Part of the report.

A profile keeps its weight in functions that have since been renamed or removed, and no compiler reports it
(golang/go#70291). Functions are matched by name, as in the compiler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pprof_merge.analysis.call_edges import CallEdges
from pprof_merge.analysis.edge_overlap import leaf_functions, leaf_shares, outermost_functions, shares
from pprof_merge.arrays import Bools, Floats
from pprof_merge.errors import SymbolsInvalid
from pprof_merge.profile import Profile

_MAX_MISSING = 20


@dataclass(frozen=True, slots=True)
class WeightShares:
    """Shares of weight, from 0 to 1. They add up to 1; without any weight, all are 0."""

    present: float
    missing: float
    unknown: float


@dataclass(frozen=True, slots=True)
class MissingFunction:
    """A function that the program doesn't have, and the share of weight in it."""

    function: str
    share: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a profile's weight is in functions of a program, which has `symbols` functions.

    `functions`: a sample counts for the function whose code was running. Where calls are inlined, this is the
    outermost function. Code without a name is unknown. `edges`: a call is present if both of its functions
    are. A function that the profile only shows inlined need not have a symbol, so a call of it is unknown.
    `missing`: the functions with the most weight, at most 20.
    """

    symbols: int
    functions: WeightShares
    edges: WeightShares
    missing: tuple[MissingFunction, ...]


def coverage(profile: Profile, edges: CallEdges, symbols: frozenset[bytes]) -> Coverage:
    """Return how much of a profile, whose call edges are `edges`, the functions named `symbols` cover."""
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
            MissingFunction(profile.strings[row].decode(errors="backslashreplace"), float(by_name[row]))
            for row in sorted(lost.tolist(), key=lambda row: (-by_name[row], profile.strings[row]))[
                :_MAX_MISSING
            ]
        ),
    )


def _edge_share(edges: CallEdges, symbols: frozenset[bytes], with_code: set[bytes]) -> WeightShares:
    present = np.array([name in symbols for name in edges.names], np.bool_)
    # A function with code of its own would have a symbol; a call without a function's name is unknown.
    missing = np.array([bool(name) and name in with_code for name in edges.names], np.bool_) & ~present
    is_present = present[edges.caller] & present[edges.callee]
    return _share(shares(edges.weight), is_present, missing[edges.caller] | missing[edges.callee])


def _share(weights: Floats, present: Bools, missing: Bools) -> WeightShares:
    parts = (present, missing, ~(present | missing))
    return WeightShares(*(float(weights[part].sum()) for part in parts))


# Address, size (with -size), kind, and a name that may contain spaces:
#   4d53a0 T main.find[go.shape.interface { Len() int }]
# The repetitions are possessive: without backtracking, a line of a million spaces takes linear time.
_NM_LINE = re.compile(rb"(?:\s*+[0-9a-f]++)?\s++(?:[0-9]++\s++)?([A-Za-z?_])\s(\S.*)")
# The letters of nm for text and weak symbols. The other letters are variables or undefined symbols.
_CODE = b"TtWw"
# The suffix that Go's linker gives to functions in assembly; profiles don't have it.
_ABI = b".abi0"


def parse_symbols(text: bytes) -> frozenset[bytes]:
    """Return the functions in the output of nm, or in a list of one name a line.

    Raises SymbolsInvalid if there is no function.
    """
    names = frozenset(name for line in text.splitlines() if (name := _function(line)))
    if not names:
        raise SymbolsInvalid(
            "no function among the symbols; nm lists none of a stripped program: use the unstripped one"
        )
    return names


def _function(line: bytes) -> bytes:
    """Return the function that a line names; empty if it names none."""
    found = _NM_LINE.fullmatch(line)
    if found is None:
        return line.strip().removesuffix(_ABI)
    kind, name = found.groups()
    return name.rstrip().removesuffix(_ABI) if kind in _CODE else b""
