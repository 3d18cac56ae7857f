"""The JSON models of the answers to queries."""

from __future__ import annotations

from typing import Literal, Self

from pprof_merge import ValueType
from pydantic import BaseModel, ConfigDict, Field

from pgo_collector.engine.view_inputs import Basis
from pgo_collector.model.times import format_time

_MIXED = (
    " Several processes seem to have the same labels, which makes this wrong: give each a label of its own."
)
_WHOLE = "The value of all samples, also of those that `focus`, `ignore` and `hide` left out."


class _Answer(BaseModel):
    # Each is built when it is first used, which most starts leave to later.
    model_config = ConfigDict(frozen=True, defer_build=True)


class SampleType(_Answer):
    """The type and unit of values."""

    type: str = Field(examples=["cpu"])
    unit: str = Field(examples=["nanoseconds"])

    @classmethod
    def of(cls, value_type: ValueType) -> Self:
        """Return a sample type as text, with bytes that aren't UTF-8 escaped."""
        type_, unit = (text.decode(errors="backslashreplace") for text in value_type)
        return cls(type=type_, unit=unit)


class ValuesBasis(_Answer):
    """How values were brought together, which depends on what they measure."""

    kind: Literal["amount", "state", "cumulative"] = Field(
        description=(
            "An amount is the sum. A state is the mean over time of each instance, summed over instances."
            " What is cumulative is the sum of the differences of each instance's neighbouring snapshots."
        )
    )
    snapshots: int = Field(description="The number of snapshots; 0 for an amount.")
    instances: int = Field(
        description="The number of instances, which are the sets of labels; 0 for an amount."
    )
    restarts: int = Field(
        description="How often a cumulative count began again; all that it has reached since then counts."
    )
    begin: str | None = Field(description="When the first snapshot was taken; null for an amount.")
    end: str | None = Field(description="When the last snapshot was taken; null for an amount.")
    since_start: bool = Field(
        description="Whether there is one snapshot of each instance, so that values count from its start on."
    )
    before: int = Field(
        description="What cumulative counts had reached in the first snapshot of each instance; else 0."
    )
    mixed: bool = Field(
        description=(
            "Whether so many restarts are seen that several processes seem to have the same labels: what they"
            " hold is averaged then, and what they count is too much."
        )
    )
    text: str = Field(description="The same in words; empty for an amount.")

    @classmethod
    def of(cls, basis: Basis, sample_type: ValueType) -> Self:
        """Return the basis of values of a sample type, with times as text."""
        is_amount = basis.kind == "amount"
        return cls(
            kind=basis.kind,
            snapshots=basis.snapshots,
            instances=basis.instances,
            restarts=basis.restarts,
            begin=None if is_amount else format_time(basis.begin),
            end=None if is_amount else format_time(basis.end),
            since_start=basis.is_since_start,
            before=0 if basis.is_since_start else basis.before,
            mixed=basis.is_mixed,
            text=_words(basis, sample_type),
        )


def _words(basis: Basis, sample_type: ValueType) -> str:
    if basis.kind == "amount":
        return ""
    hint = _MIXED if basis.is_mixed else ""
    begin, end = (format_time(nanos)[:16].replace("T", " ") for nanos in (basis.begin, basis.end))
    of = _counted(basis.instances, "set", " of labels")
    snapshots = _counted(basis.snapshots, "snapshot")
    if basis.kind == "state":
        return (
            f"Mean over {snapshots} from {begin} to {end} UTC: the mean over time for each set of labels,"
            f" summed over {of}.{hint}"
        )
    counted = "Allocated" if sample_type.type.startswith(b"alloc") else "Counted"
    if basis.is_since_start:
        return f"{counted} since the start of the program: there is one snapshot for each of {of}."
    restarts = f" and {_counted(basis.restarts, 'restart')}" if basis.restarts else ""
    return f"{counted} between {begin} and {end} UTC, summed over {of}, by {snapshots}{restarts}.{hint}"


