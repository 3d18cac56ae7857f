"""Gain: what a build with a merge can be expected to gain, and whether more samples would add to it.

Nobody can tell from a profile alone how much faster a build will be. What is said here follows from what was
measured on other programs (docs/gains.md): `MEASURED` has the points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from pprof_merge.arrays import Bools, Ints
from pprof_merge.merging.headers import PGO_SAMPLE_TYPES
from pprof_merge.profile import Profile

Compiler = Literal["go", "llvm"]
Outlook = Literal["enough", "collect more", "little to gain"]


class Point(NamedTuple):
    """A measured point: with an `amount` of samples, or of changed functions, this `share` of the whole gain
    was left, from 0 to 1.
    """

    amount: float
    share: float


class Measured(NamedTuple):
    """Measurements with one compiler, from docs/gains.md.

    `ratios` are the smallest and the largest CPU time without ÷ with a profile, over all programs.
    `by_samples` are shares of the gain with all samples, and `by_changes` those of the gain without changes,
    each by rising amounts: the lowest of the programs' medians. A program's share is taken as no lower than
    with fewer samples or more changes, since draws differ by chance.
    """

    ratios: tuple[float, float]
    by_samples: tuple[Point, ...]
    by_changes: tuple[Point, ...]


# From the tables of docs/gains.md: "All programs", "How many samples are enough", "How long a profile lasts".
MEASURED: Mapping[Compiler, Measured] = MappingProxyType(
    {
        "go": Measured(
            ratios=(0.99, 2.26),
            by_samples=(
                Point(100, 0.98),
                Point(300, 0.99),
                Point(1000, 1.0),
                Point(3000, 1.0),
                Point(3403, 1.0),
            ),
            by_changes=(Point(0.1, 0.99), Point(0.25, 0.98), Point(0.5, 0.95), Point(1.0, 0.49)),
        ),
        "llvm": Measured(
            ratios=(1.03, 1.8),
            by_samples=(
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
            by_changes=(Point(0.1, 1.0), Point(0.25, 0.97), Point(0.5, 0.83), Point(1.0, 0.64)),
        ),
    }
)

# More samples are worth the wait as long as this share of the gain isn't reached.
_ENOUGH = 0.9
# The share of the time below the hottest call, under which programs gained 3 % at most: gofmt has 0.11 and
# gotype 0.07, and logsum has 0.81 and got 2.26 times as fast. Between them nothing was measured.
_HOT = 0.2
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
class Gain:
    """The expected gain of a build with a merge. `reason` says it in words, with its basis.

    `share` is how much of what all samples gain is gained with these `samples`. `lost` is the share of the
    weight in functions that the program doesn't have any more; None if its symbols weren't given. `collect`
    is None unless more samples are worth it.
    """

    compiler: Compiler
    verdict: Outlook
    reason: str
    samples: int
    share: float
    lost: float | None
    hottest_call: HotCall | None
    collect: Collection | None


def expected_gain(
    profile: Profile,
    instances: int,
    lost: float | None = None,
    measured: Mapping[Compiler, Measured] = MEASURED,
) -> Gain | None:
    """Return the expected gain of a build with a merge of profiles of `instances` instances.

    `lost` is the share of weight in functions that the program doesn't have. None if it isn't CPU time.
    """
    column = next(
        (row for row, each in enumerate(profile.header.sample_types) if each == PGO_SAMPLE_TYPES[0]), None
    )
    if column is None:
        return None
    weights = profile.samples.values[:, column]
    samples = int(weights.sum())
    names = [profile.strings[row] for row in profile.functions.name.tolist()]
    compiler: Compiler = "go" if _is_go(profile, names) else "llvm"
    known = measured[compiler]
    hottest = _hottest_call(profile, names, weights) if compiler == "go" else None
    share = share_of_samples(known.by_samples, samples)
    verdict: Outlook = "enough" if share >= _ENOUGH else "collect more"
    if hottest is not None and hottest.share < _HOT:
        verdict = "little to gain"
    collect = None
    if verdict == "collect more":
        collect = _collection(known.by_samples, samples, profile.header.duration_nanos, max(instances, 1))
    gain = Gain(compiler, verdict, "", samples, share, lost, hottest, collect)
    return replace(gain, reason=" ".join(_sentences(gain, known)))


def share_of_samples(points: Sequence[Point], samples: int) -> float:
    """Return the share with `samples` samples, between the points around it by the number's logarithm.

    Below the first point it falls to 0 with the number; beyond the last it is the last one's.
    """
    first = points[0]
    if samples < first.amount:
        return first.share * max(samples, 0) / first.amount
    amounts = [log(point.amount) for point in points]
    return float(np.interp(log(samples), amounts, [point.share for point in points]))


def share_after_changes(points: Sequence[Point], part: float) -> float:
    """Return the share after changes in a part of the functions, between the points."""
    amounts, shares = zip(Point(0.0, 1.0), *points, strict=True)
    return float(np.interp(part, amounts, shares))


def _is_go(profile: Profile, names: Sequence[bytes]) -> bool:
    starts = profile.functions.start_line.tolist()
    return any(start > 0 and name.startswith(_RUNTIME[0]) for name, start in zip(names, starts, strict=True))


def _hottest_call(profile: Profile, names: Sequence[bytes], weights: Ints) -> HotCall | None:
    """Return the call to look at; None if there is none."""
    lines, samples = profile.locations.lines, profile.samples
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


def _sentences(gain: Gain, known: Measured) -> list[str]:
    samples, share, hottest, collect = gain.samples, gain.share, gain.hottest_call, gain.collect
    low, high = known.ratios
    made = "Go" if gain.compiler == "go" else "LLVM"
    said = [f"Programs built with {made} became {low:g} to {high:g} times as fast in our measurements."]
    if hottest is not None and hottest.share < _HOT:
        said.append(
            f"Don't expect much here: the hottest call that isn't inlined yet, of {hottest.callee} by"
            f" {hottest.caller}, has {hottest.share:.0%} of the time below it. gofmt, with 11 %, gained"
            " nothing; gotype, with 7 %, got 1.03 times as fast; logsum, with 81 %, 2.26 times. Measure"
            " before you rely on it."
        )
    elif hottest is not None:
        said.append(
            f"{hottest.share:.0%} of the time is below one call that isn't inlined yet, of {hottest.callee}"
            f" by {hottest.caller}; logsum, with 81 %, got 2.26 times as fast."
        )
    said.append(f"With {samples:,} samples, programs had {share:.0%} of what they gain with all samples.")
    if collect is not None:
        how = (
            ""
            if collect.minutes is None
            else (
                f": profile {collect.instances:,} instance{'s' if collect.instances > 1 else ''} for"
                f" {collect.minutes:,} more minute{'s' if collect.minutes > 1 else ''}"
            )
        )
        said.append(f"Collect {collect.samples:,} more{how}.")
    if gain.lost:
        said.append(
            f"{gain.lost:.0%} of the weight is in functions that the program doesn't have: that is lost."
        )
    left = share_after_changes(known.by_changes, 0.25)
    said.append(f"After changes in a quarter of the functions, {left:.0%} of a gain was left.")
    return said


def _text(name: bytes) -> str:
    text = name.decode(errors="backslashreplace")
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
