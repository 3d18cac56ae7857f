"""Rules: functions that a profile is to be without, and functions that it must not get inlined.

A file of rules has one a line; blank lines, and lines that begin with #, are dropped:

    drop runtime.gcBgMarkWorker
    noinline google.golang.org/grpc/internal/transport.(*loopyWriter).processData
    noinline /runtime[.]gopark.*/

The pattern is the rest of the line: a function's whole name, or, between slashes, a regular expression
of Python's `re` that has to match the whole name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pprof_merge.columns.ragged import offsets_of, rows_of_indexes, spans
from pprof_merge.errors import RulesInvalid
from pprof_merge.merging.merge import merge
from pprof_merge.profile import Bools, Int64s, Ints, Lines, Locations, Profile, Samples

# As Datadog's datadog-pgo writes it. No compiler knows a function of such a name, so that it finds no call
# of it in the profile that could be worth inlining.
NOINLINE_PREFIX = b"DO NOT INLINE: "

_VERBS = ("drop", "noinline")


@dataclass(frozen=True, slots=True)
class Rules:
    """The patterns of each kind, as they are written in the file; without any, nothing changes."""

    drop: tuple[str, ...] = ()
    noinline: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.drop) + len(self.noinline)

    def __str__(self) -> str:
        """A file of these rules: the same text for the same rules, whatever the comments."""
        return "".join(f"{verb} {pattern}\n" for verb in _VERBS for pattern in sorted({*getattr(self, verb)}))


def parse_rules(text: bytes) -> Rules:
    """The rules of a file. Raises RulesInvalid, which says which line is none, and why."""
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
            raise RulesInvalid(f"{verb!r} is no rule; there are {' and '.join(_VERBS)}", number)
        if not pattern:
            raise RulesInvalid(f"{verb} needs the name of a function", number)
        try:
            _matcher(pattern)
        except re.error as error:
            raise RulesInvalid(f"{pattern}: {error}", number) from None
        patterns[verb].append(pattern)
    return Rules(**{verb: tuple(found) for verb, found in patterns.items()})


def apply_rules(profile: Profile, rules: Rules) -> Profile:
    """The profile by the rules; the profile itself where they match nothing.

    `drop` cuts each stack at the outermost frame of the function: it goes, with all that it called, and
    its caller is the leaf, so that the time counts as the caller's own. A sample of which nothing is left
    goes too. `noinline` puts NOINLINE_PREFIX before the function's names. Functions are matched by `name`.
    """
    if not rules:
        return profile
    names = [profile.strings[row] for row in profile.functions.name.tolist()]
    dropped, renamed = _matching(names, rules.drop), _matching(names, rules.noinline)
    renamed[[name.startswith(NOINLINE_PREFIX) for name in names]] = False
    if not (dropped.any() or renamed.any()):
        return profile
    # Stacks and functions that have become the same are summed by a merge.
    return merge([_renamed(_cut(profile, dropped), renamed)])


def _matcher(pattern: str) -> re.Pattern[str]:
    """Matches the whole of what the pattern stands for. Raises re.error."""
    is_regexp = len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")
    return re.compile(pattern[1:-1] if is_regexp else re.escape(pattern), re.DOTALL)


def _matching(names: list[bytes], patterns: Iterable[str]) -> Bools:
    """Which names any of the patterns matches; none matches the name of a function without one."""
    matchers = [_matcher(pattern) for pattern in patterns]
    matches = {
        name: name != b"" and any(each.fullmatch(text) for each in matchers)
        for name in {*names}  # functions share names, and hostile ones long ones
        for text in (name.decode(errors="surrogateescape"),)
    }
    return np.array([matches[name] for name in names], np.bool_)


def _cut(profile: Profile, dropped: Bools) -> Profile:
    """Cuts the stacks below the callers of the functions that are dropped, (n_functions,)."""
    lines, samples = profile.locations.lines, profile.samples
    removed = _lines_to_remove(lines, dropped)  # of each location, the innermost so many
    n_lines = np.diff(lines.offsets)
    starts = samples.location_offsets[:-1].copy()
    hits = np.flatnonzero(removed[samples.locations])
    # Of several hits in a sample the outermost is the last, and stays.
    starts[rows_of_indexes(samples.location_offsets, hits)] = (
        hits + (removed == n_lines)[samples.locations[hits]]
    )
    counts = samples.location_offsets[1:] - starts
    values = samples.values.copy()
    values[(counts == 0) & (np.diff(samples.location_offsets) > 0)] = 0  # a merge leaves these out
    return replace(
        profile,
        samples=Samples(values, samples.locations[spans(starts, counts)], offsets_of(counts), samples.labels),
        locations=_trimmed(profile.locations, removed),
    )


def _lines_to_remove(lines: Lines, dropped: Bools) -> Int64s:
    """How many lines of each location go: the outermost that is dropped and all that are inlined in it."""
    hits = np.flatnonzero(dropped[lines.function])
    rows = rows_of_indexes(lines.offsets, hits)
    removed = np.zeros(len(lines.offsets) - 1, np.int64)
    removed[rows] = hits + 1 - lines.offsets[rows]
    return removed


def _trimmed(locations: Locations, removed: Int64s) -> Locations:
    """Locations without their innermost lines, so many of each."""
    lines = locations.lines
    counts = np.diff(lines.offsets) - removed
    kept = spans(lines.offsets[:-1] + removed, counts)
    trimmed = Lines(lines.function[kept], lines.line[kept], lines.column[kept], offsets_of(counts))
    return replace(locations, lines=trimmed)


def _renamed(profile: Profile, renamed: Bools) -> Profile:
    """Functions with the prefix before both of their names, as far as they have them."""
    functions, strings = profile.functions, list(profile.strings)
    rows: dict[int, int] = {}  # of each string that is changed, the row of what it becomes

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
    return replace(
        profile, functions=replace(functions, name=names, system_name=system_names), strings=strings
    )
