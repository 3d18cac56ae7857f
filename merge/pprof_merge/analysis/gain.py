"""Gain: what a build with a merge can be expected to gain, and whether more samples would add to it.

Each compiler has a verdict of its own, from the samples that its format keeps: the others count for nothing.
Nobody can tell from a profile alone how much faster a build will be. What a number of samples is worth
follows from what was measured on other programs (docs/gains.md): `MEASURED` has the points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from pprof_merge.analysis.call_edges import TracedEdges
from pprof_merge.analysis.compiler import weight_column
from pprof_merge.analysis.sample_paths import (
    RANGES,
    has_branches,
    is_found,
    kept_counts,
    samples_of_leaves,
    value_column,
)
from pprof_merge.arrays import Bools, Ints
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.errors import OutputTooLarge, UnfitForFormat
from pprof_merge.profile import Header, Profile

Compiler = Literal["go", "llvm"]
Outlook = Literal["enough", "collect more", "none"]


class Point(NamedTuple):
    """A measured point: with an `amount` of samples, this `share` of the whole gain was had, from 0 to 1."""

    amount: float
    share: float


# For each compiler shares of the gain with all samples, by rising amounts: the lowest of the programs'
# medians in the table "How many samples are enough" of docs/gains.md. A program's share is taken as no lower
# than with fewer samples, since draws differ by chance; between its rows it rises with the logarithm.
MEASURED: Mapping[Compiler, Sequence[Point]] = MappingProxyType(
    {
        "go": (
            Point(100, 0.36),
            Point(300, 0.57),
            Point(1000, 0.78),
            Point(3000, 1.0),
            Point(3403, 1.0),
        ),
        "llvm": (
            Point(100, 0.0),
            Point(300, 0.02),
            Point(1000, 0.65),
            Point(3000, 0.9),
            Point(10_000, 0.98),
            Point(30_000, 1.0),
            Point(100_000, 1.0),
            Point(300_000, 1.0),
            Point(1_000_000, 1.0),
            Point(1_095_127, 1.0),
        ),
    }
)

# More samples are worth the wait as long as this share of the gain isn't reached.
_ENOUGH = 0.9
# Nanoseconds of CPU time that a sample stands for in a profile that doesn't say so: as Go's runtime samples.
_USUAL_PERIOD = 10_000_000
# Branch records of a sample, on the CPUs that have most.
_RECORDS = 32
NOT_USED = "it has no calls, or their weights add up to 0"
_LLVM = "LLVM (clang, rustc)"
_OLD_RUST = "rustc, which finds no function with a dot in its name (build with -Csymbol-mangling-version=v0),"
# With less than this share of the time below it, a call doesn't stand out. In the Go programs of
# docs/gains.md none does, and they took so many per cent less CPU time; nor in NATS, which has 0.26 and took
# as much. In that of the tutorial for Go, a call with 0.81 does, and it took half.
_STANDS_OUT = 0.3
USUAL_PER_CENT = (0, 5)
# Packages of the runtime, whose functions Go's compiler calls by itself and never inlines across.
_RUNTIME = (b"runtime.", b"internal/runtime/", b"internal/bytealg.", b"syscall.")
_LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class HotCall:
    """The call between functions of a Go program below which most of the time was spent: `share`, 0 to 1.

    Calls that are inlined already don't count, nor recursive ones, nor those of and in the runtime.
    """

    caller: str
    callee: str
    share: float


@dataclass(frozen=True, slots=True)
class Collection:
    """How much more to collect: `samples`; for how many `minutes` to profile each of the `instances`.

    `minutes` is None if the profiles don't say how long they took.
    """

    samples: int
    minutes: int | None
    instances: int


@dataclass(frozen=True, slots=True)
class FormatGain:
    """The expected gain of a build with a merge in one format. `reason` says it in one sentence.

    `samples` are those that the format keeps; the verdict is `none` if the compiler takes none of them.
    `share` is how much of what all samples gain is gained with this number. `collect` is None unless more
    samples are worth it.
    """

    verdict: Outlook
    reason: str
    samples: int
    share: float
    collect: Collection | None = None


@dataclass(frozen=True, slots=True)
class Gain:
    """The expected gain of a build with a merge, in each of the `formats`.

    `compiler` is the program's: of those that take the merge, the one for its language. `verdict`, `reason`,
    `samples`, `share` and `collect` are of its format. If neither takes the merge, `compiler` is None and the
    `reason` says why for each. `lost` is the share of the weight in functions that the program doesn't have
    any more; None if its symbols weren't given.
    """

    compiler: Compiler | None
    verdict: Outlook
    reason: str
    samples: int
    share: float
    lost: float | None
    hottest_call: HotCall | None
    collect: Collection | None
    formats: Mapping[Compiler, FormatGain]


def kept_by_llvm(profile: Profile, budget: Budget) -> int:
    """Return the sum of the values that the format llvm keeps in functions that LLVM finds.

    Raises UnfitForFormat and OutputTooLarge.
    """
    try:
        return sum(total for path, total, _ in kept_counts(profile, budget) if is_found(path[0][0]))
    except UnfitForFormat as unfit:
        if _is_of_known_program(profile):
            raise UnfitForFormat(f"{unfit} without the program that was profiled") from unfit
        raise


def expected_gain(
    profile: Profile,
    go: TracedEdges | UnfitForFormat,
    instances: int,
    *,
    lost: float | None = None,
    kept: Callable[[Profile, Budget], int] = kept_by_llvm,
    budget: Budget = UNBOUNDED,
    measured: Mapping[Compiler, Sequence[Point]] = MEASURED,
) -> Gain:
    """Return the expected gain of a build with a merge of profiles of `instances` instances.

    `go` is what Go's compiler reads of the merge, or why it refuses it. `kept` returns the sum of the values
    in its sample profile for LLVM, or raises why there is none. `lost` is the share of weight in functions
    that the program doesn't have.
    """
    names = [profile.strings[row] for row in profile.functions.name.tolist()]
    is_go = any(name.startswith(_RUNTIME[0]) for name in names)
    nanos, instances = profile.header.duration_nanos, max(instances, 1)
    hottest, found = None, dict[Compiler, FormatGain]()
    try:
        samples, of = _kept_by_go(profile, go)
        hottest = _hottest_call(profile, names) if is_go else None
        name = "Go's compiler" if is_go else "Go's compiler, if this is a Go program,"
        found["go"] = _outlook(name, samples, of, measured["go"], hottest, nanos=nanos, instances=instances)
    except UnfitForFormat as unfit:
        found["go"] = FormatGain("none", str(unfit), 0, 0.0)
    try:
        column = RANGES if has_branches(profile.header) else value_column(profile.header)
        samples, of = _counted(profile, column, kept(profile, budget))
        name = _OLD_RUST if samples < of and _has_old_rust_names(profile) else _LLVM
        found["llvm"] = _outlook(name, samples, of, measured["llvm"], nanos=nanos, instances=instances)
    except (UnfitForFormat, OutputTooLarge) as refused:
        found["llvm"] = FormatGain("none", str(refused), 0, 0.0)
    order: Sequence[Compiler] = ("go", "llvm") if is_go else ("llvm", "go")
    compiler = next((each for each in order if found[each].verdict != "none"), None)
    chosen = found[compiler or order[0]]
    reason = _sentence(found, compiler, is_go=is_go, lost=lost)
    return Gain(
        compiler, chosen.verdict, reason, chosen.samples, chosen.share, lost, hottest, chosen.collect, found
    )


def share_of_samples(points: Sequence[Point], samples: int) -> float:
    """Return the share with `samples` samples, between the points around it by the number's logarithm.

    Below the first point it falls to 0 with the number; beyond the last it is the last one's.
    """
    first = points[0]
    if samples < first.amount:
        return first.share * max(samples, 0) / first.amount
    amounts = [log(point.amount) for point in points]
    return float(np.interp(log(samples), amounts, [point.share for point in points]))


def _kept_by_go(profile: Profile, go: TracedEdges | UnfitForFormat) -> tuple[int, int]:
    """Return how many samples have a call that Go's compiler can match, and how many there are.

    Raises UnfitForFormat if it refuses or ignores the merge, or can match none of its calls.
    """
    if isinstance(go, UnfitForFormat):
        raise go
    if not go.is_used:
        raise UnfitForFormat(NOT_USED)
    if not go.has_start_line.any():
        raise UnfitForFormat("no function that calls another one has a start line")
    column = weight_column(profile.header)
    return _counted(profile, column, int(profile.samples.values[go.has_start_line, column].sum()))


def _counted(profile: Profile, column: int, kept: int) -> tuple[int, int]:
    """Return a sum of some of a column's values as a number of samples, at least 1, and that of all."""
    each = _value_of_sample(profile.header, column)
    samples = max(round(kept / each), 1)
    return samples, max(round(int(profile.samples.values[:, column].sum()) / each), samples)


