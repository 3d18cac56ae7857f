"""The inputs of a merge: the chosen blobs of one service and type that can be read and merged together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from zlib import crc32

import numpy as np
from pprof_merge import Collection, Header, IncompatibleProfiles, Profile, ValueType, Weighting
from pprof_merge.analysis import ReportedProfile
from pprof_merge.arrays import Int64s, Ints
from pprof_merge.codec import StepTimes
from pprof_merge.merging import (
    EVERY_REQUEST,
    PLAIN_WEIGHTING,
    REQUEST_LABELS,
    SERVICE,
    RequestIds,
    check_compatible,
    times_until,
)

from pgo_collector.engine.blob_columns import STORED_LIMITS, BlobColumns
from pgo_collector.engine.packing import LAYOUT
from pgo_collector.engine.recent_profiles import rows_owner
from pgo_collector.engine.row_cache import RowCache, Rows
from pgo_collector.engine.symbols import NO_SYMBOLS, Symbols
from pgo_collector.engine.validation import check_cpu
from pgo_collector.errors import NotACPUProfile
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.series import Series
from pgo_collector.model.services import is_several
from pgo_collector.traces.spans import span

# The period type and the sorted sample types. Only profiles of the same kind can be merged.
_Kind = tuple[ValueType, tuple[ValueType, ...]]

# The engine's version, and the labels that it leaves out. A merge depends on both besides on the blobs.
_LEFT_OUT = crc32(b",".join(sorted(REQUEST_LABELS)))
ENGINE = f"{version('pprof-merge')}-{_LEFT_OUT:08x}"

# Characters of the reason why a blob is left out: it is stored with the merge and logged, for thousands.
_LONGEST_REASON = 300

# The rows of the profiles that this process has read.
ROW_CACHE = RowCache(STORED_LIMITS, f"{ENGINE}-{LAYOUT}")


@dataclass(frozen=True, slots=True)
class ChosenBlobs:
    """The blobs of one service and type that a merge is to have, and what names the functions in a view.

    With `requests`, it is to have only their samples.
    """

    service: str
    type: str
    blobs: BlobColumns
    symbols: Symbols = NO_SYMBOLS
    requests: RequestIds = EVERY_REQUEST

    @property
    def owner(self) -> str:
        """Return the key of their rows in a worker's cache."""
        return rows_owner(self.service, self.type)

    @property
    def is_whole(self) -> bool:
        """Return whether it is to have all samples, which the cache has rows for."""
        return not any(self.requests)


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """The `blobs` that were read and can be merged, and the blobs that were left out.

    `numbers` (n,) int64 are the numbers of the blobs' profiles in the collection.
    """

    collection: Collection
    numbers: Int64s
    blobs: BlobColumns
    left_out: tuple[LeftOut, ...]

    @property
    def names(self) -> list[str]:
        """Return the names of the blobs."""
        return [self.blobs.name(row) for row in range(len(self.blobs))]

    @property
    def reported_profiles(self) -> list[ReportedProfile]:
        """Return the profiles as the arguments of a report."""
        times = self.blobs.times.tolist()
        return [*map(ReportedProfile, self.numbers.tolist(), self.names, self.labels, times)]

    @property
    def labels(self) -> list[dict[str, str]]:
        """Return the labels of each blob's series."""
        return [dict(self.blobs.series_of(row).labels) for row in range(len(self.blobs))]

    def merge(self, weighting: Weighting = PLAIN_WEIGHTING, depth: int | None = None) -> Profile:
        """Return the merge of the profiles. Raises what `Collection.merge` raises."""
        if not weighting.is_plain:
            # One whose host's clock is ahead has the time at which it came in its name.
            times = np.minimum(self.collection.times(self.numbers), self.blobs.times).tolist()
            until = times_until(time.time_ns(), times)
            given = self.labels
            if weighting.services:
                for row, labels in enumerate(given):
                    labels[SERVICE] = self.blobs.series_of(row).service
            return self.collection.merge(self.numbers.tolist(), weighting, given, depth, until)
        return self.collection.merge(self.numbers.tolist(), depth=depth)


