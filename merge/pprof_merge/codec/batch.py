"""Profiles side by side: decoded together, and taken into a `Dictionary` together.

What it does for all of them at once costs NumPy little more than for one, and most profiles are small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pprof_merge.profile import Functions, Header, Int64s, Locations, Mappings, Profile, Samples


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The tables of P profiles, one profile's rows after another's; rows refer to rows of these tables.

    Of each table, the rows of profile i are those from offsets[i] to offsets[i + 1] (P + 1).
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
    strings: list[bytes]

    def __len__(self) -> int:
        return len(self.headers)

    @classmethod
    def of(cls, profile: Profile) -> Batch:
        """One profile."""
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
            strings=profile.strings,
        )

    def single(self) -> Profile:
        """The profile of a batch of one."""
        (header,), (digest,) = self.headers, self.digests
        return Profile(
            header, self.samples, self.mappings, self.locations, self.functions, self.strings, digest
        )
