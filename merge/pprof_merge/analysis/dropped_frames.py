"""The frames that a profile wants its readers to leave out: its `drop_frames`, but not its `keep_frames`.

They are left out of views as `go tool pprof` does it (google/pprof, `profile/prune.go`). Merges and what
compilers read keep them.

The expressions come with profiles, so they may be hostile. RE2 takes time that is linear in a name, and
memory within a bound; the expressions and the time for all names have bounds, too. Expressions that are over
one, or that can't be used at all, are ignored: `go tool pprof` ignores what it can't compile, and one
sender's profile must not be the end of a view of all.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from time import thread_time
from typing import Any

import numpy as np

from pprof_merge.arrays import Bools, Int64s
from pprof_merge.columns.ragged import offsets_of, rows_of_indexes
from pprof_merge.profile import Profile
from pprof_merge.profile.records import Lines, Locations, Samples

# Bytes of one expression: the longest that allocators write are of 1 to 2 KB.
LONGEST_EXPRESSION = 10_000
# Memory, in bytes, of one compiled expression.
_EXPRESSION_MEMORY = 1 << 20
# CPU time, in seconds, that the expressions may take for the names of one profile.
_MOST_SECONDS = 1.0
# Stacks are cut at most this many frames at a time, or one by one, since it takes much memory for each frame.
_CHUNK_FRAMES = 1 << 18
# The parentheses of a name; its arguments begin at the first that isn't one of the two longer texts.
_PARENTHESES = re.compile(rb"\(anonymous namespace\)|operator\(\)|\(")


def without_dropped_frames(profile: Profile) -> Profile:
    """Return a profile as `go tool pprof` shows it, without the frames that it drops.

    Each stack ends at the outermost frame that is dropped, if a frame that isn't is further out. Samples stay
    in their rows. The header has no expressions any more, so nothing is dropped twice. A profile without
    `drop_frames` is returned as it is.
    """
    header = profile.header
    if not header.drop_frames:
        return profile
    is_dropped = _dropped_functions(profile)
    header = header._replace(drop_frames=b"", keep_frames=b"")
    if not is_dropped.any():
        return profile.replace(header=header)
    locations, is_cut, is_gone = _cut_locations(profile.locations, is_dropped)
    samples = _cut_samples(profile.samples, is_cut, is_gone)
    return profile.replace(header=header, locations=locations, samples=samples)


def _dropped_functions(profile: Profile) -> Bools:
    """Return whether each function's name matches `drop_frames` and not `keep_frames`, (n_functions)."""
    strings, names = profile.strings, profile.functions.name
    found = np.zeros(len(strings), np.bool_)
    nothing = found[names]
    drop, keep = _compiled(profile.header.drop_frames), _compiled(profile.header.keep_frames)
    if drop is None or keep is None:
        return nothing
    is_kept = keep.search if profile.header.keep_frames else lambda _: None
    end = thread_time() + _MOST_SECONDS
    for row in np.unique(names).tolist():
        if thread_time() > end:
            return nothing
        name = simplified(strings[row])
        found[row] = bool(strings[row]) and drop.search(name) is not None and is_kept(name) is None
    return found[names]


@lru_cache(maxsize=8)  # each takes up to _EXPRESSION_MEMORY
def _compiled(expression: bytes) -> Any:
    """Return a compiled expression that whole names match; None if it can't be used."""
    import re2  # type: ignore[import-untyped]  # noqa: PLC0415 - few profiles need it; it has no stubs

    if len(expression) > LONGEST_EXPRESSION:
        return None
    options = re2.Options()
    options.max_mem, options.log_errors = _EXPRESSION_MEMORY, False
    try:
        return re2.compile(b"^(%s)$" % expression, options)
    except re2.error:
        return None
    finally:
        re2.purge()  # its own cache would keep many


def simplified(name: bytes) -> bytes:
    """Return a function's name without its arguments, and without the dot that PowerPC puts before it."""
    name = name.removeprefix(b".")
    for found in _PARENTHESES.finditer(name):
        if found[0] == b"(":
            return name[: found.start()]
    return name


def _cut_locations(locations: Locations, is_dropped: Bools) -> tuple[Locations, Bools, Bools]:
    """Return the locations without the lines from the outermost dropped one inwards.

    Return also whether anything is dropped of each, and whether all of it is: (n_locations). A location of
    which all is dropped keeps its lines, since it is shown where nothing else is further out.
    """
    lines = locations.lines
    at = np.flatnonzero(is_dropped[lines.function])
    outermost: Int64s = np.full(len(locations), -1, np.int64)
    np.maximum.at(outermost, rows_of_indexes(lines.offsets, at), at)
    is_cut = outermost >= 0
    is_gone = is_cut & (outermost == lines.offsets[1:] - 1)
    last = np.where(is_cut & ~is_gone, outermost, -1)
    is_kept = np.arange(len(lines)) > np.repeat(last, np.diff(lines.offsets))
    offsets = offsets_of(is_kept)[lines.offsets]
    kept = Lines(lines.function[is_kept], lines.line[is_kept], lines.column[is_kept], offsets)
    return replace(locations, lines=kept), is_cut, is_gone


def _cut_samples(samples: Samples, is_cut: Bools, is_gone: Bools) -> Samples:
    """Return the samples without the locations inside the outermost cut one with an uncut one around it."""
    every, offsets = samples.locations, samples.location_offsets
    is_kept = np.empty(len(every), np.bool_)
    kept = np.zeros(len(samples), np.int64)
    begin = 0
    while begin < len(samples):
        end = int(np.searchsorted(offsets, offsets[begin] + _CHUNK_FRAMES, side="right")) - 1
        end = max(end, begin + 1)
        locations, own = every[offsets[begin] : offsets[end]], offsets[begin : end + 1] - offsets[begin]
        index, lengths, of_cut = np.arange(len(locations)), np.diff(own), is_cut[locations]
        root = _last_of_each(~of_cut, own)
        first = _last_of_each(of_cut & (index < np.repeat(root, lengths)), own)
        found = np.flatnonzero(first >= 0)
        first[found] += is_gone[locations[first[found]]]
        is_kept[offsets[begin] : offsets[end]] = index >= np.repeat(first, lengths)
        kept[begin:end] = own[1:] - np.maximum(first, own[:-1])
        begin = end
    return Samples(samples.values, every[is_kept], offsets_of(kept), samples.labels)


def _last_of_each(chosen: Bools, offsets: Int64s) -> Int64s:
    """Return the last chosen index of each ragged row, -1 if there is none: (n_rows)."""
    last: Int64s = np.full(len(offsets) - 1, -1, np.int64)
    at = np.flatnonzero(chosen)
    np.maximum.at(last, rows_of_indexes(offsets, at), at)
    return last
