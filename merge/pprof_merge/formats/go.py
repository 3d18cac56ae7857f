"""The format `go`: a profile reduced to what Go's compiler takes from it, so that it builds the same program.

The result has one sample for each call edge, with names, line offsets and a weight. Addresses, labels, files
and outer callers are left out. `go tool preprofile` gives the same output for both profiles. The bytes depend
on the edges alone: a change that means nothing to the compiler doesn't invalidate its cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pprof_merge.analysis.call_edges import ADVICE, CallEdges, call_edges, sum_groups, weight_column
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.codec.compression import compress
from pprof_merge.codec.encode import encode
from pprof_merge.columns.ragged import offsets_of
from pprof_merge.profile import (
    Functions,
    Header,
    Int64s,
    Labels,
    Lines,
    Locations,
    Mappings,
    Profile,
    Samples,
)

# The start line of every function: the compiler refuses a profile without start lines.
_START_LINE = 1


def pieces(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """Yield what `go` returns, in one piece, since it is never large."""
    yield go(profile, budget)


def go(profile: Profile, budget: Budget = UNBOUNDED) -> bytes:
    """Return the reduced profile as a gzipped pprof file.

    Raises UnfitForFormat if the compiler would fail, and OutputTooLarge.
    """
    protobuf = encode(reduced(profile, budget))
    budget.check(len(protobuf), ADVICE)
    return compress(protobuf)


def reduced(profile: Profile, budget: Budget = UNBOUNDED) -> Profile:
    """Return the smallest profile with the same call edges. It has the sample type that the compiler takes.

    Raises UnfitForFormat and OutputTooLarge as `call_edges` does.
    """
    edges = call_edges(profile, budget)
    locations, callees, callers = _locations(edges)
    return Profile(
        header=Header(sample_types=(profile.header.sample_types[weight_column(profile.header)],)),
        samples=_samples(edges.weight, callees, callers, n_locations=len(locations)),
        mappings=_no_mappings(),
        locations=locations,
        functions=_functions(len(edges.names)),
        strings=[b"", *edges.names],
        digest=profile.digest,
    )


def _locations(edges: CallEdges) -> tuple[Locations, Int64s, Int64s]:
    """Return the locations, and the rows of each edge's callee and caller among them.

    The call sites (caller, offset) come first. The compiler reads only the name of a callee, so the callee's
    own first call site serves as its location. A callee without one, or whose only one is the edge's own call
    site (a node has no edge to itself), gets a location with an address, which no call site has.
    """
    is_new = np.ones(len(edges), np.bool_)
    is_new[1:] = (np.diff(edges.caller) != 0) | (np.diff(edges.offset) != 0)
    site = np.cumsum(is_new) - 1
    site_caller, site_offset = edges.caller[is_new], edges.offset[is_new]
    first_site = np.full(len(edges.names), -1)
    callers, first = np.unique(site_caller, return_index=True)
    first_site[callers] = first
    callee = first_site[edges.callee]
    is_bare = (callee < 0) | (callee == site)
    bare, row = np.unique(edges.callee[is_bare], return_inverse=True)
    callee[is_bare] = len(site_caller) + row
    n = len(site_caller) + len(bare)
    locations = Locations(
        mapping=np.full(n, -1),
        address=np.repeat(np.array([0, 1], np.uint64), (len(site_caller), len(bare))),
        folded=np.zeros(n, np.bool_),
        lines=Lines(
            function=np.concatenate((site_caller, bare)),
            line=np.concatenate((_START_LINE + site_offset, np.zeros(len(bare), np.int64))),
            column=np.zeros(n, np.int64),
            offsets=np.arange(n + 1),
        ),
    )
    return locations, callee, site


def _samples(weights: Int64s, callees: Int64s, callers: Int64s, n_locations: int) -> Samples:
    """Return one sample for each edge, and more where weights are not all positive.

    An edge of weight 0 exists if its samples cancel out, so it gets two samples. The compiler would drop a
    location whose samples cancel out, along with its edges; such a location gets a sample of its own, which
    is no call.
    """
    cancels = weights == 0
    values = np.append(np.where(cancels, 1, weights), np.full(np.count_nonzero(cancels), -1))
    calls = np.stack((np.append(callees, callees[cancels]), np.append(callers, callers[cancels])), axis=1)
    alone = np.flatnonzero(sum_groups(calls.ravel(), np.repeat(values, 2), n_locations) == 0)
    return Samples(
        values=np.append(values, np.ones(len(alone), np.int64))[:, np.newaxis],
        locations=np.append(calls, alone),
        location_offsets=offsets_of(np.repeat([2, 1], (len(calls), len(alone)))),
        labels=_no_labels(n_samples=len(calls) + len(alone)),
    )


def _functions(count: int) -> Functions:
    """Return functions whose names are the strings 1 to `count`."""
    nothing = np.zeros(count, np.int64)
    return Functions(np.arange(1, count + 1), nothing, nothing, np.full(count, _START_LINE))


def _no_labels(n_samples: int) -> Labels:
    none = np.zeros(0, np.int64)
    return Labels(none, none, none, none, offsets=np.zeros(n_samples + 1, np.int64))


def _no_mappings() -> Mappings:
    number, text = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    return Mappings(number, number, number, text, text, flags=np.zeros((0, 4), np.bool_))
