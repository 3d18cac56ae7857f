"""`pprof`: the profile itself, as gzipped protobuf."""

from __future__ import annotations

from pprof_merge.compression import compress
from pprof_merge.encode import encode
from pprof_merge.profile import Profile


def pprof(profile: Profile) -> bytes:
    """What Go and all tools of google/pprof read."""
    return compress(encode(profile))
