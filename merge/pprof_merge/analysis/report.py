"""Report: whether a merge is fit to build with, and what is in it.

What it says of the compiler is what Go's compiler does: see `call_edges`. That no sample names a location
that isn't there, which lets some compilers panic, needs no check: such a profile isn't taken in.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from pprof_merge.analysis.call_edges import TracedEdges, call_edges, traced_edges
from pprof_merge.analysis.coverage import Coverage, coverage
from pprof_merge.analysis.outliers import outlier_scores
from pprof_merge.analysis.overlap import leaf_functions, leaf_shares, overlap_of_edges
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.errors import UnfitForFormat
from pprof_merge.merging.collection import Collection
from pprof_merge.merging.merge import Contribution
from pprof_merge.merging.origins import GivenLabels
from pprof_merge.profile import Header, Profile

# On real profiles, likeness to the rest was 0.7 and more within one program, from version to version too, and
# 0.45 at most between programs: docs/report.md.
LIKENESS_BOUND = 0.6
# With fewer calls than this in it, a profile's likeness is chance.
_FEWEST_CALLS = 50
# Instances and versions are texts of profiles: of each, so many are listed, and so many letters of one.
_MOST_LISTED = 10_000
_LONGEST_TEXT = 300
_ADVICE = "select fewer profiles"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Go's compiler does with it: it is `used`, `ignored`, or `refused`, which fails the build.

    `start_lines` is the share of weight in functions with a start line; calls from others match nothing.
    """

    verdict: str
    reason: str
    edges: int
    start_lines: float


@dataclass(frozen=True, slots=True)
class Moment:
    """When a profile began (RFC 3339), and how long that was ago."""

    time: str
    age_seconds: int


@dataclass(frozen=True, slots=True)
class Times:
    """When the profiles were taken: how many on each UTC day. Some may not tell."""

    days: dict[str, int]
    unknown: int
    oldest: Moment | None
    newest: Moment | None


@dataclass(frozen=True, slots=True)
class Outlier:
    """A profile that is unlike the rest: see `likeness`. `share` is its part in all weight."""

    profile: str
    likeness: float
    overlap: float
    expected: float
    share: float


@dataclass(frozen=True, slots=True)
class Outliers:
    """Those below the bound, the least alike first, of `compared` profiles; the others have too few calls."""

    bound: float
    compared: int
    median: float | None
    profiles: list[Outlier]


@dataclass(frozen=True, slots=True)
class Against:
    """How alike the merge and another profile are: see `overlap`."""

    overlap: float


@dataclass(frozen=True, slots=True)
class Report:
    """All of it. `totals` are by sample type; `instances` and `versions` say of how many profiles each is,
    10,000 of them at most.

    What needs a profile that the compiler takes, or wasn't asked for, is None.
    """

    go: Verdict
    profiles: int
    stacks: int
    totals: dict[str, int]
    duration_nanos: int
    instances: dict[str, int]
    versions: dict[str, int]
    times: Times
    outliers: Outliers | None
    coverage: Coverage | None
    against: Against | None

    def json(self, budget: Budget = UNBOUNDED) -> bytes:
        """As a JSON object, whose keys are the fields. Raises OutputTooLarge where it is over the budget."""
        content = json.dumps(asdict(self), ensure_ascii=False, indent=1).encode() + b"\n"
        budget.check(len(content), _ADVICE)
        return content


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What to compare with: a program's functions, another profile, and a bound on likeness."""

    symbols: frozenset[bytes] | None = None
    against: Profile | None = None
    bound: float = LIKENESS_BOUND


class ReportedProfile(NamedTuple):
    """One of the profiles in the merge: its number in the collection, its name, and what is told of it from
    outside.
    """

    number: int
    name: str
    told: GivenLabels = MappingProxyType({})


