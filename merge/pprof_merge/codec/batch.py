"""Batches: several profiles in one set of tables, decoded together and interned together.

Most profiles are small, and a call to NumPy costs little more for all of them than for one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pprof_merge.profile import Functions, Header, Int64s, Locations, Mappings, Profile, Samples


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The tables of n profiles, one profile's rows after another's; rows refer to rows of these tables.

    In each table, profile i has the rows from offsets[i] to offsets[i + 1]; the offsets are (n + 1).
    """

    headers: list[Header]
    digests: list[bytes]
    samples: Samples
    sample_offsets: Int64s
    mappings: Mappings
    mapping_offsets: Int64s
    locations: Locations
    location_offsets: Int64s
    functions: Functions
    function_offsets: Int64s
    strings: list[bytes]

    def __len__(self) -> int:
        return len(self.headers)

    @classmethod
    def of(cls, profile: Profile) -> Batch:
        """Return a batch of one profile."""
        return cls(
            headers=[profile.header],
            digests=[profile.digest],
            samples=profile.samples,
            sample_offsets=np.array([0, len(profile.samples)]),
            mappings=profile.mappings,
            mapping_offsets=np.array([0, len(profile.mappings)]),
            locations=profile.locations,
            location_offsets=np.array([0, len(profile.locations)]),
            functions=profile.functions,
            function_offsets=np.array([0, len(profile.functions)]),
            strings=profile.strings,
        )

    def counts_of_start_lines(self) -> Int64s:
        """Return the number of functions with a start line of each profile, (n,) int64."""
        counts = np.cumsum(np.append(0, self.functions.start_line != 0))
        return np.diff(counts[self.function_offsets])

    def single(self) -> Profile:
        """Return the profile of a batch of one."""
        (header,), (digest,) = self.headers, self.digests
        return Profile(
            header, self.samples, self.mappings, self.locations, self.functions, self.strings, digest
        )
