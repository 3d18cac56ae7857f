"""A batch: profiles that were read and numbered, with their traces as the engine's columns.

The command merges a batch and ends; nothing here needs NumPy. A `Collection` takes the traces of batch after
batch, and keeps them for any selection.
"""

import hashlib
from collections.abc import Iterable
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from time import perf_counter_ns
from typing import Any, NamedTuple

from pprof_merge.codec.decoding import StepTimes, digest_of, header_of, read
from pprof_merge.columns.interning import Interner
from pprof_merge.columns.tables import Table
from pprof_merge.columns.vectors import bytes32_of, bytes_of, column32_of, column_of
from pprof_merge.errors import ProfileError
from pprof_merge.limits import Limits
from pprof_merge.merging.assembly import WHOLE, Totals, Uses, assemble
from pprof_merge.merging.headers import column_order, combine_headers
from pprof_merge.merging.numbering import Numbering, TraceColumns
from pprof_merge.profile import Header, Profile, ProfileColumns

# Traces with this many values (2 MiB) are left as they are, and the next profiles get columns of their own:
# to make a column longer takes the memory of both.
_PART_VALUES = 1 << 18


class BatchProfile(NamedTuple):
    """A profile of a batch: the number of its header, which has no times, its times in ns, and its digest."""

    header: int
    time_nanos: int
    duration_nanos: int
    digest: bytes


# Profiles are merged in this order, so that the same set gives the same bytes.
_order = itemgetter(BatchProfile._fields.index("time_nanos"), BatchProfile._fields.index("digest"))


class Batch:
    """Profiles that were read, and the `tables` that they share; `limits` hold for each profile.

    A profile that is refused leaves nothing behind.
    """

    def __init__(self, limits: Limits = Limits()) -> None:
        self.tables = Numbering()
        # Headers without times, so that the profiles of one program share one.
        self.headers: Interner[Header] = Interner()
        self.profiles: list[BatchProfile] = []
        # Full traces. Those of the last profiles are in the tables.
        self._full: list[TraceColumns] = []
        self._limits = limits

    def __len__(self) -> int:
        return len(self.profiles)

    def read(self, data: bytes, times: StepTimes | None = None) -> None:
        """Add a profile, gzip or bare protobuf. Raises ProfileError if it is refused."""
        times = times or StepTimes()
        reader = read(data, self._limits, times)
        began = perf_counter_ns()
        self.add(header_of(reader), reader, digest_of(reader))
        times.intern += perf_counter_ns() - began

    def add(self, header: Header, columns: ProfileColumns, digest: bytes) -> None:
        """Add a profile that was read."""
        number = self.headers[header._replace(time_nanos=0, duration_nanos=0)]
        if self.tables.traces.n_values >= _PART_VALUES:
            self._begin_traces()
        self.tables.add(columns)
        self.profiles.append(BatchProfile(number, header.time_nanos, header.duration_nanos, digest))

    def header(self, number: int) -> Header:
        """Return the header of a profile."""
        profile = self.profiles[number]
        timeless = next(islice(self.headers, profile.header, None))
        return timeless._replace(time_nanos=profile.time_nanos, duration_nanos=profile.duration_nanos)

    def absorb(self, other: "Batch") -> None:
        """Add all profiles of another batch, in their order: what they share is mapped, not read again."""
        headers = self.headers.of(other.headers)
        self.profiles += [each._replace(header=headers[each.header]) for each in other.profiles]
        numbers = self.tables.absorb(other.tables)
        for traces in other.traces:
            self._begin_traces()
            self.tables.traces.absorb(traces, numbers)

    def take(self) -> tuple[list[TraceColumns], list[BatchProfile]]:
        """Return all traces and profiles, in their order, and keep none of them."""
        taken = self.traces, self.profiles
        self._full, self.tables.traces, self.profiles = [], TraceColumns(), []
        return taken

    @property
    def traces(self) -> list[TraceColumns]:
        """The traces of all profiles, in their order."""
        return [*self._full, self.tables.traces]

    def _begin_traces(self) -> None:
        """Give the next profiles columns of their own, with as much room as those of the last ones have."""
        last = self.tables.traces
        self._full.append(last)
        self.tables.traces = TraceColumns(len(last.stacks), len(last.values))

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
            list(self.headers),
            self.profiles,
            columns,
            (bytes32_of(stacks.words, stacks.ends[stacks.count]), bytes_of(stacks.ends, stacks.count + 1)),
            [
                (
                    bytes32_of(traces.stacks, traces.n_stacks),
                    bytes_of(traces.values, traces.n_values),
                    bytes_of(traces.mappings, 7 * traces.n_mappings),
                    bytes_of(traces.inner_columns, traces.n_inner_columns),
                    traces.ends,
                )
                for traces in self.traces
            ],
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        limits, headers, profiles, columns, stacks, every = state
        self.__init__(limits)  # type: ignore[misc]
        self.headers.of(headers)
        self.profiles = profiles
        tables = self.tables
        for table, (words, row_ends) in zip(_tables(tables), columns, strict=True):
            table.words, table.ends = column_of(words), column_of(row_ends)
            table.count = len(table.ends) - 1
        tables.stacks.words, tables.stacks.ends = column32_of(stacks[0]), column_of(stacks[1])
        tables.stacks.count = len(tables.stacks.ends) - 1
        *self._full, tables.traces = map(_unpickled, every)

    def merge(self, depth: int | None = None) -> Profile:
        """Return the merge of all profiles. `depth` is as in `Collection.merge`.

        Raises IncompatibleProfiles if the profiles' types differ, and ProfileError if there is no profile.
        """
        if not self.profiles:
            raise ProfileError("there is no profile to merge")
        profiles = self.profiles
        order = sorted(range(len(profiles)), key=lambda number: _order(profiles[number]))
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
        places = [(traces, number) for traces in self.traces for number in range(len(traces))]
        for number, profile in zip(order, ordered, strict=True):
            traces, place = places[number]
            totals.add(traces, place, columns_of[profile.header], tables.stacks.count)
            uses.add(tables, traces, place)
        columns = assemble(tables, uses, totals, WHOLE if depth is None else depth)
        return Profile(header, columns, hashlib.sha256(b"".join(each.digest for each in ordered)).digest())


def _unpickled(state: tuple[Any, ...]) -> TraceColumns:
    stacks, values, mappings, inner_columns, ends = state
    traces = TraceColumns()
    traces.stacks, traces.values = column32_of(stacks), column_of(values)
    traces.mappings, traces.inner_columns = column_of(mappings), column_of(inner_columns)
    traces.ends = ends
    traces.n_stacks, traces.n_values, traces.n_mappings, traces.n_inner_columns = ends[-1]
    return traces


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
