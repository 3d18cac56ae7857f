"""Which programs lack names, and how much of a profile that concerns: a profile, to rows of a table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pprof_merge.arrays import Int64s
from pprof_merge.profile import Profile
from pprof_merge.symbols.naming import bare_locations


class UnnamedBuild(NamedTuple):
    """A program or library that has addresses without functions.

    `build_id` and `file` are as mappings have them, "" if they don't. `flat` is the value of the samples
    whose leaf is such an address, `cum` of those with one anywhere, and `addresses` how many distinct ones.
    """

    build_id: str
    file: str
    flat: int
    cum: int
    addresses: int


def unnamed_builds(profile: Profile, column: int) -> list[UnnamedBuild]:
    """Return the programs that lack names, by the values (absolute) of one sample type, the largest first."""
    bare = bare_locations(profile)
    if not bare.any():
        return []
    builds, build_of = _builds(profile)
    samples, locations = profile.samples, profile.locations
    values, counts = np.abs(samples.values[:, column]), np.diff(samples.location_offsets)
    flat, cum = np.zeros(len(builds), np.int64), np.zeros(len(builds), np.int64)
    leaves, with_leaf = _leaves(profile)
    is_bare = bare[leaves]
    np.add.at(flat, build_of[leaves[is_bare]], values[with_leaf[is_bare]])
    frames = bare[samples.locations]
    # Each sample counts once for a build, however many of its addresses are in the stack.
    rows = np.repeat(np.arange(len(counts)), counts)[frames]
    pairs = np.unique(rows * len(builds) + build_of[samples.locations[frames]])
    np.add.at(cum, pairs % len(builds), values[pairs // len(builds)])
    places = np.unique(np.stack((build_of[bare], locations.address[bare].view(np.int64)), axis=1), axis=0)
    addresses = np.bincount(places[:, 0], minlength=len(builds))
    found = [
        UnnamedBuild(*builds[row], int(flat[row]), int(cum[row]), int(addresses[row]))
        for row in np.flatnonzero(addresses).tolist()
    ]
    return sorted(found, key=lambda each: (-each.flat, -each.cum, each.build_id, each.file))


def unnamed_value(profile: Profile, column: int) -> int:
    """Return the value (absolute) of the samples whose leaf has no function."""
    leaves, with_leaf = _leaves(profile)
    is_bare = bare_locations(profile)[leaves]
    return int(np.abs(profile.samples.values[with_leaf[is_bare], column]).sum())


def _leaves(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return the locations of leaves, and their samples: all but those without a stack."""
    offsets = profile.samples.location_offsets
    with_leaf = np.flatnonzero(np.diff(offsets))
    return profile.samples.locations[offsets[with_leaf]], with_leaf


def _builds(profile: Profile) -> tuple[list[tuple[str, str]], Int64s]:
    """Return the build ids and files of the mappings, each pair once, and the row of each location's."""
    mappings = profile.mappings

    def text(row: int) -> str:
        return profile.strings[row].decode(errors="backslashreplace")

    rows: dict[tuple[str, str], int] = {}
    row_of = [
        rows.setdefault((text(build_id), text(file)), len(rows))
        for build_id, file in zip(mappings.build_id.tolist(), mappings.filename.tolist(), strict=True)
    ]
    row_of.append(rows.setdefault(("", ""), len(rows)))  # of locations without a mapping, which is -1
    return [*rows], np.array(row_of, np.int64)[profile.locations.mapping]
