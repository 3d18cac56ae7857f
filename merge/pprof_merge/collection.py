"""Profiles taken in once, to be merged in any selection: what a cold merge and a warm one have in common.

A profile is decoded when it arrives, which is also its validation, and leaves its traces in a dictionary
that all share. A merge is then a sum of traces; no profile is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType

from pprof_merge.batch import Batch
from pprof_merge.compression import inflate
from pprof_merge.decode import decode_batch
from pprof_merge.dictionary import Dictionary
from pprof_merge.errors import ProfileError
from pprof_merge.limits import Limits
from pprof_merge.merge import Contribution, Merge
from pprof_merge.order import place
from pprof_merge.origins import Origin, Told, origins_of
from pprof_merge.profile import Header, Profile
from pprof_merge.segment import Mark, Segment
from pprof_merge.traces import PackedTraces, Traces
from pprof_merge.weighing import weighted_sums
from pprof_merge.weights import PLAIN, Weighting

# Profiles are decoded side by side until they have so many bytes: NumPy's calls are dear for small ones.
_BATCH_BYTES = 1 << 21
# A profile takes so much besides its traces: header, digest, used mappings.
_PROFILE_BYTES = 2048
_NOTHING: Told = MappingProxyType({})


class Collection:
    """Profiles by number, in the order in which they were added.

    `limits` hold for each. A profile that is refused leaves nothing behind.
    """

    def __init__(self, limits: Limits = Limits()) -> None:
        self._limits = limits
        self._dictionary = Dictionary()
        self._traces: list[Traces] = []
        self._traces_bytes = 0
        # The merge of all, as of when it was asked for last.
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
        waiting: list[bytes | ProfileError] = []
        size = 0
        for data in many:
            try:
                protobuf = inflate(data, self._limits)
            except ProfileError as error:
                waiting.append(error)
                continue
            waiting.append(protobuf)
            size += len(protobuf)
            if size >= _BATCH_BYTES:
                yield from self._extend(waiting)
                waiting, size = [], 0
        yield from self._extend(waiting)

    def absorb(self, other: Collection) -> range:
        """Takes in all profiles of another collection, in their order; returns their numbers here."""
        return self._append(self._dictionary.absorb(other._dictionary, other._traces))

    @property
    def mark(self) -> Mark:
        """How far it is."""
        return Mark(len(self._traces), self._dictionary.counts)

    def since(self, mark: Mark) -> Segment:
        """What has come since it was that far."""
        traces = PackedTraces.of(self._traces[mark.profiles :])
        return Segment(self._dictionary.since(mark.counts), traces)

    def grow(self, segment: Segment) -> None:
        """Takes in what came to a collection that was as this one is. Traces stay in its arrays."""
        self._dictionary.grow(segment.entries)
        self._traces.extend(segment.traces.unpacked())

    @property
    def nbytes(self) -> int:
        """The memory that all of it takes, about, without the arrays of segments."""
        return self._dictionary.nbytes + self._traces_bytes + _PROFILE_BYTES * len(self._traces)

    def header(self, number: int) -> Header:
        """The header of a profile."""
        return self._traces[number].header

    def digest(self, number: int) -> bytes:
        """The SHA-256 of a profile's bare protobuf."""
        return self._traces[number].digest

    def merge(
        self,
        numbers: Iterable[int] | None = None,
        weighting: Weighting = PLAIN,
        labels: Sequence[Told] = (),
    ) -> Profile:
        """The merge of some profiles, or of all, each as it is or by a factor.

        A number may come several times. `labels` are what is known of each, in the order of the numbers,
        besides what is in it. Raises IncompatibleProfiles where the types differ, UnfitForWeight where one
        can't be weighed so, and ProfileError where there is none.
        """
        if weighting.is_plain:
            return self._merge_all() if numbers is None else self._merge_some(numbers)
        chosen = [*(range(len(self)) if numbers is None else numbers)]
        pairs = zip(chosen, labels or [_NOTHING] * len(chosen), strict=True)
        ordered = sorted(pairs, key=lambda pair: place(self._traces[pair[0]]))
        traces = [self._traces[number] for number, _ in ordered]
        of_each = [each for _, each in ordered]
        merged = Merge(self._dictionary, weighted_sums(weighting, self._dictionary, traces, of_each))
        merged.add(traces)
        return merged.profile()

    def _merge_some(self, numbers: Iterable[int]) -> Profile:
        merged = Merge(self._dictionary)
        merged.add([self._traces[number] for number in numbers])
        return merged.profile()

    def merge_traced(self, numbers: Iterable[int]) -> tuple[Profile, list[Contribution]]:
        """The merge of some profiles, and what each of them has in it. Raises as `merge` does."""
        profiles = [self._traces[number] for number in numbers]
        merged = Merge(self._dictionary)
        merged.add(profiles)
        return merged.profile(), merged.contributions(profiles)

    def origins(self, numbers: Iterable[int], labels: Sequence[Told]) -> list[Origin]:
        """Instances and versions that some profiles are of; `labels` as in a merge."""
        return origins_of(self._dictionary, [self._traces[number] for number in numbers], labels)

    def _merge_all(self) -> Profile:
        """Adds what is new to the last merge of all; unless some of it belongs in between."""
        new = self._traces[self._n_in_all :]
        if not self._all.follows(new):
            self._all, new = Merge(self._dictionary), self._traces
        self._all.add(new)
        self._n_in_all = len(self._traces)
        return self._all.profile()

    def _extend(self, waiting: Sequence[bytes | ProfileError]) -> Iterator[int | ProfileError]:
        protobufs = [protobuf for protobuf in waiting if isinstance(protobuf, bytes)]
        taken = self._try(protobufs) if protobufs else []
        if taken is None:  # one of them can't be taken, or they don't go together
            taken = (self._try_one(protobuf) for protobuf in protobufs)
        numbers = iter(taken)
        for one in waiting:
            yield one if isinstance(one, ProfileError) else next(numbers)

    def _try(self, protobufs: Sequence[bytes]) -> Iterable[int | ProfileError] | None:
        try:
            batch = decode_batch(protobufs, self._limits)
        except ProfileError:
            return None
        return self._take_in(batch)

    def _try_one(self, protobuf: bytes) -> int | ProfileError:
        try:
            return self._take_in(decode_batch([protobuf], self._limits))[0]
        except ProfileError as error:
            return error

    def _take_in(self, batch: Batch) -> range:
        return self._append(self._dictionary.intern(batch))

    def _append(self, every: Sequence[Traces]) -> range:
        first = len(self._traces)
        self._traces.extend(every)
        self._traces_bytes += sum(traces.stacks.nbytes + traces.values.nbytes for traces in every)
        return range(first, len(self._traces))


def _grown(limits: Limits, segment: Segment) -> Collection:
    collection = Collection(limits)
    collection.grow(segment)
    return collection
