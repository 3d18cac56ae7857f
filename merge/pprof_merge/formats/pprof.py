"""`pprof`: the profile itself, as gzipped protobuf."""

from __future__ import annotations

from collections.abc import Iterator

from pprof_merge.budget import Budget
from pprof_merge.codec.compression import compress
from pprof_merge.codec.encode import encode
from pprof_merge.profile import Profile

_ADVICE = "select fewer profiles, or take the format go, which grows with the calls and not with the stacks"


def pprof(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """What Go and all tools of google/pprof read. It is the protobuf that counts, as it is before gzip.

    It has everything once, as the profiles have that it is of, so that it is no larger than these.
    """
    protobuf = encode(profile)
    budget.check(len(protobuf), _ADVICE)
    yield compress(protobuf)
