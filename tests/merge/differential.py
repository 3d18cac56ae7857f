"""Our merge compared with Go's: the same inputs for both, and the comparison of the results."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pprof_merge import Collection, ProfileError, encode, inflate
from pprof_proto.profile_pb2 import Profile

from tests.oracle.content import content, difference

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.oracle.oracle import Oracle


def merged(profiles: Iterable[bytes]) -> bytes:
    """Return our merge, as bare protobuf."""
    collection = Collection()
    refused = [outcome for outcome in collection.extend(profiles) if isinstance(outcome, ProfileError)]
    if refused:
        raise refused[0]
    return encode(collection.merge())


def canonical(profiles: Iterable[bytes]) -> list[bytes]:
    """Return the profiles in the order in which ours merges them: by time, then by the protobuf's SHA-256."""

    def key(profile: bytes) -> tuple[int, bytes]:
        protobuf = inflate(profile)
        return Profile.FromString(protobuf).time_nanos, hashlib.sha256(protobuf).digest()

    return sorted(profiles, key=key)


def check_same(ours: bytes, theirs: bytes) -> None:
    """Check that the bytes are the same; the message describes the differences."""
    if ours != theirs:
        words = difference(content(ours), content(theirs))
        raise AssertionError(words or f"same content, other bytes: {len(ours)} and {len(theirs)}")


def check_as_go(profiles: list[bytes], oracle: Oracle) -> bytes:
    """Check that our merge is Go's, byte for byte; return it."""
    ours = merged(profiles)
    check_same(ours, oracle.merge(canonical(profiles)))
    return ours


def read(folder: Path, *patterns: str) -> list[bytes]:
    """Return the contents of the files in a folder whose names match."""
    files = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
    assert files, patterns
    return [file.read_bytes() for file in files]
