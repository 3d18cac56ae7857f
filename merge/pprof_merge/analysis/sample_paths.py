"""Sample paths: what LLVM's compilers take from a profile, the source lines of its samples with their counts.

A sample counts in its leaf only. `formats.llvm` writes the counts, and `gain` says what they are worth.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np

from pprof_merge.budget import Budget
from pprof_merge.errors import UnfitForFormat
from pprof_merge.profile import Header, Profile, ValueType

# A line, counted from the first of its function, and a discriminator of the statements in it.
Place = tuple[int, int]
# The place of a sample, outermost function first: function names and places. Each but the last is a call.
Path = tuple[tuple[bytes, Place], ...]

MAX_DEPTH = 200  # of inlined calls; each line is indented by its depth, so the depth needs a bound
# What a profile of branch records counts: how often the instructions from the caller's address to the leaf's
# ran in a row, and how often the branch from the caller's address to the leaf's was taken.
BRANCH_TYPES = (ValueType(b"ranges", b"count"), ValueType(b"branches", b"count"))
RANGES, BRANCHES = 0, 1
_OFFSET_BITS = 0xFFFF  # as in LLVM's getOffset, which wraps for a line above the function's first
# A name that begins with # or [ or a digit reads as a comment, a context or a count; control characters end
# it.
_READABLE_NAME = re.compile(rb"[^\x00-\x20\x7f#\[0-9][^\x00-\x1f\x7f]*")
# Suffixes that compilers append to parts and clones of a function, which share the profile of the function:
# `.cold`, or any of these with a number, as in `.part.0`.
_COLD = b"cold"
_NUMBERED = {b"llvm", b"part", b"__part", b"lto_priv", b"isra", b"constprop", _COLD}
# A name with a dot, mangled by rustc in its first way, which ends with a hash.
_OLD_RUST_NAME = re.compile(rb"_ZN[^.]*\..*17h[0-9a-f]{16}E")
# Memory, in bytes, that a line of an inlined function takes in a path and in the tree; about a third at a
# time.
_LINE_BYTES = 256
ADVICE = "select fewer profiles: calls inlined into each other make too many lines"


def kept_counts(profile: Profile, budget: Budget) -> list[tuple[Path, int, int]]:
    """Return what `counts_of_paths` yields for all samples.

    Raises UnfitForFormat if the profile isn't of CPU time, or no sample is left, and OutputTooLarge.
    """
    samples = samples_of_leaves(profile)
    check_lines(profile, samples, budget)
    counts = [*counts_of_paths(profile, samples)]
    if not counts:
        raise UnfitForFormat(_why_nothing_is_left(profile, samples))
    return counts


def check_lines(profile: Profile, samples: dict[int, int], budget: Budget) -> None:
    """Check how many lines the paths of these locations have. Raises OutputTooLarge."""
    n_lines = np.diff(profile.locations.lines.offsets)[[*samples]]
    budget.check_rows(int(n_lines[n_lines <= MAX_DEPTH].sum()), _LINE_BYTES, ADVICE)


def has_branches(header: Header) -> bool:
    """Return whether a profile is one of branch records."""
    return header.sample_types == BRANCH_TYPES


def value_column(header: Header) -> int:
    """Return the column of values that the format counts. Raises UnfitForFormat if it isn't CPU time."""
    if has_branches(header):
        raise UnfitForFormat(
            "branch records need the program that ran: upload it (pgo-agent binary), or name it with --binary"
        )
    types = [sample_type.type for sample_type in header.sample_types]
    for wanted in (b"samples", b"cpu"):
        if wanted in types:
            return types.index(wanted)
    raise UnfitForFormat(f"it measures {', '.join(map(str, header.sample_types)) or 'nothing'}, not CPU time")


def samples_of_leaves(profile: Profile, column: int | None = None) -> dict[int, int]:
    """Return the number of samples for each location row that is a leaf, as ints of Python, which don't wrap.

    Leaves whose samples add up to 0 or less are left out. The values are of the column, or of the one that
    the format counts. Raises UnfitForFormat if there is none.
    """
    column = value_column(profile.header) if column is None else column
    offsets = profile.samples.location_offsets
    with_stack = offsets[1:] > offsets[:-1]
    leaves = profile.samples.locations[offsets[:-1][with_stack]]
    samples: dict[int, int] = defaultdict(int)
    for leaf, count in zip(leaves.tolist(), profile.samples.values[with_stack, column].tolist(), strict=True):
        samples[leaf] += count
    return {leaf: count for leaf, count in samples.items() if count > 0}


