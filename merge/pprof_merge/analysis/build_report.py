"""Report: whether Go's compiler can build with a merge, and what is in it.

`call_edges` has the compiler's rules. Some compilers panic on a sample that names a missing location. The
report doesn't check this, since such a profile is refused when it is decoded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from pprof_merge.analysis.call_edges import TracedEdges, call_edges, traced_edges
from pprof_merge.analysis.compiler import weight_column
from pprof_merge.analysis.coverage import Coverage, coverage
from pprof_merge.analysis.edge_overlap import (
    MovedFunction,
    leaf_functions,
    leaf_shares,
    moved_functions,
    overlap_of_edges,
)
from pprof_merge.analysis.gain import NOT_USED, Gain, expected_gain, kept_by_llvm
from pprof_merge.analysis.outliers import outlier_scores
from pprof_merge.analysis.rules import Rules, apply_rules
from pprof_merge.arrays import Floats
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.errors import UnfitForFormat
from pprof_merge.merging.collection import Collection
from pprof_merge.merging.incremental import Contribution
from pprof_merge.merging.origins import GivenLabels, Origin
from pprof_merge.profile import Header, Profile

# Measured on real profiles (docs/report.md): likeness to the rest was 0.7 or more within one program, across
# versions too, and 0.45 at most between programs.
LIKENESS_BOUND = 0.6
# The likeness of a profile with fewer calls is chance.
_MIN_CALLS = 50
# Instances and versions come from profiles: at most this many of each are listed, each cut to this length.
_MAX_LISTED = 10_000
_MAX_TEXT = 300
# A clock that is ahead by less is right, and so many others are listed.
_CLOCK_NANOS, _MOST_CLOCKS = 60 * 10**9, 100
# The label of profiles whose functions got start lines from elsewhere; what each of its values stands for.
_START_LINES = "start_lines"
_SOURCES = {"joined": "go_profiles", "symbols": "symbols"}
_ADVICE = "select fewer profiles"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of Go's compiler on the merge: `used`, `ignored`, or `refused`, which fails the build.

    `start_lines` is the share of weight in functions with a start line. The compiler can't match a call from
    a function without one.
    """

    verdict: str
    reason: str
    edges: int
    start_lines: float


@dataclass(frozen=True, slots=True)
class Moment:
    """The time when a profile began (RFC 3339), and its age."""

    time: str
    age_seconds: int


@dataclass(frozen=True, slots=True)
class Times:
    """When the profiles were taken: the number for each UTC day, and the number of those without a time."""

    days: dict[str, int]
    unknown: int
    oldest: Moment | None
    newest: Moment | None


@dataclass(frozen=True, slots=True)
class ClockAhead:
    """An instance whose clock is ahead, as the times of some of its profiles tell, and by how much at most.

    The instance is empty for profiles without one.
    """

    instance: str
    profiles: int
    ahead_seconds: int


@dataclass(frozen=True, slots=True)
class Outlier:
    """A profile that is unlike the rest (see `outliers`). `share` is its share of the merge's weight."""

    profile: str
    likeness: float
    overlap: float
    expected: float
    share: float