def _counted(number: int, what: str, more: str = "") -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}{more}"


class ServiceType(_Answer):
    """The stored profiles of one type of a service."""

    type: str = Field(examples=["cpu"])
    profiles: int = Field(description="The number of stored profiles. A combined profile counts once.")
    combined: int = Field(description="The number of combined profiles among them.")
    oldest: str = Field(description="When the oldest profile was taken: RFC 3339, in UTC.")
    newest: str = Field(
        description="When the newest profile was taken, whether stored singly or in a combined one."
    )
    bytes: int = Field(description="Their size on disk, in bytes.")


class Service(_Answer):
    """The stored profiles of a service."""

    service: str = Field(examples=["checkout"])
    types: list[ServiceType]
    labels: dict[str, int] = Field(
        description="The number of values of each label key, for at most 100 keys."
    )


class Services(_Answer):
    """A page of services, sorted by name."""

    services: list[Service]
    next: str | None = Field(description="The `cursor` of the next page; null on the last page.")


class Trace(_Answer):
    """A traced request."""

    trace: str = Field(description="The id of its trace, 32 hex digits.")
    name: str = Field(description="Its method and route.", examples=["POST /v1/submit"])
    service: str = Field(description="The service that it was about; empty for none.")
    time: str = Field(description="When it began: RFC 3339 with nanoseconds, in UTC.")
    duration_nanos: int = Field(description="How long it took, in ns.")
    status: int = Field(description="The status of its answer; 0 for work of the server's own.")
    error: bool = Field(description="Whether the status is 400 or above, or a step failed.")
    steps: int = Field(description="The number of its steps.")


class Traces(_Answer):
    """A list of traced requests."""

    traces: list[Trace]


class StoredProfile(_Answer):
    """A stored profile."""

    id: str = Field(description="The profile's name, as in PGO-Left-Out and in the log.")
    profile_id: str = Field(description="The value of `profile_id` for this profile.")
    service: str
    time: str = Field(description="When the profile was taken: RFC 3339 with nanoseconds, in UTC.")
    end_time: str | None = Field(
        description="For a combined profile, when the last profile in it was taken; else null."
    )
    duration_seconds: float = Field(
        description="The duration that the profile states; for a combined profile, the sum."
    )
    labels: dict[str, str]
    dropped_labels: list[str] = Field(
        description="The label keys that a roll-up dropped from the profiles in this one."
    )
    bytes: int = Field(description="The size of its file, in bytes.")
    samples: int = Field(description="The number of distinct samples in it.")
    combined: bool


class StoredProfiles(_Answer):
    """A page of stored profiles, the latest first."""

    profiles: list[StoredProfile]
    next: str | None = Field(description="The `cursor` of the next page; null on the last page.")


class _Named(_Answer):
    name: str


class _OfService(_Answer):
    service: str


class Values(_Answer):
    """Values and their shares of a total, from 0 to 1."""

    flat: int = Field(description="The sum over samples in which it is the leaf.")
    cum: int = Field(description="The sum over all samples that it is in, each counted once.")
    flat_share: float
    cum_share: float


class ServiceValues(Values, _OfService):
    """The values of a row in one service; the shares are of the service's own total."""


class TopRow(Values, _Named):
    """A function, package or file."""

    services: list[ServiceValues] = Field(description="The services with the largest values, at most 10.")


class ServiceTotal(_Answer):
    """The total of one service, and its share of the total of all."""

    service: str
    profiles: int
    total: int
    share: float


class _Measured(_Answer):
    sample_type: SampleType
    sample_types: list[SampleType] = Field(
        description="All that the profiles measure; `sample_type=` takes one of them by its type."
    )


class _FromProfiles(_Answer):
    others: dict[str, str] = Field(
        description=(
            "The services left out because they measure something else than most do, and what they measure."
        )
    )
    profiles: int = Field(description="The number of stored profiles that the answer is made from.")
    left_out: int = Field(description="The number of profiles left out; PGO-Left-Out names them.")
    coarse: int = Field(description="The number of combined profiles that contain more than was asked for.")
    coarse_labels: list[str] = Field(
        description=(
            "The selected labels that roll-ups dropped from coarse profiles; empty if only their time"
            " is wider."
        )
    )


