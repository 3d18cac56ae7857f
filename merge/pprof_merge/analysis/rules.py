"""Rules: drop functions from a profile, or keep the compiler from inlining them.

A file of rules has one rule a line; blank lines and lines that begin with # are ignored:

    drop runtime.gcBgMarkWorker
    noinline google.golang.org/grpc/internal/transport.(*loopyWriter).processData
    noinline /runtime[.]gopark.*/

The pattern is the rest of the line: the whole name of a function, or a regular expression of Python's `re`
between slashes, which must match the whole name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pprof_merge.arrays import Bools, Int64s, Ints
from pprof_merge.columns.ragged import offsets_of, rows_of_indexes, spans
from pprof_merge.errors import RulesInvalid
from pprof_merge.merging.batch import merge
from pprof_merge.profile import Profile
from pprof_merge.profile.records import Lines, Locations, Samples

# The prefix that Datadog's datadog-pgo writes. The compiler knows no function of such a name, so it finds no
# call of it in the profile that is worth inlining.
NOINLINE_PREFIX = b"DO NOT INLINE: "

_VERBS = ("drop", "noinline")


@dataclass(frozen=True, slots=True)
class Rules:
    """The patterns of each kind of rule, as they are written in the file."""

    drop: tuple[str, ...] = ()
    noinline: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.drop) + len(self.noinline)

    def __str__(self) -> str:
        """Return a file of these rules: the same text for the same rules, without comments."""
        return "".join(f"{verb} {pattern}\n" for verb in _VERBS for pattern in sorted({*getattr(self, verb)}))


def parse_rules(text: bytes) -> Rules:
    """Return the rules of a file. Raises RulesInvalid, which names the line and what is wrong with it."""
    patterns: dict[str, list[str]] = {verb: [] for verb in _VERBS}
    for number, raw in enumerate(text.splitlines(), 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise RulesInvalid("not UTF-8", number) from None
        if not line or line.startswith("#"):
            continue
        verb, pattern = (*line.split(maxsplit=1), "")[:2]
        if verb not in patterns:
            raise RulesInvalid(f"unknown rule {verb!r}; a rule begins with {' or '.join(_VERBS)}", number)
        if not pattern:
            raise RulesInvalid(f"{verb} needs the name of a function, or a /regular expression/", number)
        try:
            _matcher(pattern)
        except re.error as error:
            raise RulesInvalid(f"{pattern}: {error}", number) from None
        patterns[verb].append(pattern)
    return Rules(**{verb: tuple(found) for verb, found in patterns.items()})


def apply_rules(profile: Profile, rules: Rules) -> Profile:
    """Return the profile with the rules applied; the same object if they match nothing.

    `drop` cuts each stack at the outermost frame of the function. The function and all that it called are
    removed, its caller becomes the leaf, and the value counts as the caller's own. A sample with no frame
    left is removed. `noinline` puts NOINLINE_PREFIX before the function's name and system name. Functions are
    matched by `name`.
    """
    if not rules:
        return profile
    names = [profile.strings[row] for row in profile.functions.name.tolist()]
    dropped, renamed = _matching(names, rules.drop), _matching(names, rules.noinline)
    renamed[[name.startswith(NOINLINE_PREFIX) for name in names]] = False
    if not (dropped.any() or renamed.any()):
        return profile
    # The merge sums stacks and functions that have become equal.
    return merge([_renamed(_cut(profile, dropped), renamed)])


def _matcher(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that has to match a whole name. Raises re.error."""
    is_regexp = len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")
    return re.compile(pattern[1:-1] if is_regexp else re.escape(pattern), re.DOTALL)


def _matching(names: list[bytes], patterns: Iterable[str]) -> Bools:
    """Return whether any pattern matches each name, (n_names); no pattern matches the empty name."""
    matchers = [_matcher(pattern) for pattern in patterns]
    matches = {
        name: name != b"" and any(each.fullmatch(text) for each in matchers)
        for name in {*names}  # each name once: functions share names, and hostile names are long
        for text in (name.decode(errors="surrogateescape"),)
    }
    return np.array([matches[name] for name in names], np.bool_)


def _cut(profile: Profile, dropped: Bools) -> Profile:
    """Return the profile with its stacks cut at the functions that are `dropped`, (n_functions)."""
    lines, samples = profile.locations.lines, profile.samples
    removed = _lines_to_remove(lines, dropped)
    n_lines = np.diff(lines.offsets)
    starts = samples.location_offsets[:-1].copy()
    hits = np.flatnonzero(removed[samples.locations])
    # The outermost of several hits in a sample is the last one, so its assignment stays.
    starts[rows_of_indexes(samples.location_offsets, hits)] = (
        hits + (removed == n_lines)[samples.locations[hits]]
    )
    counts = samples.location_offsets[1:] - starts
    values = samples.values.copy()
    values[(counts == 0) & (np.diff(samples.location_offsets) > 0)] = 0  # a merge leaves out samples of 0
    return profile.replace(
        samples=Samples(values, samples.locations[spans(starts, counts)], offsets_of(counts), samples.labels),
        locations=_trimmed(profile.locations, removed),
    )


def _lines_to_remove(lines: Lines, dropped: Bools) -> Int64s:
    """Return how many of the innermost lines each location loses, (n_locations).

    They are the outermost line of a dropped function and all lines inlined into it.
    """
    hits = np.flatnonzero(dropped[lines.function])
    rows = rows_of_indexes(lines.offsets, hits)
    removed = np.zeros(len(lines.offsets) - 1, np.int64)
    removed[rows] = hits + 1 - lines.offsets[rows]
    return removed


def _trimmed(locations: Locations, removed: Int64s) -> Locations:
    """Return the locations without their innermost lines, `removed` (n_locations) of each."""
    lines = locations.lines
    counts = np.diff(lines.offsets) - removed
    kept = spans(lines.offsets[:-1] + removed, counts)
    trimmed = Lines(lines.function[kept], lines.line[kept], lines.column[kept], offsets_of(counts))
    return replace(locations, lines=trimmed)


def _renamed(profile: Profile, renamed: Bools) -> Profile:
    """Return the profile with the prefix before the name and the system name of some functions.

    A function is `renamed` or not, (n_functions); an empty name stays empty.
    """
    functions, strings = profile.functions, list(profile.strings)
    rows: dict[int, int] = {}  # from the row of a string to the row of the prefixed string

    def prefixed(column: Ints) -> Int64s:
        changed = column.astype(np.int64)
        for row in np.flatnonzero(renamed).tolist():
            text_row = int(column[row])
            if text_row not in rows and strings[text_row]:
                rows[text_row] = len(strings)
                strings.append(NOINLINE_PREFIX + strings[text_row])
            changed[row] = rows.get(text_row, text_row)
        return changed

    names, system_names = prefixed(functions.name), prefixed(functions.system_name)
    return profile.replace(
        functions=replace(functions, name=names, system_name=system_names), strings=strings
    )
