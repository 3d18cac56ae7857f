"""Focus: the part of a profile with some of its samples or frames, chosen by calls or by names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pprof_merge.analysis.demangling import shown_name
from pprof_merge.analysis.stacks import stacks_of
from pprof_merge.arrays import Bools, Int64s, Ints
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.columns.ragged import offsets_of, rows_of_indexes
from pprof_merge.merging.batch import merge
from pprof_merge.profile import Profile
from pprof_merge.profile.records import Lines, Locations, Samples

# Whether a name matches a pattern.
NameMatcher = Callable[[str], bool]


def focus_calls(profile: Profile, calls: Sequence[str], budget: Budget = UNBOUNDED) -> Profile:
    """Return a profile with the samples whose stacks begin with these functions, the root first.

    It has nothing that only other samples use; without `calls` it is the profile itself. Raises
    OutputTooLarge if the functions take more than the budget.
    """
    if not calls:
        return profile
    stacks = stacks_of(profile, budget)
    calls = [*map(shown_name, calls)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(calls))}
    number_of = np.array([numbers.get(frame.name, -1) for frame in stacks.frames], np.int64)
    rows = [np.zeros(0, np.int64)]
    for chunk in stacks.chunks():
        kept = np.flatnonzero(np.diff(chunk.offsets) >= len(calls))
        for depth, name in enumerate(calls):
            kept = kept[number_of[chunk.rows[chunk.offsets[kept] + depth]] == numbers[name]]
        rows.append(chunk.first + kept)
    return merge([profile.replace(samples=profile.samples.take(np.concatenate(rows)))])


def focus_names(
    profile: Profile,
    *,
    focus: NameMatcher | None = None,
    ignore: NameMatcher | None = None,
    hide: NameMatcher | None = None,
) -> Profile:
    """Return the part of a profile that `go tool pprof -focus -ignore -hide` shows; None is for no pattern.

    Kept are the samples with a location that `focus` matches and none that `ignore` matches, without the
    frames that `hide` matches. A location matches by the names of its functions, the paths of their files and
    the path of its binary. A sample of which no location is left is left out. So is one that had none.
    """
    if focus is None and ignore is None and hide is None:
        return profile
    samples, locations = profile.samples, profile.locations
    is_wanted = np.ones(len(locations), np.bool_)
    is_unwanted = np.zeros(len(locations), np.bool_)
    if focus is not None:
        is_wanted = _matching(profile, focus).locations
    if ignore is not None:
        is_unwanted = _matching(profile, ignore).locations
    kept = _with_location(samples, is_wanted) & ~_with_location(samples, is_unwanted)
    samples = samples.take(np.flatnonzero(kept))
    if hide is not None:
        locations, is_hidden = _without_lines(locations, _matching(profile, hide))
        samples = _without_locations(samples, is_hidden)
    # The merge sums stacks that have become equal.
    return merge([profile.replace(samples=samples, locations=locations)])


class _Matching(NamedTuple):
    """The matches of a pattern: `binaries` by path (n_locations), `lines` by function (n_lines).

    `locations` (n_locations) are true where the binary or any line matches.
    """

    binaries: Bools
    lines: Bools
    locations: Bools


def _matching(profile: Profile, matches: NameMatcher) -> _Matching:
    functions, locations = profile.functions, profile.locations
    of_string = _matching_strings(
        profile.strings, (functions.name, functions.filename, profile.mappings.filename), matches
    )
    is_function = of_string[functions.name] | of_string[functions.filename]
    is_mapping = np.append(of_string[profile.mappings.filename], False)  # the last is for no mapping, -1
    binaries, lines = is_mapping[locations.mapping], is_function[locations.lines.function]
    matching = binaries.copy()
    matching[rows_of_indexes(locations.lines.offsets, np.flatnonzero(lines))] = True
    return _Matching(binaries, lines, matching)


def _matching_strings(strings: Sequence[bytes], columns: Sequence[Ints], matches: NameMatcher) -> Bools:
    """Return whether each string matches, (n_strings); only those in the columns are looked at, each once."""
    found = np.zeros(len(strings), np.bool_)
    for row in np.unique(np.concatenate(columns)).tolist():
        found[row] = matches(strings[row].decode(errors="backslashreplace"))
    return found


def _with_location(samples: Samples, chosen: Bools) -> Bools:
    """Return whether any location of each sample is chosen, (n_samples); `chosen` is (n_locations)."""
    found = np.zeros(len(samples), np.bool_)
    found[rows_of_indexes(samples.location_offsets, np.flatnonzero(chosen[samples.locations]))] = True
    return found


def _without_lines(locations: Locations, matching: _Matching) -> tuple[Locations, Bools]:
    """Return the locations without the lines that match, and whether nothing is left of each: (n_locations).

    Nothing is left of a location whose binary matches.
    """
    lines = locations.lines
    is_kept = ~(matching.lines | np.repeat(matching.binaries, np.diff(lines.offsets)))
    offsets = offsets_of(is_kept)[lines.offsets]
    kept = Lines(lines.function[is_kept], lines.line[is_kept], lines.column[is_kept], offsets)
    return replace(locations, lines=kept), matching.locations & (np.diff(offsets) == 0)


def _without_locations(samples: Samples, chosen: Bools) -> Samples:
    """Return the samples without the locations that are chosen, and without those that then have none."""
    is_kept = ~chosen[samples.locations]
    offsets: Int64s = offsets_of(is_kept)[samples.location_offsets]
    left = Samples(samples.values, samples.locations[is_kept], offsets, samples.labels)
    return left.take(np.flatnonzero(np.diff(offsets)))
