"""A profile as columns: `decode` returns it, `merge` takes and returns it, and `encode` writes it.

Its tables refer to each other by row number, counted from 0; the ids of the wire format do not appear here.
A string is a row number in `strings`. `header` has what is not a table, `columns` the tables as the engine
works with them, and `tables` the same memory as NumPy's arrays, which `records` makes on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pprof_merge.profile.columns import ProfileColumns
from pprof_merge.profile.header import Header, ValueType

if TYPE_CHECKING:
    from pprof_merge.profile.records import Functions, Locations, Mappings, Samples, Tables

__all__ = ["Header", "Profile", "ProfileColumns", "ValueType"]


class Profile:
    """A whole profile: a header and tables of columns.

    `strings[0]` is the empty string. `digest` (32 bytes) is the SHA-256 of the bare protobuf for a decoded
    profile, and the SHA-256 of its inputs' digests, in order, for a merged one, or empty if they weren't
    wanted. The arrays of the tables can't be written to.
    """

    __slots__ = ("_tables", "columns", "digest", "header")

    def __init__(self, header: Header, columns: ProfileColumns, digest: bytes) -> None:
        self.header = header
        self.columns = columns
        self.digest = digest
        self._tables: Tables | None = None

    @property
    def strings(self) -> list[bytes]:
        """The strings, which tables refer to."""
        return self.columns.strings

    @property
    def samples(self) -> Samples:
        """The samples."""
        return self.tables.samples

    @property
    def mappings(self) -> Mappings:
        """The mappings, the main binary's first."""
        return self.tables.mappings

    @property
    def locations(self) -> Locations:
        """The locations and their source lines."""
        return self.tables.locations

    @property
    def functions(self) -> Functions:
        """The functions."""
        return self.tables.functions

    @property
    def tables(self) -> Tables:
        """All tables as NumPy's arrays."""
        if self._tables is None:
            from pprof_merge.profile.records import records_of  # noqa: PLC0415 - imports NumPy

            self._tables = records_of(self.columns)
        return self._tables

    def replace(
        self,
        *,
        header: Header | None = None,
        samples: Samples | None = None,
        mappings: Mappings | None = None,
        locations: Locations | None = None,
        functions: Functions | None = None,
        strings: list[bytes] | None = None,
    ) -> Profile:
        """Return the profile with other tables in place of those that are given."""
        from pprof_merge.profile.records import Tables, columns_of  # noqa: PLC0415 - imports NumPy

        tables = Tables(
            self.samples if samples is None else samples,
            self.mappings if mappings is None else mappings,
            self.locations if locations is None else locations,
            self.functions if functions is None else functions,
        )
        columns = columns_of(tables, self.strings if strings is None else strings)
        return Profile(header or self.header, columns, self.digest)