class _OfProfiles(_FromProfiles, _Measured):
    basis: ValuesBasis


class Top(_OfProfiles):
    """The functions, packages, files or lines with the largest values."""

    by: Literal["function", "package", "file", "line"]
    sort: Literal["flat", "cum"]
    total: int = Field(description="The value of all samples; shares are relative to it.")
    whole: int = Field(description=_WHOLE)
    services: list[ServiceTotal] = Field(description="The services, largest total first.")
    names: int = Field(description="The number of rows there would be without `n`.")
    rows: list[TopRow]


class FunctionCall(_Named):
    """A caller or a callee of the function."""

    value: int = Field(description="The sum over samples with this call, each counted once.")
    share: float = Field(description="Its share of the total, from 0 to 1.")
    inlined: bool = Field(description="Whether the call is inlined wherever it is.")


class Inlined(_Named):
    """A function that is inlined in a line."""

    value: int = Field(description="The sum over samples in which it is inlined there.")
    share: float


class FunctionLine(Values):
    """A line of the function."""

    file: str = Field(description="The path of the source file; empty if it isn't known.")
    line: int = Field(description="The number of the line; 0 if it isn't known.")
    source: str | None = Field(description="The line's URL, by `PGOF_SOURCE_LINKS`; null if no rule fits.")
    inlined: list[Inlined] = Field(
        description="The functions that are inlined in the line, the largest values first, at most 10."
    )


class Function(_OfProfiles, Values):
    """The weight of one function, its callers and callees, and its lines."""

    name: str
    total: int = Field(description="The value of all samples; shares are relative to it.")
    whole: int = Field(description=_WHOLE)
    callers: list[FunctionCall] = Field(description="Its callers but itself, the largest values first.")
    callees: list[FunctionCall] = Field(description="Its callees but itself, the largest values first.")
    lines: list[FunctionLine] = Field(description="Its lines, the largest cumulative values first.")
    n_callers: int = Field(description="The number of callers there would be without `n`.")
    n_callees: int = Field(description="The number of callees there would be without `n`.")
    n_lines: int = Field(description="The number of lines there would be without `n`.")


class FlameCall(_Named):
    """A call of a flame graph: one way from the whole to a function, package, file or line."""

    parent: int = Field(
        description="The index of its caller in `calls`; -1 for the first, which is the whole."
    )
    key: str = Field(description="The value of `root` for what is below it.")
    flat: int = Field(description="The sum over samples that end here.")
    cum: int = Field(description="The sum over samples that pass here.")
    base_flat: int | None = Field(description="The same in the base; null without one.")
    base_cum: int | None
    is_match: bool = Field(description="Whether its name contains `search`.")


class FlameMatches(_Answer):
    """The stacks below the root with a name that contains a text, also in calls too small to be listed."""

    names: int = Field(description="The number of such names.")
    value: int = Field(description="The sum over these stacks.")
    share: float = Field(
        description="Its share of the whole graph, from 0 to 1; with a base, the mean of both."
    )
    base_value: int | None = Field(description="The sum in the base; null without one.")


class FlameGraphAnswer(_OfProfiles):
    """The largest calls of a flame graph."""

    by: Literal["function", "package", "file", "line"]
    total: int = Field(description="The value of all samples in the graph.")
    whole: int = Field(description=_WHOLE)
    unnamed: int = Field(description="The value of those that end in an address without a function.")
    base_total: int | None = Field(description="The value of all samples of the base; null without one.")
    root: int = Field(
        description="The index of the call that `root` asks for; those before it are its callers."
    )
    found: FlameMatches | None = Field(description="What `search` finds below `root`; null without it.")
    calls: list[FlameCall] = Field(description="The calls, each after its caller.")