@dataclass(frozen=True, slots=True)
class Outliers:
    """The profiles whose likeness is below the bound, the least alike first.

    `compared` counts the profiles that were compared; the others have too few calls. `median` is the median
    likeness of the compared ones.
    """

    bound: float
    compared: int
    median: float | None
    profiles: list[Outlier]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How alike the merge and another profile are (see `overlap`), and whose shares differ most."""

    overlap: float
    moved: tuple[MovedFunction, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """The profiles of an eBPF profiler whose functions got start lines that are known of the same build.

    They are those with the label `start_lines`: `profiles` is their number, `share` their share of the
    weight, and `start_lines` the share of their weight that is in functions with a start line. `resolved` is
    the share of their callers, by weight, whose line is known by the address; the others have none, and those
    without a file, as in the kernel, don't count. `sources` has the share of the weight that is of profiles
    with `start_lines=joined`, as `go_profiles`, and with `start_lines=symbols`, as `symbols`.
    """

    profiles: int
    share: float
    start_lines: float
    resolved: float
    sources: dict[str, float]


@dataclass(frozen=True, slots=True)
class KeptApart:
    """The number of profiles that a collector kept out of the merge, the type that they have, and why."""

    profiles: int
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The report on a merge; its JSON has these fields.

    `totals` has the sum of each sample type. `instances` and `versions` have the number of profiles of each,
    10,000 entries at most, and `clocks` the 100 instances whose clocks are furthest ahead. `outliers`,
    `coverage` and `against` are None if the compiler refuses the merge; `coverage` and `against` are also
    None if they weren't asked for. `kept_apart` is None if nothing was, and `joined` if no profile was.
    """

    go: Verdict
    profiles: int
    stacks: int
    totals: dict[str, int]
    duration_nanos: int
    instances: dict[str, int]
    versions: dict[str, int]
    times: Times
    clocks: list[ClockAhead]
    outliers: Outliers | None
    coverage: Coverage | None
    against: Comparison | None
    kept_apart: KeptApart | None
    joined: Joined | None
    gain: Gain

    def json(self, budget: Budget = UNBOUNDED) -> bytes:
        """Return the report as a JSON object. Raises OutputTooLarge if it is larger than the budget."""
        content = json.dumps(asdict(self), ensure_ascii=False, indent=1).encode() + b"\n"
        budget.check(len(content), _ADVICE)
        return content


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Comparisons of a report: a program's functions, another profile, and a bound on likeness.

    `kept_apart` is handed on: it says what isn't in the merge. The gain is that of builds with the merge by
    the `rules`; `kept_by_llvm` returns the sum of the values that LLVM then gets (see `expected_gain`).
    `weighed` is the same merge with weights, if builds get that: its shares are compared.
    """

    symbols: frozenset[bytes] | None = None
    against: Profile | None = None
    bound: float = LIKENESS_BOUND
    kept_apart: KeptApart | None = None
    rules: Rules = field(default_factory=Rules)
    kept_by_llvm: Callable[[Profile, Budget], int] = kept_by_llvm
    weighed: Profile | None = None


class ReportedProfile(NamedTuple):
    """A profile in the merge: its number in the collection, its name, and the labels given with it.

    `stored_nanos` is the time that it is stored with, in ns since 1970, if it isn't stored with its own. A
    collector does so if its own is too far after that at which it came.
    """

    number: int
    name: str
    told: GivenLabels = MappingProxyType({})
    stored_nanos: int | None = None


def report(
    collection: Collection,
    reported: Sequence[ReportedProfile],
    now_nanos: int,
    options: ReportOptions,
    budget: Budget = UNBOUNDED,
) -> Report:
    """Return the report on the merge of some profiles of a collection; `now_nanos` is for ages (Unix, ns).

    Raises UnfitForFormat if the compiler would refuse the profile to compare with, OutputTooLarge if there
    are too many calls and profiles to be compared within the budget, and, as `merge` does,
    IncompatibleProfiles and ProfileError.
    """
    numbers = [one.number for one in reported]
    profile, contributions = collection.merge_traced(numbers)
    origins = collection.origins(numbers, [one.told for one in reported])
    against = None if options.against is None else call_edges(options.against, budget)
    verdict, read = _verdict(profile, budget)
    traced = None if isinstance(read, UnfitForFormat) else read
    outliers = covered = compared = joined = None
    if traced is not None:
        joined = _joined(profile, contributions, reported)
        outliers = _outliers(profile.header, traced, contributions, reported, options.bound, budget=budget)
        edges = traced.edges if options.weighed is None else call_edges(options.weighed, budget)
        if options.symbols is not None:
            covered = coverage(options.weighed or profile, edges, options.symbols)
        if against is not None:
            compared = Comparison(overlap_of_edges(edges, against), moved_functions(edges, against))
    instances = _counts(origin.instances for origin in origins)
    said = [collection.header(number).time_nanos for number in numbers]
    stored = [
        time if one.stored_nanos is None else one.stored_nanos
        for one, time in zip(reported, said, strict=True)
    ]
    built = apply_rules(profile, options.rules) if options.rules else profile
    gain = expected_gain(
        built,
        read if built is profile else _verdict(built, budget)[1],
        len(instances),
        lost=None if covered is None else covered.functions.missing,
        kept=options.kept_by_llvm,
        budget=budget,
    )
    return Report(
        go=verdict,
        profiles=len(reported),
        stacks=len(profile.samples),
        totals={
            str(sample_type): int(profile.samples.values[:, column].sum())
            for column, sample_type in enumerate(profile.header.sample_types)
        },
        duration_nanos=profile.header.duration_nanos,
        instances=instances,
        versions=_counts(origin.versions for origin in origins),
        times=_times([*map(min, said, stored)], now_nanos),
        clocks=_clocks(said, stored, now_nanos, origins),
        outliers=outliers,
        coverage=covered,
        against=compared,
        kept_apart=options.kept_apart,
        joined=joined,
        gain=gain,
    )


def _verdict(profile: Profile, budget: Budget) -> tuple[Verdict, TracedEdges | UnfitForFormat]:
    """Return what the compiler does with a profile, and the edges that it reads, or why it refuses it."""
    try:
        traced = traced_edges(profile, budget)
    except UnfitForFormat as unfit:
        return Verdict("refused", str(unfit), 0, 0.0), unfit
    verdict = ("used", "") if traced.is_used else ("ignored", NOT_USED)
    return Verdict(*verdict, len(traced.edges), _with_start_line(profile)), traced


def _with_start_line(profile: Profile) -> float:
    """Return the share of weight in functions with a start line.

    A sample counts for the function whose code was running: the outermost one where calls are inlined.
    """
    has_start_line = np.append(profile.functions.start_line, 0)[leaf_functions(profile)] != 0
    return float(leaf_shares(profile)[has_start_line].sum())


def _joined(
    profile: Profile, contributions: Sequence[Contribution], reported: Sequence[ReportedProfile]
) -> Joined | None:
    """Return how much of a merge is of profiles whose start lines were joined; None if there are none."""
    column, weights = weight_column(profile.header), np.zeros(len(profile.samples))
    count, by_source = 0, dict.fromkeys(_SOURCES.values(), 0.0)
    for contribution, each in zip(contributions, reported, strict=True):
        if source := _SOURCES.get(each.told.get(_START_LINES, "")):
            count += 1
            there = contribution.samples >= 0
            values = contribution.values[there, column]
            np.add.at(weights, contribution.samples[there], values)
            by_source[source] += float(values.sum())
    if not count:
        return None
    total, of_joined = float(profile.samples.values[:, column].sum()), float(weights.sum())
    has_start_line = np.append(profile.functions.start_line, 0)[leaf_functions(profile)] != 0
    known = float(weights[has_start_line].sum())
    return Joined(
        count,
        of_joined / max(total, 1.0),
        known / max(of_joined, 1.0),
        _resolved(profile, weights),
        {source: weight / max(total, 1.0) for source, weight in by_source.items()},
    )


def _resolved(profile: Profile, weights: Floats) -> float:
    """Return which share of the callers with a file has a line, by the weights (n_samples) of the samples."""
    samples, lines, functions = profile.samples, profile.locations.lines, profile.functions
    has_file = np.append([bool(profile.strings[row]) for row in functions.filename.tolist()], False)
    has_lines = np.diff(lines.offsets) > 0
    first = np.append(lines.function, -1)[np.where(has_lines, lines.offsets[:-1], -1)]
    counts = has_file[first]
    is_known = counts & (np.append(lines.line, 0)[np.where(has_lines, lines.offsets[:-1], -1)] > 0)
    depths = np.diff(samples.location_offsets)
    is_caller = np.ones(len(samples.locations), np.bool_)
    is_caller[samples.location_offsets[:-1][depths > 0]] = False
    callers, of_callers = samples.locations[is_caller], np.repeat(weights, depths)[is_caller]
    return float(of_callers[is_known[callers]].sum()) / max(float(of_callers[counts[callers]].sum()), 1.0)


def _counts(values: Iterable[frozenset[bytes]]) -> dict[str, int]:
    """Return the number of profiles with each value, the most frequent first, `_MAX_LISTED` at most."""
    counts = Counter(_text(value) for each in values for value in each)
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:_MAX_LISTED])


def _text(value: bytes) -> str:
    """Return the value as text of at most `_MAX_TEXT` characters."""
    text = value[: 4 * _MAX_TEXT].decode(errors="backslashreplace")
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _times(times: Sequence[int], now_nanos: int) -> Times:
    known = sorted(time for time in times if time)
    days = Counter(_moment(time, now_nanos).time[:10] for time in known)
    return Times(
        days=dict(days),
        unknown=len(times) - len(known),
        oldest=_moment(known[0], now_nanos) if known else None,
        newest=_moment(known[-1], now_nanos) if known else None,
    )


def _clocks(
    said: Sequence[int], stored: Sequence[int], now_nanos: int, origins: Sequence[Origin]
) -> list[ClockAhead]:
    """Return the instances with profiles that say a later time than they are stored with, or than now."""
    found: dict[str, list[int]] = {}
    for at, kept, origin in zip(said, stored, origins, strict=True):
        ahead = at - min(kept, now_nanos) if at else 0
        if at > kept or ahead >= _CLOCK_NANOS:
            for instance in origin.instances or (b"",):
                found.setdefault(_text(instance), []).append(ahead // 1_000_000_000)
    clocks = [ClockAhead(instance, len(seconds), max(seconds)) for instance, seconds in found.items()]
    return sorted(clocks, key=lambda clock: (-clock.ahead_seconds, clock.instance))[:_MOST_CLOCKS]


def _moment(time_nanos: int, now_nanos: int) -> Moment:
    seconds = time_nanos // 1_000_000_000
    time = (_EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00") + "Z"
    return Moment(time, now_nanos // 1_000_000_000 - seconds)


def _outliers(
    header: Header,
    traced: TracedEdges,
    contributions: Sequence[Contribution],
    reported: Sequence[ReportedProfile],
    bound: float,
    *,
    budget: Budget,
) -> Outliers:
    scores = outlier_scores(header, traced, contributions, budget)
    comparable = np.flatnonzero((scores.calls >= _MIN_CALLS) & (scores.expected > 0))
    compared = [
        Outlier(
            profile=reported[row].name,
            likeness=float(scores.overlap[row] / scores.expected[row]),
            overlap=float(scores.overlap[row]),
            expected=float(scores.expected[row]),
            share=float(scores.calls[row] / scores.calls.sum()),
        )
        for row in comparable.tolist()
    ]
    unlike = [outlier for outlier in compared if outlier.likeness < bound]
    return Outliers(
        bound=bound,
        compared=len(compared),
        median=median(outlier.likeness for outlier in compared) if compared else None,
        profiles=sorted(unlike, key=lambda outlier: (outlier.likeness, outlier.profile)),
    )
