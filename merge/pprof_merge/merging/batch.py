"""A batch: profiles that were read and numbered, in the engine's columns.

The command merges a batch and ends; nothing here needs NumPy. A `Collection` takes the profiles of batch
after batch, and keeps them for any selection.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby, islice
from operator import attrgetter
from time import perf_counter_ns
from typing import Any, NamedTuple

from pprof_merge.codec.decoding import StepTimes, digest_of, header_of, inflate, read
from pprof_merge.columns.interning import Interner
from pprof_merge.columns.tables import Table
from pprof_merge.columns.vectors import bytes32_of, bytes_of, column32_of, column_of
from pprof_merge.errors import ProfileError
from pprof_merge.limits import Limits
from pprof_merge.merging.assembly import WHOLE, Totals, Uses, assemble
from pprof_merge.merging.headers import SortKey, column_order, combine_headers
from pprof_merge.merging.numbering import NumberedColumns, Numbering
from pprof_merge.merging.request_labels import (
    EVERY_REQUEST,
    RequestIds,
    drop_request_labels,
    keep_requests,
)
from pprof_merge.profile import Header, Profile, ProfileColumns

# Columns with this number of values (2 MiB) are left as they are, and the next profiles get their own: to
# make a column longer takes the memory of both.
_PART_VALUES = 1 << 18


class BatchProfile(NamedTuple):
    """A profile of a batch: the number of its header, which has no times, its times in ns, and its digest.

    The digest is empty as long as it isn't known.
    """

    header: int
    time_nanos: int
    duration_nanos: int
    digest: bytes

    @property
    def sort_key(self) -> SortKey:
        """The key that the profiles of a merge are sorted by."""
        return SortKey(self.time_nanos, self.digest)


class Batch:
    """Profiles that were read, and the `tables` that they share; `limits` hold for each profile.

    A profile that is refused leaves nothing behind. Without `every_label`, the profiles that are read have no
    `REQUEST_LABELS`. With `requests`, they only have the samples of these.
    """

    def __init__(
        self,
        limits: Limits = Limits(),
        *,
        every_label: bool = True,
        requests: RequestIds = EVERY_REQUEST,
    ) -> None:
        self.tables = Numbering()
        # Headers without times, so that the profiles of one program share one.
        self.headers: Interner[Header] = Interner()
        self.profiles: list[BatchProfile] = []
        # Full columns. Those of the last profiles are in the tables.
        self._full: list[NumberedColumns] = []
        self._limits = limits
        self._every_label = every_label
        self._requests = requests

    def __len__(self) -> int:
        return len(self.profiles)

    def read(
        self, data: bytes | Profile, times: StepTimes | None = None, *, with_digest: bool = True
    ) -> None:
        """Add a profile: gzip, bare protobuf, or one that was just read, which is used up.

        Without `with_digest`, a profile of bytes that has a time gets no digest, which only orders profiles
        of the same time: see `alike`. Raises ProfileError if it is refused.
        """
        times = times or StepTimes()
        if isinstance(data, Profile):
            header, columns, digest = data.header, data.columns, data.digest
        else:
            columns = read(data, self._limits, times)
            header = header_of(columns)
            digest = digest_of(columns.data) if with_digest or not header.time_nanos else b""
        began = perf_counter_ns()
        if any(self._requests):
            keep_requests(columns, self._requests)
        if not self._every_label:
            drop_request_labels(columns)
        self.add(header, columns, digest)
        times.intern += perf_counter_ns() - began

    def add(self, header: Header, columns: ProfileColumns, digest: bytes) -> None:
        """Add a profile that was read."""
        number = self.headers[header._replace(time_nanos=0, duration_nanos=0)]
        if self.tables.numbered.n_values >= _PART_VALUES:
            self._begin_columns()
        self.tables.add(columns)
        self.profiles.append(BatchProfile(number, header.time_nanos, header.duration_nanos, digest))

    def header(self, number: int) -> Header:
        """Return the header of a profile."""
        profile = self.profiles[number]
        timeless = next(islice(self.headers, profile.header, None))
        return timeless._replace(time_nanos=profile.time_nanos, duration_nanos=profile.duration_nanos)

    def alike(self) -> list[int]:
        """Return the numbers of the profiles that lack a digest and have the same time as another one."""
        times = Counter(profile.time_nanos for profile in self.profiles)
        if len(times) == len(self.profiles):
            return []
        return [
            number
            for number, profile in enumerate(self.profiles)
            if not profile.digest and times[profile.time_nanos] > 1
        ]

    def identify(self, number: int, data: bytes) -> None:
        """Give a profile its digest; `data` is what was read. Raises ProfileError if it can't be inflated."""
        digest = digest_of(inflate(data, self._limits))
        self.profiles[number] = self.profiles[number]._replace(digest=digest)

    def absorb(self, other: "Batch") -> None:
        """Add all profiles of another batch, in their order: what they share is mapped, not read again."""
        headers = self.headers.of(other.headers)
        self.profiles += [each._replace(header=headers[each.header]) for each in other.profiles]
        numbers = self.tables.absorb(other.tables)
        for numbered in other.numbered:
            self._full.append(self.tables.numbered)
            self.tables.numbered = NumberedColumns()
            self.tables.numbered.absorb(numbered, numbers)

    def take(self) -> tuple[list[NumberedColumns], list[BatchProfile]]:
        """Return the columns and all profiles, in their order, and keep none of them."""
        taken = self.numbered, self.profiles
        self._full, self.tables.numbered, self.profiles = [], NumberedColumns(), []
        return taken

    @property
    def numbered(self) -> list[NumberedColumns]:
        """The columns of all profiles, in their order."""
        return [*self._full, self.tables.numbered]

    def _begin_columns(self) -> None:
        """Give the next profiles columns of their own, with as much room as those of the last ones have."""
        last = self.tables.numbered
        self._full.append(last)
        self.tables.numbered = NumberedColumns(len(last.stacks), len(last.values))

    def __getstate__(self) -> tuple[Any, ...]:
        """Return what another process makes an equal batch of, which can be absorbed and not added to."""
        tables = self.tables
        columns = [
            (bytes_of(table.words, table.ends[table.count]), bytes_of(table.ends, table.count + 1))
            for table in _tables(tables)
        ]
        stacks = tables.stacks
        return (
            self._limits,
            self._every_label,
            list(self.headers),
            self.profiles,
            columns,
            (bytes32_of(stacks.words, stacks.ends[stacks.count]), bytes_of(stacks.ends, stacks.count + 1)),
            [
                (
                    bytes32_of(numbered.stacks, numbered.n_stacks),
                    bytes_of(numbered.values, numbered.n_values),
                    bytes_of(numbered.mappings, 7 * numbered.n_mappings),
                    bytes_of(numbered.inner_columns, numbered.n_inner_columns),
                    numbered.ends,
                )
                for numbered in self.numbered
            ],
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        limits, every_label, headers, profiles, columns, stacks, every = state
        self.__init__(limits, every_label=every_label)  # type: ignore[misc]
        self.headers.of(headers)
        self.profiles = profiles
        tables = self.tables
        for table, (words, row_ends) in zip(_tables(tables), columns, strict=True):
            table.words, table.ends = column_of(words), column_of(row_ends)
            table.count = len(table.ends) - 1
        tables.stacks.words, tables.stacks.ends = column32_of(stacks[0]), column_of(stacks[1])
        tables.stacks.count = len(tables.stacks.ends) - 1
        *self._full, tables.numbered = map(_unpickled, every)

    def merge(self, depth: int | None = None) -> Profile:
        """Return the merge of all profiles. `depth` is as in `Collection.merge`.

        Profiles that are `alike` are merged in the order in which they were read. The merge has a digest if
        all profiles have one.

        Raises IncompatibleProfiles if the profiles' types differ, and ProfileError if there is no profile.
        """
        if not self.profiles:
            raise ProfileError("there is no profile to merge")
        profiles = self.profiles
        keys = [profile.sort_key for profile in profiles]
        order = sorted(range(len(profiles)), key=keys.__getitem__)
        ordered = [profiles[number] for number in order]
        every = list(self.headers)
        header = combine_headers(
            [every[number] for number, _ in groupby(ordered, attrgetter("header"))],
            [profile.time_nanos for profile in ordered],
            [profile.duration_nanos for profile in ordered],
        )
        columns_of = {
            number: column_order(every[number].sample_types, header.sample_types)
            for number in {profile.header for profile in profiles}
        }
        tables, totals, uses = self.tables, Totals(len(header.sample_types)), Uses()
        places = [(numbered, number) for numbered in self.numbered for number in range(len(numbered))]
        for number, profile in zip(order, ordered, strict=True):
            numbered, place = places[number]
            totals.add(numbered, place, columns_of[profile.header], tables.stacks.count)
            uses.add(keys[number], tables, numbered, place)
        columns = assemble(tables, tables.strings.since(0), uses, totals, WHOLE if depth is None else depth)
        digests = [profile.digest for profile in ordered]
        return Profile(header, columns, digest_of(b"".join(digests)) if all(digests) else b"")


def _unpickled(state: tuple[Any, ...]) -> NumberedColumns:
    stacks, values, mappings, inner_columns, ends = state
    numbered = NumberedColumns()
    numbered.stacks, numbered.values = column32_of(stacks), column_of(values)
    numbered.mappings, numbered.inner_columns = column_of(mappings), column_of(inner_columns)
    numbered.ends = ends
    numbered.n_stacks, numbered.n_values, numbered.n_mappings, numbered.n_inner_columns = ends[-1]
    return numbered


def _tables(tables: Numbering) -> list[Table]:
    """Return all tables of 64-bit words."""
    return [
        tables.strings.table,
        tables.mappings,
        tables.functions,
        tables.locations,
        tables.label_sets,
        tables.inner_columns,
    ]


def merge(profiles: Iterable[Profile]) -> Profile:
    """Return the merge of all profiles. They are read one at a time and not kept.

    Raises IncompatibleProfiles if their types differ, and ProfileError if there is no profile.
    """
    batch = Batch()
    for profile in profiles:
        batch.add(profile.header, profile.columns, profile.digest)
    return batch.merge()
