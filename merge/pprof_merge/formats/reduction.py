"""Reduction: call edges → the smallest profile that has them; mypyc compiles this module."""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i32, i64

from pprof_merge.analysis.edges import Edges
from pprof_merge.columns.vectors import room, room32, wrapped, zeros, zeros32
from pprof_merge.profile.columns import ProfileColumns

# The start line of every function: the compiler refuses a profile without start lines.
_START_LINE: Final[i64] = 1


def reduced_columns(edges: Edges) -> ProfileColumns:
    """Return a profile whose samples are the edges.

    The call sites (caller, offset) are its first locations. The compiler reads only the name of a callee, so
    the callee's own first call site serves as its location. A callee without one, or whose only one is the
    edge's own call site (a node has no edge to itself), gets a location with an address, which no call site
    has.
    """
    n: i64 = edges.n_edges
    caller, at, callee = edges.caller, edges.at, edges.callee
    reduced = ProfileColumns()
    name_of = add_names(reduced, edges)
    n_names: i64 = reduced.n_functions
    # For each name 1 + its first call site, and whether it needs a location with an address.
    first_site, bare = zeros(n_names), zeros(n_names)
    locations, lines = zeros(10 * n), zeros(6 * n)
    sites = zeros(n)
    count: i64 = 0
    for i in range(n):
        if i == 0 or caller[i] != caller[i - 1] or at[i] != at[i - 1]:
            name: i64 = name_of[caller[i]]
            locations[5 * count + 1] = -1
            lines[3 * count] = name
            lines[3 * count + 1] = wrapped(_START_LINE + at[i])
            count += 1
            if first_site[name] == 0:
                first_site[name] = count
        sites[i] = count - 1
    for i in range(n):
        name = name_of[callee[i]]
        if first_site[name] == 0 or first_site[name] - 1 == sites[i]:
            bare[name] = 1
    for name in range(n_names):
        if bare[name] != 0:
            locations[5 * count + 1] = -1
            locations[5 * count + 2] = 1
            lines[3 * count] = name
            bare[name] = count
            count += 1
    for row in range(count):
        locations[5 * row + 3] = row + 1
    reduced.locations, reduced.lines, reduced.n_locations, reduced.n_lines = locations, lines, count, count
    frames = zeros32(2 * n)
    for i in range(n):
        name = name_of[callee[i]]
        is_bare = first_site[name] == 0 or first_site[name] - 1 == sites[i]
        frames[2 * i] = i32(bare[name] if is_bare else first_site[name] - 1)
        frames[2 * i + 1] = i32(sites[i])
    reduced.frames = frames
    add_samples(reduced, edges)
    return reduced


def add_names(reduced: ProfileColumns, edges: Edges) -> vec[i64]:
    """Add a function for each name that an edge has; return the row of each name's function."""
    is_used = zeros(i64(len(edges.names)))
    for i in range(edges.n_edges):
        is_used[edges.caller[i]] = is_used[edges.callee[i]] = 1
    strings = [b""]
    rows = zeros(i64(len(edges.names)))
    for rank in range(i64(len(edges.names))):
        rows[rank] = i64(len(strings)) - 1
        if is_used[rank] != 0:
            strings.append(edges.names[rank])
    n: i64 = i64(len(strings)) - 1
    reduced.functions = functions = zeros(5 * n)
    for row in range(n):
        functions[5 * row + 1] = row + 1
        functions[5 * row + 4] = _START_LINE
    reduced.strings, reduced.n_functions = strings, n
    return rows


def add_samples(reduced: ProfileColumns, edges: Edges) -> None:
    """Set the samples: one for each edge, and more where weights are not all positive.

    An edge of weight 0 exists if its samples cancel out, so it gets two samples. The compiler would drop a
    location whose samples cancel out, along with its edges; such a location gets a sample of its own, which
    is no call.
    """
    n: i64 = edges.n_edges
    frames, sums = reduced.frames, zeros(reduced.n_locations)
    values = zeros(2 * n)
    n_samples: i64 = n
    for i in range(n):
        value: i64 = edges.sum[i]
        if value == 0:
            frames = room32(frames, 2 * n_samples + 2)
            frames[2 * n_samples], frames[2 * n_samples + 1] = frames[2 * i], frames[2 * i + 1]
            values[n_samples] = -1
            n_samples += 1
            value = 1
        else:
            for k in range(2 * i, 2 * i + 2):
                sums[i64(frames[k])] = wrapped(sums[i64(frames[k])] + value)
        values[i] = value
    n_frames: i64 = 2 * n_samples
    n_calls: i64 = n_samples
    for location in range(reduced.n_locations):
        if sums[location] == 0:
            frames, values = room32(frames, n_frames + 1), room(values, n_samples + 1)
            frames[n_frames] = i32(location)
            values[n_samples] = 1
            n_frames += 1
            n_samples += 1
    reduced.frame_ends, reduced.label_ends = zeros(n_samples + 1), zeros(n_samples + 1)
    for row in range(n_samples):
        reduced.frame_ends[row + 1] = 2 * row + 2 if row < n_calls else n_calls + row + 1
    reduced.frames, reduced.values, reduced.n_types = frames, values, 1
    reduced.n_samples, reduced.n_frames = n_samples, n_frames
