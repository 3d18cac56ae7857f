"""Groupings: the names that tables, flame graphs and timelines count frames by, from functions to lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from posixpath import normpath
from types import MappingProxyType
from typing import Literal, get_args
from urllib.parse import unquote

import numpy as np

from pprof_merge.analysis.stacks import Frame, Stacks
from pprof_merge.arrays import Int64s
from pprof_merge.budget import UNBOUNDED, Budget

Grouping = Literal["function", "package", "file", "line"]
# The groupings by the names that requests use.
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)

UNKNOWN = "<unknown>"
# Characters of a long name, and how many short and long ones are cached: long ones are hostile.
_LONG = 1000
_SHORT_CACHED, _LONG_CACHED = 256, 4
# Memory, in bytes, of a name besides its characters.
_NAME_BYTES = 64
_ADVICE = "select fewer profiles, or ask for functions in place of lines"

# Functions that Go's compiler generates for types, to hash and to compare them.
_OF_TYPE = re.compile(r"type:\.\w+\.")
# A package ends at the first "." or "::" after the last "/"; arguments, receivers and type parameters are cut
# off before.
_PACKAGE = re.compile(r"<*+(?P<package>(?:.*/)?[^/.:<]+)(?:\.|::)")
# A part or variant of a function of C, as its compilers name it: the dots in it end no package.
_OF_C = re.compile(r"\w+(?:\.(?:isra|part|constprop|cold|lto_priv|llvm)\.[0-9]+)+(?:\.cold)?")
_AFTER_PATH = re.compile(r"[\[({]")
# The end of the name of a line: of its path, and of the number of the line if that is known.
_PLACE = re.compile(r"[/.:]")


def function_of(frame: Frame) -> str:
    """Return the function's name."""
    return frame.name


def package_of(frame: Frame) -> str:
    """Return the package, crate or namespace of the function; `<unknown>` if it has none, as in C.

    Go escapes dots in the last element of a package path in symbol names; they are unescaped here.
    """
    if _is_binary(frame):
        return frame.name
    return _package_in(frame.name)


def file_of(frame: Frame) -> str:
    """Return the path of the source file, normalized; `<unknown>` if there is none."""
    if _is_binary(frame):
        return frame.name
    return _shortest(frame.file) if frame.file else UNKNOWN


def _cached(work: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that keeps results: many functions share a name or a file."""
    short, long = (lru_cache(maxsize=most)(work) for most in (_SHORT_CACHED, _LONG_CACHED))
    return lambda text: short(text) if len(text) <= _LONG else long(text)


@_cached
def _package_in(name: str) -> str:
    path = _AFTER_PATH.split(_OF_TYPE.sub("", name, count=1), maxsplit=1)[0]
    found = None if _OF_C.fullmatch(path) else _PACKAGE.match(path)
    return UNKNOWN if found is None else unquote(found["package"])


@_cached
def _shortest(file: str) -> str:
    return normpath(file)


def _is_binary(frame: Frame) -> bool:
    """Return whether only the binary of the frame is known."""
    return not frame.file and frame.name.startswith("[")


# The names that a frame alone gives; a line needs the place in its location, too.
NAMES_OF_FRAMES: Mapping[str, Callable[[Frame], str]] = MappingProxyType(
    {"function": function_of, "package": package_of, "file": file_of}
)


def named_slots(stacks: Stacks, by: Grouping, budget: Budget = UNBOUNDED) -> tuple[list[str], Int64s]:
    """Return the distinct names of a grouping, and the row of each slot's name: (n_slots).

    A line is named as in `go tool pprof -lines`, `main.run /src/main.go:12`. Raises OutputTooLarge if the
    names of lines take more than the budget.
    """
    if by == "line":
        named, of_slot = _lines(stacks, budget)
    else:
        named, of_slot = [*map(NAMES_OF_FRAMES[by], stacks.frames)], stacks.slot_frames.astype(np.int64)
    numbers: dict[str, int] = {}
    rows = np.array([numbers.setdefault(name, len(numbers)) for name in named], np.int64)
    return [*numbers], rows[of_slot]


def _lines(stacks: Stacks, budget: Budget) -> tuple[list[str], Int64s]:
    """Return the name of each line of each frame, and which of them each slot has: (n_slots)."""
    lines, line_of = np.unique(stacks.slot_lines, return_inverse=True)
    pairs, of_slot = np.unique(
        stacks.slot_frames.astype(np.int64) * len(lines) + line_of, return_inverse=True
    )
    rows, line_rows = np.divmod(pairs, max(len(lines), 1))
    lengths = np.array([len(frame.name) + len(frame.file) for frame in stacks.frames], np.int64)
    budget.check(int(lengths[rows].sum()) + _NAME_BYTES * len(rows), _ADVICE)
    found = zip(rows.tolist(), lines[line_rows].tolist(), strict=True)
    return [_named_line(stacks.frames[row], line) for row, line in found], of_slot


def _named_line(frame: Frame, line: int) -> str:
    """Return the name of a line of a function; without a file or a line, as much of it as is known."""
    if not frame.file and not line:
        return frame.name
    return f"{frame.name} {_shortest(frame.file) if frame.file else ''}" + (f":{line}" if line else "")


def function_in(name: str) -> str:
    """Return the function's name in the name of a line; any other name is returned as it is."""
    function, space, place = name.rpartition(" ")
    return function if space and function and _PLACE.search(place) else name