class UnnamedProgram(Values):
    """A program or library with addresses that have no function."""

    build_id: str = Field(description="Its build id, by which its symbols are known; empty if it has none.")
    file: str = Field(description="Its path, as profiles have it; empty if they don't.")
    addresses: int = Field(description="The number of distinct addresses without a function.")
    stored: bool = Field(
        description="Whether the collector has a program of this build, which doesn't know these addresses."
    )


class Unnamed(_OfProfiles):
    """The programs of a service whose functions have no names."""

    total: int = Field(description="The value of all samples; shares are relative to it.")
    unnamed: int = Field(description="The value of the samples that end in an address without a function.")
    unnamed_share: float = Field(description="Its share of the total, from 0 to 1.")
    programs: list[UnnamedProgram] = Field(description="The programs, the largest flat values first.")


class _Step(_Answer):
    time: str = Field(description="When the step begins: RFC 3339, in UTC.")
    total: int = Field(description="The value of all samples of the step; shares are relative to it.")


class SeriesPoint(Values, _Step):
    """One step of time."""


class TimeSeries(_OfProfiles):
    """The values of a function or package over time."""

    by: Literal["function", "package"]
    name: str
    step: Literal["minute", "hour", "day"]
    points: list[SeriesPoint]


class SharesInterval(_Answer):
    """The differences of two shares that the samples agree with: Newcombe's hybrid score interval."""

    low: float
    high: float
    noise: bool = Field(description="Whether it has 0 in it: the shares may well be the same.")


class DiffRow(_Answer):
    """A function, package or file in both selections."""

    name: str
    now: Values
    base: Values
    flat_difference: float = Field(description="The flat share now minus the flat share in the base.")
    cum_difference: float
    flat_interval: SharesInterval | None = Field(
        description="The interval of `flat_difference`; null if a number of samples isn't known or is 0."
    )
    cum_interval: SharesInterval | None


class DiffSide(_Answer):
    """One of the two selections."""

    total: int
    whole: int = Field(description=_WHOLE)
    profiles: int
    samples: int | None = Field(
        description=(
            "The number of samples that profilers took: the sum of `samples/count`, or the total over the"
            " period where both have one unit; null for what isn't sampled."
        )
    )
    left_out: int
    coarse: int
    coarse_labels: list[str]
    basis: ValuesBasis


class Diff(_Measured):
    """The functions, packages or files whose shares differ from the base, the largest differences first."""

    by: Literal["function", "package", "file", "line"]
    sort: Literal["flat", "cum"]
    now: DiffSide
    base: DiffSide
    confidence: float = Field(description="The confidence of the intervals, from 0 to 1.")
    names: int = Field(description="The number of rows there would be without `n`.")
    rows: list[DiffRow]


class FleetChange(_Answer):
    """The function of a service whose flat share has changed most since last week, beyond the noise."""

    name: str
    now_share: float
    base_share: float
    difference: float
    interval: SharesInterval | None = Field(description="Null if it isn't known how much was sampled.")


class FleetRelease(_Answer):
    """The current release of a service, which is older than releases may get."""

    number: int
    time: str


class FleetService(_OfService):
    """Two weeks of a service: seven days as the base, and seven days up to today."""

    profiles: int = Field(description="The number of its stored profiles of the two weeks.")
    every: int = Field(description="A value of k says that every k-th of them was read and counts k times.")
    newest: str = Field(description="When the newest profile was taken.")
    days: list[int] = Field(description="The total of each day.")
    total: int = Field(description="The total of this week.")
    base_total: int = Field(description="The total of the week before.")
    change: FleetChange | None = Field(description="Null if nothing has changed beyond the noise.")
    stopped: bool = Field(
        description="Whether five of its usual intervals have passed without a profile, and an hour."
    )
    release_due: FleetRelease | None = Field(
        description="Its release, if that is older than `PGOF_RELEASE_DAYS` and profiles have come since."
    )