def samples_of_pairs(profile: Profile, column: int | None = None) -> dict[tuple[int, int], int]:
    """Return the number of samples for each leaf and its caller, as location rows; -1 if it has none.

    The values are of the column, or of the one that the format counts.
    """
    column = value_column(profile.header) if column is None else column
    offsets = profile.samples.location_offsets
    locations = np.append(profile.samples.locations, -1)
    with_stack = offsets[1:] > offsets[:-1]
    first, last = offsets[:-1][with_stack], offsets[1:][with_stack]
    callers = np.where(first + 1 < last, locations[first + 1], -1)
    samples: dict[tuple[int, int], int] = defaultdict(int)
    values = profile.samples.values[with_stack, column].tolist()
    for leaf, caller, count in zip(locations[first].tolist(), callers.tolist(), values, strict=True):
        samples[leaf, caller] += count
    return samples


def counts_of_paths(profile: Profile, samples: dict[int, int]) -> Iterator[tuple[Path, int, int]]:
    """Yield each path, the number of its samples, and its count: a maximum over addresses a binary."""
    totals: dict[Path, int] = defaultdict(int)
    maxima: dict[Path, dict[bytes, int]] = defaultdict(dict)
    names = _Names(profile)
    for location, count in samples.items():
        path = _path(profile, names, location)
        if path:
            totals[path] += count
            of_binaries = maxima[path]
            binary = binary_of(profile, location)
            of_binaries[binary] = max(of_binaries.get(binary, 0), count)
    for path, total in totals.items():
        yield path, total, sum(maxima[path].values())


def _path(profile: Profile, names: _Names, location: int) -> Path:
    """Return the path of a location; empty if an address, a line, a first line or a name is missing."""
    lines, functions = profile.locations.lines, profile.functions
    first, end = int(lines.offsets[location]), int(lines.offsets[location + 1])
    if not profile.locations.address[location] or end - first > MAX_DEPTH:
        return ()
    path = []
    for row in reversed(range(first, end)):
        function = int(lines.function[row])
        name = names[function]
        line, start_line = int(lines.line[row]), int(functions.start_line[function])
        if line <= 0 or start_line <= 0 or not name:
            return ()
        path.append((name, (offset_of(line, start_line), 0)))
    return tuple(path)


def offset_of(line: int, start_line: int) -> int:
    """Return a line counted from the first of its function, as LLVM's getOffset does."""
    return line - start_line & _OFFSET_BITS


class _Names(dict[int, bytes]):
    """Names of functions as the format has them, by row, computed on first use; empty if it can't."""

    def __init__(self, profile: Profile) -> None:
        super().__init__()
        self._functions = profile.functions
        self._strings = profile.strings
        self._bases: dict[int, bytes] = {}

    def __missing__(self, function: int) -> bytes:
        functions, strings = self._functions, self._strings
        row = int(functions.system_name[function])
        row = row if strings[row] else int(functions.name[function])
        if row not in self._bases:
            self._bases[row] = readable_name(strings[row])
        name = self[function] = self._bases[row]
        return name


def readable_name(name: bytes) -> bytes:
    """Return the name of a function as the format has it; empty if the format can't have it."""
    name = base_name(name)
    return name if _READABLE_NAME.fullmatch(name) else b""


def base_name(name: bytes) -> bytes:
    """Return a linkage name without the suffixes that compilers append to parts and clones of a function."""
    parts = name.split(b".")
    while len(parts) > 1:
        if parts[-1] == _COLD:
            parts.pop()
        elif len(parts) > 2 and parts[-1].isdigit() and parts[-2] in _NUMBERED:
            del parts[-2:]
        else:
            break
    return b".".join(parts)


def is_found(name: bytes) -> bool:
    """Return whether LLVM finds the profile of a function of this name; it doesn't find all of Rust's.

    For a function `a.b` it looks up `a` (SampleProf.h, `getCanonicalFnName`). The names that rustc makes
    without `-Csymbol-mangling-version=v0` have dots: `_ZN3std2io5impls58_$LT$impl$u20$std..io..Write$u20$…`.
    """
    return _OLD_RUST_NAME.fullmatch(name) is None


def binary_of(profile: Profile, location: int) -> bytes:
    """Return what identifies a location's binary: its build id, else its file's name; empty if unknown."""
    mappings, mapping = profile.mappings, profile.locations.mapping[location]
    if mapping < 0:
        return b""
    build_id, filename = int(mappings.build_id[mapping]), int(mappings.filename[mapping])
    return profile.strings[build_id] or profile.strings[filename]


def _why_nothing_is_left(profile: Profile, leaves: Iterable[int]) -> str:
    """Return the first thing that a path needs and a profile with these leaves lacks, in words."""
    rows = list(leaves)
    lines = profile.locations.lines
    if not rows:
        return "it has no samples"
    if not profile.locations.address[rows].any():
        return "it has no addresses, so LLVM can't use it"
    innermost = [lines.offsets[row] for row in rows if lines.offsets[row] < lines.offsets[row + 1]]
    if not lines.line[innermost].any():
        return "it has no source lines, so LLVM can't use it"
    if not profile.functions.start_line[lines.function[innermost]].any():
        return "it has no first lines of functions (start_line), so LLVM can't use it"
    return "it has no sample with an address, a line, and its function's first line and name, as LLVM needs"
