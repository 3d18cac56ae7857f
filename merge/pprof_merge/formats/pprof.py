"""The format `pprof`: the profile itself, as gzipped protobuf."""

from __future__ import annotations

from collections.abc import Iterator

from pprof_merge.budget import Budget
from pprof_merge.codec.encoding import compress, encode
from pprof_merge.profile import Profile

_ADVICE = "select fewer profiles, or take the format go, which grows with the calls and not with the stacks"


def pprof(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """Yield the profile as Go and all tools of google/pprof read it, in one piece.

    Raises OutputTooLarge if the protobuf, before gzip, is larger than the budget. A merge has each stack
    once, so it isn't larger than its inputs.
    """
    protobuf = encode(profile)
    budget.check(len(protobuf), _ADVICE)
    yield compress(protobuf)