def _value_of_sample(header: Header, column: int) -> int:
    """Return what one sample adds to a column: 1 if it counts samples, else the period."""
    measured = header.sample_types[column]
    if has_branches(header):
        return _RECORDS
    if measured.type == b"samples":
        return 1
    if header.period > 0 and header.period_type == measured:
        return header.period
    return _USUAL_PERIOD if measured.unit == b"nanoseconds" else 1


def _is_of_known_program(profile: Profile) -> bool:
    """Return whether a sample is at an address of a program with a build id."""
    try:
        leaves = [*samples_of_leaves(profile)]
    except UnfitForFormat:
        return False
    mapping, mappings = profile.locations.mapping[leaves], profile.mappings
    has_build_id = np.array([bool(profile.strings[row]) for row in mappings.build_id.tolist()] + [False])
    return bool((has_build_id[mapping] & (profile.locations.address[leaves] != 0)).any())


def _has_old_rust_names(profile: Profile) -> bool:
    """Return whether a Rust program has names that LLVM doesn't find. Its library's, built before, may be."""
    functions = profile.functions
    names = [profile.strings[row] for row in {*functions.system_name.tolist(), *functions.name.tolist()}]
    return not all(map(is_found, names)) and not any(name.startswith(b"_R") for name in names)


def _hottest_call(profile: Profile, names: Sequence[bytes]) -> HotCall | None:
    """Return the call to look at; None if there is none."""
    lines, samples = profile.locations.lines, profile.samples
    weights = samples.values[:, weight_column(profile.header)]
    has_lines = lines.offsets[1:] > lines.offsets[:-1]
    functions = np.append(lines.function, -1)
    # Where calls are inlined, the first line is of the innermost function, and the last of the machine code.
    inner = np.where(has_lines, functions[lines.offsets[:-1]], -1)
    outer = np.where(has_lines, functions[lines.offsets[1:] - 1], -1)
    is_own = np.array([b"." in name and not name.startswith(_RUNTIME) for name in names] + [False], np.bool_)
    at, offsets = samples.locations, samples.location_offsets
    callee = _first(is_own[outer][at], offsets)
    there = (callee >= 0) & (callee + 1 < offsets[1:])
    called, calling = outer[at[callee[there]]], inner[at[callee[there] + 1]]
    name_of = np.append(profile.functions.name, 0).astype(np.int64)
    pairs = np.stack((name_of[calling], name_of[called]), axis=1)
    is_call = is_own[calling] & (pairs[:, 0] != pairs[:, 1])
    pairs, values, total = pairs[is_call], weights[there][is_call], int(weights.sum())
    if not len(pairs) or total <= 0:
        return None
    calls, of_call = np.unique(pairs, axis=0, return_inverse=True)
    sums = np.bincount(of_call.ravel(), values, len(calls))
    best = int(sums.argmax())
    caller, name = (_text(profile.strings[row]) for row in calls[best].tolist())
    return HotCall(caller, name, float(sums[best]) / total)


