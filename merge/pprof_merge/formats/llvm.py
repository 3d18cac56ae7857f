"""The format `llvm`: LLVM's sample profile in text, from which clang and rustc build (AutoFDO).

Clang's manual describes it as "Sample Profile Text Format"; SampleProfReader.cpp reads and
SampleProfWriter.cpp writes it. It counts samples by function and source line. Lines are numbered from the
function's first line, so that counts stay right when other parts of the file change. The lines of an inlined
function are nested in the line that called it, since code that is hot in one caller may be cold in another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from pprof_merge.analysis.sample_paths import (
    ADVICE,
    RANGES,
    Path,
    Place,
    has_branches,
    is_found,
    kept_counts,
    samples_of_leaves,
)
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.profile import Profile

_COUNT_LIMIT = (1 << 64) - 1


class Calls(NamedTuple):
    """How often functions were entered (`heads`), and how often each was called from a path (`targets`)."""

    heads: Mapping[bytes, int]
    targets: Mapping[Path, Mapping[bytes, int]]


# What a profile without branch records says of calls.
UNKNOWN_CALLS = Calls({}, {})


@dataclass(slots=True)
class _FunctionSamples:
    """The samples of a function or an inlined call: in `total`, by place (`body`), and by `inlined` call.

    It was entered `head` times; `called` has the functions that were called from its places.
    """

    total: int = 0
    head: int = 0
    called: dict[Place, Mapping[bytes, int]] = field(default_factory=dict)
    body: dict[Place, int] = field(default_factory=dict)
    inlined: dict[tuple[Place, bytes], _FunctionSamples] = field(default_factory=dict)


def llvm_sample_profile(profile: Profile) -> bytes:
    """Return the text sample profile of a CPU profile, in the bytes of `llvm-profdata merge --sample -text`.

    Counts are numbers of samples, or CPU time if the profile has no such column. A sample counts in its leaf
    only: the stack doesn't tell how often a caller called. So entries (heads) are 0 and call targets are left
    out, as by AutoFDO and llvm-profgen without recorded branches. LLVM then takes the count of a function's
    first block for its entries.

    The count of a line is the maximum over its addresses: each instruction of a line runs as often as the
    line, and a sum would make long lines hot. Counts of different binaries add up. Samples without a line, an
    address or a first line of their function are left out, and so are names that the reader would misread.
    Discriminators are all 0, since pprof has no field for them.

    Raises UnfitForFormat if the profile isn't of CPU time, or no sample is left.
    """
    return b"".join(pieces(profile, UNBOUNDED))


def pieces(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """Yield what `llvm_sample_profile` returns, piece by piece. Raises UnfitForFormat and OutputTooLarge."""
    yield from text(kept_counts(profile, budget), budget)


def samples_in(pieces: Iterable[bytes]) -> int:
    """Return how many samples are in the pieces of a profile in this format: the sum over the functions that
    LLVM finds in it.

    Each piece ends with a line. A line of a function's own begins with a space.
    """
    functions = (
        line.rsplit(b":", 2) for piece in pieces for line in piece.splitlines() if not line.startswith(b" ")
    )
    return sum(int(total) for name, total, _ in functions if is_found(name))


def text(
    counts: Iterable[tuple[Path, int, int]], budget: Budget, calls: Calls = UNKNOWN_CALLS
) -> Iterator[bytes]:
    """Yield the sample profile with these paths, the samples in them and their counts, in pieces of text.

    A path is given once. A line counts at least its calls. Raises OutputTooLarge.
    """
    functions: dict[bytes, _FunctionSamples] = defaultdict(_FunctionSamples)
    for path, total, count in counts:
        function, place = _place(functions, path, total)
        function.body[place] = count
    for path, called in calls.targets.items():
        function, place = _place(functions, path, 0)
        function.body[place] = max(function.body.get(place, 0), sum(called.values()))
        function.called[place] = called
    for name, count in calls.heads.items():
        functions[name].head = count
    budget.check(sum(_sizes(functions)), ADVICE)
    yield from budget.within(_written(functions), ADVICE)


def most_sampled_build(profile: Profile, builds: Collection[str]) -> str | None:
    """Return which of some builds has most samples in its program, by build id; None if none has any.

    Raises UnfitForFormat if the profile isn't of CPU time or of branch records.
    """
    counts = {build_id: count for build_id, count in samples_by_build(profile).items() if build_id in builds}
    return min(counts, key=lambda build_id: (-counts[build_id], build_id), default=None)


def samples_by_build(profile: Profile) -> dict[str, int]:
    """Return the samples in each program, by build id, or the ranges that ran. Raises UnfitForFormat."""
    mappings = profile.mappings
    counts: dict[str, int] = defaultdict(int)
    column = RANGES if has_branches(profile.header) else None
    for location, count in samples_of_leaves(profile, column).items():
        mapping = int(profile.locations.mapping[location])
        if mapping >= 0:
            counts[profile.strings[int(mappings.build_id[mapping])].decode(errors="replace")] += count
    return counts


def _place(
    functions: dict[bytes, _FunctionSamples], path: Path, total: int
) -> tuple[_FunctionSamples, Place]:
    """Return where a path ends, and add to the totals on the way there."""
    (name, place), *callees = path
    function = functions[name]
    function.total += total
    for name, callee_place in callees:
        function = function.inlined.setdefault((place, name), _FunctionSamples())
        function.total += total
        place = callee_place
    return function, place


def _sizes(functions: dict[bytes, _FunctionSamples]) -> Iterator[int]:
    """Yield lower bounds, in bytes, of parts of the text; their sum is a lower bound of the whole."""
    for name, function in functions.items():
        yield len(name)
        yield from _inlined_sizes(function, 1)


def _inlined_sizes(function: _FunctionSamples, depth: int) -> Iterator[int]:
    yield (depth + len("0: 0\n")) * len(function.body)
    for (_, name), callee in function.inlined.items():
        yield depth + len(name)
        yield from _inlined_sizes(callee, depth + 1)


def _written(functions: dict[bytes, _FunctionSamples]) -> Iterator[bytes]:
    """Yield the text in the order of LLVM's writer: hot functions first, each with its lines, then calls."""
    for name, function in sorted(functions.items(), key=lambda entry: (-entry[1].total, entry[0])):
        yield b"%s:%d:%d\n" % (name, _bounded(function.total), _bounded(function.head))
        yield from _written_body(function, b" ")


def _written_body(function: _FunctionSamples, indent: bytes) -> Iterator[bytes]:
    for place, count in sorted(function.body.items()):
        called = sorted(function.called.get(place, {}).items(), key=lambda call: (-call[1], call[0]))
        targets = b"".join(b" %s:%d" % (name, _bounded(number)) for name, number in called)
        yield b"%s%s: %d%s\n" % (indent, _location(place), _bounded(count), targets)
    for (place, name), callee in sorted(function.inlined.items(), key=itemgetter(0)):
        yield b"%s%s: %s:%d\n" % (indent, _location(place), name, _bounded(callee.total))
        yield from _written_body(callee, indent + b" ")


def _location(place: Place) -> bytes:
    return b"%d.%d" % place if place[1] else b"%d" % place[0]


def _bounded(count: int) -> int:
    return min(count, _COUNT_LIMIT)
