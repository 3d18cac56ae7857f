"""Blobs of one service and type that were chosen: what can be read of them, and go together in a merge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from pprof_merge import (
    PLAIN_WEIGHTING,
    Collection,
    Header,
    IncompatibleProfiles,
    Int64s,
    Ints,
    Profile,
    ReportedProfile,
    ValueType,
    Weighting,
    check_compatible,
    first_appearance,
)

from pgo_collector.engine.blob_columns import STORED_LIMITS, BlobColumns, BlobSeries
from pgo_collector.engine.row_cache import RowCache
from pgo_collector.errors import NotACPUProfile
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.profile_types import TYPES

# What profiles measure that may be merged.
_Kind = tuple[ValueType, tuple[ValueType, ...]]

# What a merge depends on besides its blobs.
ENGINE = version("pprof-merge")

# Why a blob is left out is kept with the merge, and logged, for each of thousands.
_LONGEST_REASON = 300

# What this process has read.
ROW_CACHE = RowCache(STORED_LIMITS, ENGINE)


@dataclass(frozen=True, slots=True)
class ChosenBlobs:
    """What is to be merged: blobs of one service and type, which are the rows' `owner`."""

    service: str
    type: str
    blobs: BlobColumns

    @property
    def owner(self) -> str:
        """The name under which a worker keeps their rows."""
        return owner_of(self.service, self.type)


def owner_of(service: str, type_: str) -> str:
    """The name under which a worker keeps the rows of a service and type."""
    return f"{service}/{type_}"


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """Blobs that were read: those that are fit to be merged were `taken`, and have these `numbers` in the
    collection.
    """

    collection: Collection
    numbers: Int64s
    taken: BlobColumns
    left_out: tuple[LeftOut, ...]

    @property
    def blobs(self) -> list[str]:
        """Their names, in the order of the numbers."""
        return [self.taken.name(row) for row in range(len(self.taken))]

    @property
    def subjects(self) -> list[ReportedProfile]:
        """What a report is on."""
        return [*map(ReportedProfile, self.numbers.tolist(), self.blobs, self.labels)]

    @property
    def labels(self) -> list[dict[str, str]]:
        """Their series' labels."""
        return [dict(self.taken.series_of(row).labels) for row in range(len(self.taken))]

    def merge(self, weighting: Weighting = PLAIN_WEIGHTING, depth: int | None = None) -> Profile:
        """Their merge. Raises as `Collection.merge` does."""
        if not weighting.is_plain:
            return self.collection.merge(self.numbers.tolist(), weighting, self.labels, depth)
        is_all = len(self.numbers) == len(np.unique(self.numbers)) == len(self.collection)
        # The merge of all is the last one, and what has come since.
        return self.collection.merge(None if is_all else self.numbers.tolist(), depth=depth)


def collect(chosen: ChosenBlobs, weighting: Weighting = PLAIN_WEIGHTING) -> MergeInputs:
    """What can be read of blobs, and be merged and weighed so."""
    rows, blobs = ROW_CACHE.rows(chosen.owner), chosen.blobs
    unreadable = ROW_CACHE.take_in(chosen.owner, blobs)
    left_out = [
        LeftOut(blobs.name(row), why[:_LONGEST_REASON], is_damaged=True) for row, why in unreadable.items()
    ]
    numbers = rows.numbers(blobs)
    numbers[[*unreadable]] = -1
    read = np.flatnonzero(numbers >= 0)
    headers, header_of = rows.collection.headers(numbers[read])
    misfits = _misfits(headers, header_of, chosen.type)
    columns = read, header_of, rows.collection.durations(numbers[read])
    for row, header, duration in zip(*(column.tolist() for column in columns), strict=True):
        if unfit := misfits[header] or _unweighable(blobs.series_of(row), duration, weighting):
            left_out.append(LeftOut(blobs.name(row), unfit[:_LONGEST_REASON]))
            numbers[row] = -1
    ROW_CACHE.keep(chosen.owner)
    fit = np.flatnonzero(numbers >= 0)
    return MergeInputs(rows.collection, numbers[fit], blobs.take(fit), tuple(left_out))


def _misfits(headers: Sequence[Header], header_of: Ints, type_: str) -> list[str]:
    """Why profiles with each of the headers aren't to be merged, empty where they are: they aren't of the
    type, or don't go together with the kind that is most common; of kinds as common as another, that which
    came first. Profiles have the headers `header_of` (n,).
    """
    numbers, _ = first_appearance(header_of)
    in_turn = [headers[number] for number in numbers.tolist()]
    counts: Counter[_Kind] = Counter()
    for header, count in zip(in_turn, np.bincount(header_of)[numbers].tolist(), strict=True):
        counts[_kind(header)] += count
    most = max(counts, key=counts.__getitem__, default=None)
    common = next((header for header in in_turn if _kind(header) == most), None)
    return [_misfit(header, type_, common) for header in headers]


def _kind(header: Header) -> _Kind:
    return header.period_type, tuple(sorted(header.sample_types))


def _misfit(header: Header, type_: str, common: Header | None) -> str:
    """Why a profile isn't to be merged; empty if it is."""
    try:
        TYPES[type_](header)
        if common is not None:
            check_compatible(common, header)
    except (NotACPUProfile, IncompatibleProfiles) as error:
        return str(error)
    return ""


def _unweighable(series: BlobSeries, duration_nanos: int, weighting: Weighting) -> str:
    """Why a profile of a series can't be weighed so; empty if it can."""
    if weighting.label in series.dropped:
        return f"a roll-up dropped the label {weighting.label}, which it is to be weighed by"
    return weighting.refusal(duration_nanos)