def _first(is_wanted: Bools, offsets: Ints) -> Ints:
    """Return the first wanted place in each row, rows being between offsets; -1 if it has none."""
    places = np.append(np.flatnonzero(is_wanted), len(is_wanted))
    first = places[np.searchsorted(places, offsets[:-1])]
    return np.where(first < offsets[1:], first, -1)


def _collection(points: Sequence[Point], samples: int, nanos: int, instances: int) -> Collection:
    """Return what to collect until the share is enough, or as good as it gets."""
    wanted = next((point.amount for point in points if point.share >= _ENOUGH), points[-1].amount)
    more = max(ceil(wanted) - samples, 1)
    minutes = ceil(more / samples * nanos / 60e9 / instances) if nanos > 0 and samples > 0 else None
    return Collection(more, minutes, instances)


def _outlook(
    name: str,
    samples: int,
    of: int,
    points: Sequence[Point],
    hottest: HotCall | None = None,
    *,
    nanos: int,
    instances: int,
) -> FormatGain:
    """Return the gain with a number of samples, `of` all of them, for a compiler of this name."""
    share = share_of_samples(points, samples)
    takes = f"{name} can use {samples:,} of {of:,} sample{'s' if of != 1 else ''}"
    usual = ""
    if hottest is not None and hottest.share < _STANDS_OUT:
        least, most = USUAL_PER_CENT
        usual = (
            f"; expect {least} to {most}% less CPU time: no call stands out, and the hottest that isn't"
            f" inlined yet, of {hottest.callee} by {hottest.caller}, has {hottest.share:.0%} of the time"
            " below it"
        )
    if share >= _ENOUGH:
        return FormatGain("enough", f"{takes}, and more would add little{usual}.", samples, share)
    more = _collection(points, samples, nanos, instances)
    reason = f"{takes}, too few: collect {more.samples:,} more that it can use"
    if more.minutes is not None:
        reason += (
            f", by profiling {more.instances:,} instance{'s' if more.instances > 1 else ''} for"
            f" {more.minutes:,} more minute{'s' if more.minutes > 1 else ''}"
        )
    return FormatGain("collect more", f"{reason}{usual}.", samples, share, more)


def _sentence(
    found: Mapping[Compiler, FormatGain], compiler: Compiler | None, *, is_go: bool, lost: float | None
) -> str:
    """Return what a reader needs to know, in one sentence."""
    go, llvm = (found[each].reason for each in ("go", "llvm"))
    if compiler is None:
        return (
            f"Go's compiler can't use it: {go}."
            if is_go
            else f"No compiler can use it (Go: {go}; LLVM: {llvm})."
        )
    said = found[compiler].reason.removesuffix(".")
    if is_go and compiler == "llvm":
        said += f"; Go's compiler can't use it: {go}"
    if lost:
        said += f"; {lost:.0%} of the weight is in functions that the program doesn't have any more"
    return f"{said}."


def _text(name: bytes) -> str:
    text = name.decode(errors="backslashreplace")
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