def report(
    collection: Collection,
    subjects: Sequence[ReportedProfile],
    now_nanos: int,
    asked: ReportOptions,
    budget: Budget = UNBOUNDED,
) -> Report:
    """On the merge of these profiles as of now.

    Raises UnfitForFormat where the other profile is one that the compiler would refuse, OutputTooLarge where
    calls and profiles are too many to be compared within the budget, and, as `merge` does,
    IncompatibleProfiles and ProfileError.
    """
    numbers = [subject.number for subject in subjects]
    profile, contributions = collection.merge_traced(numbers)
    origins = collection.origins(numbers, [subject.told for subject in subjects])
    against = None if asked.against is None else call_edges(asked.against, budget)
    verdict, traced = _verdict(profile, budget)
    outliers = covered = compared = None
    if traced is not None:
        outliers = _outliers(profile.header, traced, contributions, subjects, asked.bound, budget=budget)
        if asked.symbols is not None:
            covered = coverage(profile, traced.edges, asked.symbols)
        if against is not None:
            compared = Against(overlap_of_edges(traced.edges, against))
    return Report(
        go=verdict,
        profiles=len(subjects),
        stacks=len(profile.samples),
        totals={
            str(sample_type): int(profile.samples.values[:, column].sum())
            for column, sample_type in enumerate(profile.header.sample_types)
        },
        duration_nanos=profile.header.duration_nanos,
        instances=_counts(origin.instances for origin in origins),
        versions=_counts(origin.versions for origin in origins),
        times=_times([collection.header(number).time_nanos for number in numbers], now_nanos),
        outliers=outliers,
        coverage=covered,
        against=compared,
    )


def _verdict(profile: Profile, budget: Budget) -> tuple[Verdict, TracedEdges | None]:
    """What the compiler does, and the edges that it reads, None where it refuses."""
    try:
        traced = traced_edges(profile, budget)
    except UnfitForFormat as unfit:
        return Verdict("refused", str(unfit), 0, 0.0), None
    edges = traced.edges
    used = bool(edges.weight.sum())
    verdict = ("used", "") if used else ("ignored", "it has no calls, or their weights add up to 0")
    return Verdict(*verdict, len(edges), _with_start_line(profile)), traced


def _with_start_line(profile: Profile) -> float:
    """The share of weight whose code, the outermost function where calls are inlined, has a start line."""
    has_start_line = np.append(profile.functions.start_line, 0)[leaf_functions(profile)] != 0
    return float(leaf_shares(profile)[has_start_line].sum())


def _counts(values: Iterable[frozenset[bytes]]) -> dict[str, int]:
    """Of how many profiles each value is, the most frequent first, and no more than are listed."""
    counts = Counter(_text(value) for each in values for value in each)
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:_MOST_LISTED])


def _text(value: bytes) -> str:
    """As text that isn't long."""
    text = value[: 4 * _LONGEST_TEXT].decode(errors="backslashreplace")
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def _times(times: Sequence[int], now_nanos: int) -> Times:
    known = sorted(time for time in times if time)
    days = Counter(_moment(time, now_nanos).time[:10] for time in known)
    return Times(
        days=dict(days),
        unknown=len(times) - len(known),
        oldest=_moment(known[0], now_nanos) if known else None,
        newest=_moment(known[-1], now_nanos) if known else None,
    )


def _moment(time_nanos: int, now_nanos: int) -> Moment:
    seconds = time_nanos // 1_000_000_000
    time = (_EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00") + "Z"
    return Moment(time, now_nanos // 1_000_000_000 - seconds)


def _outliers(
    header: Header,
    traced: TracedEdges,
    contributions: Sequence[Contribution],
    subjects: Sequence[ReportedProfile],
    bound: float,
    *,
    budget: Budget,
) -> Outliers:
    found = outlier_scores(header, traced, contributions, budget)
    comparable = np.flatnonzero((found.calls >= _FEWEST_CALLS) & (found.expected > 0))
    every = [
        Outlier(
            profile=subjects[row].name,
            likeness=float(found.overlap[row] / found.expected[row]),
            overlap=float(found.overlap[row]),
            expected=float(found.expected[row]),
            share=float(found.calls[row] / found.calls.sum()),
        )
        for row in comparable.tolist()
    ]
    unlike = [outlier for outlier in every if outlier.likeness < bound]
    return Outliers(
        bound=bound,
        compared=len(every),
        median=median(outlier.likeness for outlier in every) if every else None,
        profiles=sorted(unlike, key=lambda outlier: (outlier.likeness, outlier.profile)),
    )
