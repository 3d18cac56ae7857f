"""The format `go`: a profile reduced to what Go's compiler takes from it, so that it builds the same program.

The result has one sample for each call edge, with names, line offsets and a weight. Addresses, labels, files
and outer callers are left out. `go tool preprofile` gives the same output for both profiles. The bytes depend
on the edges alone: a change that means nothing to the compiler doesn't invalidate its cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from pprof_merge.analysis.compiler import ADVICE, compiler_edges, weight_column
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.codec.encoding import compress, encode
from pprof_merge.formats.reduction import reduced_columns
from pprof_merge.profile import Header, Profile


def pieces(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """Yield what `go` returns, in one piece, since it is never large."""
    yield go(profile, budget)


def go(profile: Profile, budget: Budget = UNBOUNDED) -> bytes:
    """Return the reduced profile as a gzipped pprof file.

    Raises UnfitForFormat if the compiler would fail, and OutputTooLarge.
    """
    protobuf = encode(reduced(profile, budget))
    budget.check(len(protobuf), ADVICE)
    return compress(protobuf, small=True)


def reduced(profile: Profile, budget: Budget = UNBOUNDED) -> Profile:
    """Return the smallest profile with the same call edges. It has the sample type that the compiler takes.

    Raises UnfitForFormat and OutputTooLarge as `call_edges` does.
    """
    columns = reduced_columns(compiler_edges(profile, budget))
    header = Header(sample_types=(profile.header.sample_types[weight_column(profile.header)],))
    return Profile(header, columns, profile.digest)
