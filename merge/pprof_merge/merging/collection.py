"""Profiles taken in once, to be merged in any selection: what a cold merge and a warm one have in common.

A profile is decoded when it arrives, which is also its validation, and leaves its traces in a dictionary
that all share. A merge is then a sum of traces; no profile is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from pprof_merge.codec.batch import Batch
from pprof_merge.codec.compression import inflate
from pprof_merge.codec.decode import decode_all, decode_batch
from pprof_merge.errors import ProfileError
from pprof_merge.limits import Limits
from pprof_merge.merging.dictionary import Dictionary
from pprof_merge.merging.merge import Contribution, Merge
from pprof_merge.merging.origins import Origin, Told, origins_of
from pprof_merge.merging.segment import Mark, Segment
from pprof_merge.merging.selection import AllTraces, SelectedTraces
from pprof_merge.merging.sums import PlainSums, Sums
from pprof_merge.merging.traces import Traces
from pprof_merge.merging.weights import PLAIN_WEIGHTING, Weighting, weighted_sums
from pprof_merge.profile import Bytes, Header, Int64s, Ints, Profile

_NOTHING: Told = MappingProxyType({})


class Collection:
    """Profiles by number, in the order in which they were added.

    `limits` hold for each. A profile that is refused leaves nothing behind.
    """

    def __init__(self, limits: Limits = Limits()) -> None:
        self._limits = limits
        self._dictionary = Dictionary()
        self._traces = AllTraces()
        # The merge of all, as of when it was asked for last, and how many that were.
        self._all = Merge(self._dictionary)
        self._n_in_all = 0

    def __reduce__(self) -> tuple[object, tuple[Limits, Segment]]:
        """To hand it to another process."""
        return _grown, (self._limits, self.since(Collection().mark))

    def __len__(self) -> int:
        return len(self._traces)

    def add(self, data: bytes) -> int:
        """Takes in a profile, gzip or bare protobuf; returns its number. Raises ProfileError."""
        return self._take_in(decode_batch([inflate(data, self._limits)], self._limits))[0]

    def extend(self, many: Iterable[bytes]) -> Iterator[int | ProfileError]:
        """Takes in many profiles, which costs less than one by one: the number of each, or what is wrong."""
        return decode_all(many, self._limits, self._take_in)

    def absorb(self, other: Collection) -> range:
        """Takes in all profiles of another collection, in their order; returns their numbers here."""
        first = len(self)
        for traces in self._dictionary.absorb(other._dictionary, other._traces.since(0)):
            self._traces.add(traces)
        return range(first, len(self))

    @property
    def mark(self) -> Mark:
        """How far it is."""
        return Mark(len(self), self._dictionary.counts)

    def since(self, mark: Mark) -> Segment:
        """What has come since it was that far."""
        traces = self._traces.since(mark.profiles)
        return Segment(self._dictionary.since(mark.counts), Traces.joined(traces))

    def grow(self, segment: Segment) -> None:
        """Takes in what came to a collection that was as this one is. Traces stay in its arrays."""
        self._dictionary.grow(segment.entries)
        self._traces.add_segment(segment.traces)

    def settle(self, segment: Segment) -> None:
        """From now on what came last, of which this is the segment, has its traces in its arrays alone."""
        self._traces.replace_last(segment.traces)

    @property
    def nbytes(self) -> int:
        """The memory that all of it takes, about, without the arrays of segments."""
        return self._dictionary.nbytes + self._traces.nbytes

    @property
    def own_nbytes(self) -> int:
        """How much of that the traces take that are in no segment."""
        return self._traces.nbytes

    def header(self, number: int) -> Header:
        """The header of a profile."""
        traces, row = self._traces.find(number)
        timeless: Header = self._dictionary.headers[traces.headers[row]]
        return replace(
            timeless,
            time_nanos=int(traces.times[row]),
            duration_nanos=int(traces.durations[row]),
        )

    def headers(self, numbers: Iterable[int]) -> tuple[list[Header], Ints]:
        """Of some profiles: the headers without their times, each once, and which of them each has."""
        return self._pick(numbers).distinct_headers()

    def durations(self, numbers: Iterable[int]) -> Int64s:
        """The durations of some profiles in ns."""
        return self._pick(numbers).durations

    def digest(self, number: int) -> bytes:
        """The SHA-256 of a profile's bare protobuf."""
        traces, row = self._traces.find(number)
        return bytes(traces.digests[row])

    def find(self, digests: Bytes) -> Int64s:
        """The numbers of the profiles with these digests (n, 32); -1 where there is none."""
        return self._traces.with_digests(digests)

    def merge(
        self,
        numbers: Iterable[int] | None = None,
        weighting: Weighting = PLAIN_WEIGHTING,
        labels: Sequence[Told] = (),
        depth: int | None = None,
    ) -> Profile:
        """The merge of some profiles, or of all, each as it is or by a factor.

        A number may come several times. `labels` are what is known of each, in the order of the numbers,
        besides what is in it. For a format that needs no more, a `depth` leaves of each stack that many
        locations, from the leaf on; samples stay apart. Raises IncompatibleProfiles where the types
        differ, UnfitForWeight where one can't be weighed so, and ProfileError where there is none.
        """
        if weighting.is_plain and numbers is None:
            return self._merge_all(depth)
        profiles = self._pick(range(len(self)) if numbers is None else numbers)
        order = profiles.order()
        ordered = profiles.take(order)
        sums: Sums = PlainSums()
        if not weighting.is_plain:
            told = [labels[place] if labels else _NOTHING for place in order.tolist()]
            sums = weighted_sums(weighting, self._dictionary, ordered, told)
        merged = Merge(self._dictionary, sums)
        merged.add(ordered)
        return merged.profile(depth)

    def merge_traced(self, numbers: Iterable[int]) -> tuple[Profile, list[Contribution]]:
        """The merge of some profiles, and what each of them has in it. Raises as `merge` does."""
        profiles = self._pick(numbers)
        merged = Merge(self._dictionary)
        merged.add(profiles.in_order())
        return merged.profile(), [*merged.contributions(profiles)]

    def origins(self, numbers: Iterable[int], labels: Sequence[Told]) -> list[Origin]:
        """Instances and versions that some profiles, which can be merged, are of; `labels` as in a merge."""
        return origins_of(self._dictionary, self._pick(numbers), labels)

    def _merge_all(self, depth: int | None) -> Profile:
        """Adds what is new to the last merge of all, wherever it belongs."""
        if self._n_in_all < len(self):
            every = self._pick(range(len(self)))
            order = every.order()
            self._all.add(every.take(order), order >= self._n_in_all)
            self._n_in_all = len(self)
        return self._all.profile(depth)

    def _pick(self, numbers: Iterable[int]) -> SelectedTraces:
        return self._traces.pick(numbers, self._dictionary.headers)

    def _take_in(self, batch: Batch) -> range:
        return self._traces.add(self._dictionary.intern(batch))


def _grown(limits: Limits, segment: Segment) -> Collection:
    collection = Collection(limits)
    collection.grow(segment)
    return collection