def read_merge_inputs(
    chosen: ChosenBlobs, weighting: Weighting = PLAIN_WEIGHTING, *, every_label: bool = False
) -> MergeInputs:
    """Read the blobs; return those that can be merged and weighed in this way, and why the others can't.

    With `every_label`, samples keep the labels that number requests. All blobs are then read again, and so
    they are for samples of some requests.
    """
    blobs, times = chosen.blobs, StepTimes()
    is_cached = chosen.is_whole and not every_label
    if is_several(chosen.service) and len(ROW_CACHE.rows(chosen.owner).collection) > 2 * len(blobs):
        ROW_CACHE.delete(chosen.owner)  # nothing else drops the rows of deleted blobs
    with span("engine", "open rows"):
        if is_cached:
            rows = ROW_CACHE.rows(chosen.owner)
        else:
            rows = Rows(STORED_LIMITS, every_label=every_label, requests=chosen.requests)
    with span("engine", "read blobs", blobs=len(blobs)) as reading:
        if is_cached:
            numbers, unreadable = ROW_CACHE.load(chosen.owner, blobs, times)
        else:
            unreadable = rows.load(blobs, np.arange(len(blobs)), times)
            numbers = rows.numbers(blobs)
        reading.divide(inflate=times.inflate, decode=times.decode, intern=times.intern)
    left_out = [
        LeftOut(blobs.name(row), why[:_LONGEST_REASON], is_damaged=True) for row, why in unreadable.items()
    ]
    numbers[[*unreadable]] = -1
    read = np.flatnonzero(numbers >= 0)
    headers, header_of = rows.collection.headers(numbers[read])
    misfits = _misfits(headers, header_of, chosen.type)
    if weighting.is_plain:  # of tens of thousands, most often none has to be looked at
        doubtful = np.flatnonzero(np.array([misfit != "" for misfit in misfits], np.bool_)[header_of])
        read, header_of = read[doubtful], header_of[doubtful]
    columns = read, header_of, rows.collection.durations(numbers[read])
    for row, header, duration in zip(*(column.tolist() for column in columns), strict=True):
        if unfit := misfits[header] or _unweighable(blobs.series_of(row), duration, weighting):
            left_out.append(LeftOut(blobs.name(row), unfit[:_LONGEST_REASON]))
            numbers[row] = -1
    ROW_CACHE.enforce_budget(chosen.owner)
    fit = np.flatnonzero(numbers >= 0)
    return MergeInputs(rows.collection, numbers[fit], blobs.take(fit), tuple(left_out))


def _misfits(headers: Sequence[Header], header_of: Ints, type_: str) -> list[str]:
    """Return for each header why profiles with it can't be merged; an empty text if they can.

    They can't if they aren't of the type, or aren't of the most common kind; of equally common kinds the one
    that came first is taken. `header_of` (n,) is the index of each profile's header.
    """
    n_profiles: Counter[int] = Counter(header_of.tolist())  # by header, in the order of first appearance
    in_turn = [headers[number] for number in n_profiles]
    counts: Counter[_Kind] = Counter()
    for header, count in zip(in_turn, n_profiles.values(), strict=True):
        counts[_kind(header)] += count
    most = max(counts, key=counts.__getitem__, default=None)
    common = next((header for header in in_turn if _kind(header) == most), None)
    return [_misfit(header, type_, common) for header in headers]


def _kind(header: Header) -> _Kind:
    return header.period_type, tuple(sorted(header.sample_types))


def _misfit(header: Header, type_: str, common: Header | None) -> str:
    """Return why a profile can't be merged; an empty text if it can."""
    try:
        if type_ == CPU:
            check_cpu(header)
        if common is not None:
            check_compatible(common, header)
    except (NotACPUProfile, IncompatibleProfiles) as error:
        return str(error)
    return ""


def _unweighable(series: Series, duration_nanos: int, weighting: Weighting) -> str:
    """Return why a profile of a series can't be weighed in this way; an empty text if it can."""
    if weighting.label in series.dropped:
        return f"a roll-up dropped the label {weighting.label}, by which it is weighed"
    return weighting.refusal(duration_nanos)
