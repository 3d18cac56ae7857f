"""Say what Go's compiler takes from a profile, and when it fails; `edges` has the loops."""

from __future__ import annotations

from pprof_merge.analysis.edges import Edges
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.errors import UnfitForFormat
from pprof_merge.merging.headers import PGO_SAMPLE_TYPES
from pprof_merge.profile import Header, Profile

# Memory, in bytes, that one node of a pair of locations takes while its edges are computed.
_NODE_BYTES = 40
ADVICE = "select fewer profiles: calls inlined into each other hundreds deep make too many edges"


def weight_column(header: Header) -> int:
    """Return the column of values that the compiler takes. Raises UnfitForFormat if it takes none of them."""
    for column, sample_type in enumerate(header.sample_types):
        if sample_type in PGO_SAMPLE_TYPES:
            return column
    wanted, found = (" or ".join(map(str, types)) for types in (PGO_SAMPLE_TYPES, header.sample_types))
    raise UnfitForFormat(f"Go's compiler needs samples in {wanted}; these are in {found or 'nothing'}")


def compiler_edges(profile: Profile, budget: Budget = UNBOUNDED) -> Edges:
    """Return the edges of a profile as columns. Raises as `call_edges` does."""
    edges = Edges(profile.columns)
    column = weight_column(profile.header)
    edges.read_nodes()
    budget.check_rows(edges.read_calls(column), _NODE_BYTES, ADVICE)
    if not edges.keep_nodes():
        raise UnfitForFormat("no function has a start line; programs built with Go 1.20 or later write them")
    edges.find()
    return edges
