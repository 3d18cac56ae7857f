"""Changed copies of profiles, each different in one field."""

from __future__ import annotations

import gzip
from collections.abc import Callable

from pprof_proto.profile_pb2 import Profile


def edited(profile: bytes, edit: Callable[[Profile], object]) -> bytes:
    """Return the bare protobuf of a gzipped profile after `edit` has changed it."""
    parsed = Profile.FromString(gzip.decompress(profile))
    edit(parsed)
    return parsed.SerializeToString()


def taken_at(profile: bytes, time_nanos: int) -> bytes:
    """Return a gzipped profile as if it had been taken at another time."""

    def edit(parsed: Profile) -> None:
        parsed.time_nanos = time_nanos

    return gzip.compress(edited(profile, edit), mtime=0)
