"""A collection of profiles, each read once, from which any selection can be merged.

A profile is decoded, and thereby validated, when it is added. Its strings, functions, locations and stacks go
into a dictionary that all profiles share, and its samples become numbers of stacks. A merge adds those up,
and reads no profile again. The command, which merges once, and the collector's workers use it alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

import numpy as np

from pprof_merge.arrays import Bools, Bytes, Int64s, Ints
from pprof_merge.codec.decoding import StepTimes, without_traceback
from pprof_merge.errors import IncompatibleProfiles, ProfileError
from pprof_merge.limits import Limits
from pprof_merge.merging.batch import Batch
from pprof_merge.merging.dictionary import Dictionary
from pprof_merge.merging.headers import combine_headers
from pprof_merge.merging.incremental import Contribution, IncrementalMerge
from pprof_merge.merging.numbered import NumberedProfiles
from pprof_merge.merging.origins import GivenLabels, Origin, origins_of
from pprof_merge.merging.segment import Mark, PackedSegment, Segment
from pprof_merge.merging.selection import AllProfiles, SelectedProfiles
from pprof_merge.merging.snapshots import Kind, Snapshots, SnapshotSums
from pprof_merge.merging.sums import SizeSums
from pprof_merge.merging.weighing import weighted_sums
from pprof_merge.merging.weights import PLAIN_WEIGHTING, Weighting
from pprof_merge.profile import Header, Profile, ValueType

# The bytes of input whose profiles are kept together: a merge looks at them piece by piece.
_BATCH_BYTES = 1 << 20
_NO_LABELS: GivenLabels = MappingProxyType({})
# A merge takes the place of the kept one if it has as many profiles but for one in so many.
_MOST = 4
# Profiles are added ahead once there are so many of them, and an eighth of those in the merge: each time, all
# of its profiles are sorted.
_LEAST_AHEAD, _PART_AHEAD = 64, 8


class Collection:
    """Decoded profiles in memory, of which any selection can be merged without decoding them again.

    Profiles are numbered from 0 in the order in which they were added. `limits` hold for each profile; a
    refused profile leaves nothing behind. `since` and `grow` hand profiles on as segments, to a file or to
    another process.
    """

    def __init__(self, limits: Limits = Limits(), batch: Batch | None = None) -> None:
        """Make an empty collection, or one of the profiles of a batch, which is not used by itself later."""
        self._limits = limits
        self._batch = Batch(limits) if batch is None else batch
        self._dictionary = Dictionary(self._batch)
        self._profiles = AllProfiles()
        # A merge that is kept to be added to, a flag for each profile up to the last one that it has, and the
        # numbers of those that were read ahead and aren't in it yet.
        self._kept = IncrementalMerge(self._dictionary)
        self._is_kept: Bools = np.zeros(0, np.bool_)
        self._ahead: list[int] = []
        self._add_profiles()

    def __reduce__(self) -> tuple[object, tuple[Limits, Segment]]:
        """Return how to pickle the collection: as one segment, which another process loads."""
        return _from_segment, (self._limits, self.since(Collection().mark))

    def __len__(self) -> int:
        return len(self._profiles)

    def add(self, data: bytes) -> int:
        """Add a profile, gzip or bare protobuf; return its number. Raises ProfileError if it is refused."""
        self._batch.read(data)
        return self._add_profiles()[0]

    def extend(
        self, many: Iterable[bytes | Profile], times: StepTimes | None = None
    ) -> Iterator[int | ProfileError]:
        """Add profiles, faster than one by one; yield the number of each, or the error if it is refused.

        Each is gzip or bare protobuf, or was just read, which is used up.
        """
        waiting: list[ProfileError | None] = []
        size = 0
        for data in many:
            try:
                self._batch.read(data, times)
                waiting.append(None)
            except ProfileError as error:
                waiting.append(without_traceback(error))
            size += len(data.columns.text if isinstance(data, Profile) else data)
            if size >= _BATCH_BYTES:
                yield from self._added(waiting)
                waiting, size = [], 0
        yield from self._added(waiting)

    def _added(self, waiting: Sequence[ProfileError | None]) -> Iterator[int | ProfileError]:
        """Yield the number of each profile that was added to the dictionary, or its error."""
        numbers = iter(self._add_profiles())
        for error in waiting:
            yield next(numbers) if error is None else error

    def absorb(self, other: Collection) -> range:
        """Add all profiles of another collection, in their order; return their numbers here."""
        first = len(self)
        for profiles in self._dictionary.absorb(other._dictionary, other._profiles.since(0)):
            self._profiles.add(profiles)
        return range(first, len(self))

    @property
    def mark(self) -> Mark:
        """The current size, from which `since` returns what is added later."""
        return Mark(len(self), self._dictionary.counts)

    def since(self, mark: Mark) -> Segment:
        """Return what was added since the mark was taken."""
        blocks = self._profiles.since(mark.profiles)
        return Segment(self._dictionary.since(mark.counts), NumberedProfiles.joined(blocks))

    def grow(self, segment: PackedSegment) -> None:
        """Add a segment of a collection that was as this one is now. Its profiles' arrays are not copied."""
        self._dictionary.grow(segment.entries)
        self._profiles.add_segment(segment.profiles)

    def settle(self, segment: PackedSegment) -> None:
        """Use the segment's arrays for the profiles of the last additions, which it was made from."""
        self._profiles.replace_last(segment.profiles)

    @property
    def nbytes(self) -> int:
        """The approximate memory of the collection in bytes, without the arrays of segments."""
        return self._dictionary.nbytes + self._profiles.nbytes + self._kept.nbytes

    @property
    def own_nbytes(self) -> int:
        """The part of `nbytes` that belongs to profiles that are in no segment."""
        return self._profiles.nbytes

    def header(self, number: int) -> Header:
        """Return the header of a profile."""
        profiles, row = self._profiles.find(number)
        timeless: Header = self._dictionary.headers[profiles.headers[row]]
        return timeless._replace(
            time_nanos=int(profiles.times[row]),
            duration_nanos=int(profiles.durations[row]),
        )

    def headers(self, numbers: Iterable[int]) -> tuple[list[Header], Ints]:
        """Return profiles' distinct headers, without times, and the index of each profile's header (n,)."""
        return self._select(numbers).distinct_headers()

    def durations(self, numbers: Iterable[int]) -> Int64s:
        """Return the durations of profiles in ns (n,)."""
        return self._select(numbers).durations

    def times(self, numbers: Iterable[int]) -> Int64s:
        """Return when profiles were taken, in ns since 1970 (n,); 0 for those that don't say it."""
        return self._select(numbers).times

    def totals(self, numbers: Iterable[int], sample_type: ValueType) -> Int64s:
        """Return the sum of the sizes of one sample type's values in each of these profiles (n,).

        All of them must have this sample type. Sums are wrapped at 64 bits.
        """
        return self._select(numbers).totals(sample_type)

    def digest(self, number: int) -> bytes:
        """Return the SHA-256 of a profile's bare protobuf (32 bytes)."""
        profiles, row = self._profiles.find(number)
        return bytes(profiles.digests[row])

    def find(self, digests: Bytes) -> Int64s:
        """Return the numbers (n,) of the profiles with these digests (n, 32); -1 where there is none."""
        return self._profiles.with_digests(digests)

    def merge(
        self,
        numbers: Iterable[int] | None = None,
        weighting: Weighting = PLAIN_WEIGHTING,
        labels: Sequence[GivenLabels] = (),
        depth: int | None = None,
        times: Sequence[int] = (),
    ) -> Profile:
        """Return the merge of the profiles with these numbers, or of all profiles.

        A number that is given several times counts as often. `labels` are labels known of each profile from
        elsewhere, in the order of the numbers; weights by instance or version use them. With `depth`, each
        stack has at most `depth` locations, from the leaf on, for formats that read no more; samples that
        become equal stay separate. `times`, in ns since 1970, are what weights by age use in place of the
        profiles' own times.

        Raises IncompatibleProfiles if the profiles' types differ, UnfitForWeight if a profile can't be
        weighed, and ProfileError if there is no profile.
        """
        numbers = range(len(self)) if numbers is None else numbers
        if weighting.is_plain:
            return self._summed(np.fromiter(numbers, np.int64)).profile(depth)
        profiles = self._select(numbers)
        order = profiles.order()
        ordered = profiles.take(order)
        given = [labels[position] if labels else _NO_LABELS for position in order.tolist()]
        ages_from = [times[position] for position in order.tolist()] if times else ordered.times.tolist()
        sums = weighted_sums(weighting, self._dictionary, ordered, given, ages_from)
        merged = IncrementalMerge(self._dictionary, sums)
        merged.add(ordered)
        return merged.profile(depth)

    def sum_ahead(self, numbers: Iterable[int]) -> None:
        """Add these profiles to the kept merge, ahead of a merge that has them, once there are many such.

        Profiles that can't be merged together are left to that merge.
        """
        self._ahead += numbers
        n_kept = int(np.count_nonzero(self._is_kept))
        if len(self._ahead) < max(_LEAST_AHEAD, n_kept // _PART_AHEAD):
            return
        is_wanted = self._flags()
        is_wanted[self._ahead] = True
        self._ahead = []
        with suppress(IncompatibleProfiles):
            self._keep(is_wanted)

    def merged_header(self, numbers: Iterable[int]) -> Header:
        """Return the header of the merge of one or more profiles. Raises IncompatibleProfiles.

        Without times if all profiles have one header, as most do: their order then makes no difference.
        """
        profiles = self._select(numbers)
        headers, _ = profiles.distinct_headers()
        if len(headers) == 1:
            return headers[0]
        ordered = profiles.in_merge_order()
        return combine_headers(ordered.headers(), ordered.times.tolist(), ordered.durations.tolist())

    def with_restarts(
        self, numbers: Iterable[int], snapshots: Snapshots, types: Sequence[ValueType]
    ) -> Snapshots:
        """Return the snapshots of these profiles with restarts: see `Snapshots.with_restarts`."""
        return snapshots.with_restarts(self._select(numbers), types)

    def merge_snapshots(
        self,
        numbers: Iterable[int],
        snapshots: Snapshots,
        kinds: Mapping[ValueType, Kind],
        depth: int | None = None,
    ) -> Profile:
        """Return the merge of these profiles as a view shows it: each sample type by its kind.

        `depth` is as in `merge`. Raises IncompatibleProfiles, and ProfileError if there is no profile.
        """
        profiles = self._select(numbers)
        order = profiles.order()
        ordered = profiles.take(order)
        of_types = [kinds[each] for each in ordered.headers()[0].sample_types] if len(ordered) else []
        factors = {kind: snapshots.factors(kind)[order] for kind in {*of_types}}
        columns = np.stack([factors[kind] for kind in of_types], axis=1) if of_types else np.zeros((0, 0))
        merged = IncrementalMerge(self._dictionary, SnapshotSums(of_types, columns))
        merged.add(ordered)
        return merged.profile(depth)

    def merge_traced(
        self, numbers: Iterable[int], *, of_sizes: bool = False
    ) -> tuple[Profile, list[Contribution]]:
        """Return the merge of these profiles, and what each of them contributes. Raises as `merge` does.

        The merge `of_sizes` adds up values without their signs, so it has the samples that cancel out, too.
        """
        profiles = self._select(numbers)
        merged = IncrementalMerge(self._dictionary, SizeSums() if of_sizes else None)
        merged.add(profiles.in_merge_order())
        return merged.profile(), [*merged.contributions(profiles)]

    def origins(self, numbers: Iterable[int], labels: Sequence[GivenLabels]) -> list[Origin]:
        """Return the instances and versions of profiles that can be merged; `labels` are as in `merge`."""
        return origins_of(self._dictionary, self._select(numbers), labels)

    def _summed(self, numbers: Int64s) -> IncrementalMerge:
        """Return the plain merge of the profiles with these numbers (n,).

        It is the one that is kept, if that has none but these, and only what is new is added to it. Otherwise
        it takes that one's place, as after old profiles were deleted, unless it is much smaller, as that of
        some instances is.
        """
        is_wanted = np.bincount(numbers, minlength=len(self)) == 1
        are_distinct = int(np.count_nonzero(is_wanted)) == len(numbers)
        is_kept = self._flags()
        has_others = bool((is_kept & ~is_wanted).any())
        is_small = _MOST * len(numbers) < (_MOST - 1) * np.count_nonzero(is_kept)
        if not are_distinct or (has_others and is_small):
            merged = IncrementalMerge(self._dictionary)
            merged.add(self._profiles.select(numbers, self._dictionary.headers).in_merge_order())
            return merged
        if has_others:
            self._kept, self._is_kept = IncrementalMerge(self._dictionary), np.zeros(0, np.bool_)
        self._ahead = []
        self._keep(is_wanted)
        return self._kept

    def _keep(self, is_wanted: Bools) -> None:
        """Add the profiles with these flags (n,), all that are kept among them, to the kept merge.

        Raises IncompatibleProfiles; then nothing is added.
        """
        numbers = np.flatnonzero(is_wanted)
        is_new = ~self._flags()[numbers]
        if is_new.any():
            profiles = self._profiles.select(numbers, self._dictionary.headers)
            order = profiles.order()
            self._kept.add(profiles.take(order), None if is_new.all() else is_new[order])
        self._is_kept = is_wanted

    def _flags(self) -> Bools:
        """Return for each profile (n,) whether the kept merge has it."""
        flags = np.zeros(len(self), np.bool_)
        flags[: len(self._is_kept)] = self._is_kept
        return flags

    def _select(self, numbers: Iterable[int]) -> SelectedProfiles:
        return self._profiles.select(numbers, self._dictionary.headers)

    def _add_profiles(self) -> range:
        return self._profiles.add(self._dictionary.take_profiles())


def _from_segment(limits: Limits, segment: Segment) -> Collection:
    collection = Collection(limits)
    collection.grow(segment.packed())
    return collection