class FleetValue(_OfService):
    """The flat value of a function or package in one service."""

    flat: int


class FleetRow(_Named):
    """A function or package in all services, this week; each service gives its 100 largest."""

    flat: int
    flat_share: float
    services: list[FleetValue] = Field(description="The services with the largest values, at most 10.")


class FleetCounts(_Answer):
    """The number of services that an overview is of, and how many of them have news."""

    services: int
    changed: int = Field(description="How many have a `change`.")
    stopped: int = Field(description="How many have stopped.")
    release_due: int = Field(description="How many have a `release_due`.")


class FleetOverview(_Answer):
    """Two weeks of the fleet: the services that measure what most do, of the 100 that sent last."""

    sample_type: SampleType | None = Field(description="Null if no service has a profile of the two weeks.")
    basis: ValuesBasis | None
    others: dict[str, str] = Field(description="The services that measure something else.")
    days: list[str] = Field(description="The UTC days of the two weeks, today last.")
    left_out: int = Field(description="The number of profiles left out.")
    too_large: list[str] = Field(
        description="The services that nothing is said of, since their profiles take too much memory."
    )
    unseen: int = Field(description="The number of services beyond the 100.")
    counts: FleetCounts = Field(description="The numbers of all these services, whatever `search` is.")
    services: list[FleetService] = Field(
        description="The services whose names contain `search`, the largest total of this week first."
    )
    functions: list[FleetRow]
    packages: list[FleetRow]


class _Bucket(_Answer):
    from_ns: int = Field(description="The shortest latency in the bucket: 0 or a power of two.")
    to_ns: int = Field(description="The end of the bucket, which isn't in it.")


class HeatCell(_Bucket):
    """The events in one bucket, in one step of time."""

    count: int = Field(description="The number of events.")
    total_ns: int = Field(description="The sum of their delays.")


class HistogramBucket(HeatCell):
    """The events in one bucket."""

    share: float = Field(description="Their share of all events with a latency, from 0 to 1.")


class BucketDifference(_Bucket):
    """How the share of a bucket differs from the base."""

    difference: float = Field(description="The share of the events now minus the share in the base.")


class LatencyStats(_Answer):
    """Figures about the events that have a latency; null without any."""

    count: int = Field(description="The number of events.")
    total_ns: int = Field(description="The sum of their delays.")
    average_ns: float | None = Field(description="The average delay. It is exact.")
    min_ns: int | None = Field(description="The lower bound of the first bucket with an event.")
    max_ns: int | None = Field(description="The upper bound of the last bucket with an event.")
    p50_ns: float | None = Field(description="The median, off by less than a factor of two.")
    p90_ns: float | None = Field(description="The 90th percentile, as close.")
    p99_ns: float | None = Field(description="The 99th percentile, as close.")
    p999_ns: float | None = Field(description="The 99.9th percentile, as close.")


class HistogramSide(_FromProfiles):
    """The histogram of one selection."""

    unlabelled: int = Field(description="The number of events without a latency, which are in no bucket.")
    stats: LatencyStats
    buckets: list[HistogramBucket] = Field(
        description="The buckets from the first to the last one with an event."
    )


class Histogram(HistogramSide):
    """The latencies of a selection, compared with a base if the request names one."""

    base: HistogramSide | None = Field(description="The histogram of the base; null without one.")
    differences: list[BucketDifference] | None = Field(
        description="The differences of all buckets with an event in either; null without a base."
    )


class HeatPoint(_Answer):
    """The latencies of one step of time."""

    time: str = Field(description="When the step begins: RFC 3339, in UTC.")
    unlabelled: int = Field(description="The number of events without a latency, which are in no bucket.")
    stats: LatencyStats
    buckets: list[HeatCell] = Field(description="The buckets with an event.")


class HeatMap(_FromProfiles):
    """The latencies of a selection over time."""

    step: Literal["minute", "hour", "day"]
    points: list[HeatPoint] = Field(description="The steps from the first to the last one with a profile.")
