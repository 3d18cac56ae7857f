"""`go`: a profile cut down to what Go's compiler takes from it, so that it builds the same program.

That is the call edges, and nothing else: one sample an edge, of names, line offsets and a weight. Addresses,
labels, files and outer callers are gone. `go tool preprofile` makes the same of both. The bytes depend on the
edges alone: what changes nothing for the compiler changes nothing in its cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pprof_merge.analysis.call_edges import ADVICE, CallEdges, call_edges, sums, weighing_column
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

# Every function starts there; a profile without start lines is refused.
_START_LINE = 1


def pieces(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """As `go`, in one piece: it is never large."""
    yield go(profile, budget)


def go(profile: Profile, budget: Budget = UNBOUNDED) -> bytes:
    """The reduced profile as a gzipped pprof file. Raises UnfitForFormat where the compiler would fail, and
    OutputTooLarge.
    """
    protobuf = encode(reduced(profile, budget))
    budget.check(len(protobuf), ADVICE)
    return compress(protobuf)


def reduced(profile: Profile, budget: Budget = UNBOUNDED) -> Profile:
    """The smallest profile with the same call edges, of the sample type that the compiler takes.

    Raises UnfitForFormat and OutputTooLarge as `call_edges` does.
    """
    edges = call_edges(profile, budget)
    locations, callees, callers = _locations(edges)
    return Profile(
        header=Header(sample_types=(profile.header.sample_types[weighing_column(profile.header)],)),
        samples=_samples(edges.weight, callees, callers, n_locations=len(locations)),
        mappings=_no_mappings(),
        locations=locations,
        functions=_functions(len(edges.names)),
        strings=[b"", *edges.names],
        digest=profile.digest,
    )


def _locations(edges: CallEdges) -> tuple[Locations, Int64s, Int64s]:
    """Locations, and those of each edge's callee and caller.

    First come the call sites (caller, offset). Of a callee only the name is read, so that its own first call
    site stands for it. Where it has none, or only the one that the edge is from (one node has no edge to
    itself), it gets a location with an address, which sets it apart from all sites.
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
    """One sample an edge; and where weights are not all positive, what else keeps the compiler's sums.

    An edge of weight 0 is there if samples cancel out, so it takes two. A location whose samples cancel out
    would be dropped with its edges, so that it gets a sample of its own, which is no call.
    """
    cancels = weights == 0
    values = np.append(np.where(cancels, 1, weights), np.full(np.count_nonzero(cancels), -1))
    calls = np.stack((np.append(callees, callees[cancels]), np.append(callers, callers[cancels])), axis=1)
    alone = np.flatnonzero(sums(calls.ravel(), np.repeat(values, 2), n_locations) == 0)
    return Samples(
        values=np.append(values, np.ones(len(alone), np.int64))[:, np.newaxis],
        locations=np.append(calls, alone),
        location_offsets=offsets_of(np.repeat([2, 1], (len(calls), len(alone)))),
        labels=_no_labels(n_samples=len(calls) + len(alone)),
    )


def _functions(count: int) -> Functions:
    """Functions with the names of string rows 1 to `count`."""
    nothing = np.zeros(count, np.int64)
    return Functions(np.arange(1, count + 1), nothing, nothing, np.full(count, _START_LINE))


def _no_labels(n_samples: int) -> Labels:
    none = np.zeros(0, np.int64)
    return Labels(none, none, none, none, offsets=np.zeros(n_samples + 1, np.int64))


def _no_mappings() -> Mappings:
    number, text = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    return Mappings(number, number, number, text, text, flags=np.zeros((0, 4), np.bool_))
