"""Differential tests against Go: both merge the same profiles, and the results are compared."""

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
    """Return our merge of the profiles, as bare protobuf. Raises ProfileError if one is refused."""
    collection = Collection()
    refused = [outcome for outcome in collection.extend(profiles) if isinstance(outcome, ProfileError)]
    if refused:
        raise refused[0]
    return encode(collection.merge())


def canonical(profiles: Iterable[bytes]) -> list[bytes]:
    """Return the profiles in our order of merging: by time, then by the SHA-256 of the bare protobuf."""

    def key(profile: bytes) -> tuple[int, bytes]:
        protobuf = inflate(profile)
        return Profile.FromString(protobuf).time_nanos, hashlib.sha256(protobuf).digest()

    return sorted(profiles, key=key)


def check_same(ours: bytes, theirs: bytes) -> None:
    """Fail unless the bytes are equal; the message says how the contents of the profiles differ."""
    if ours != theirs:
        words = difference(content(ours), content(theirs))
        raise AssertionError(words or f"same content, other bytes: {len(ours)} and {len(theirs)}")


def check_as_go(profiles: list[bytes], oracle: Oracle) -> bytes:
    """Fail unless our merge of the profiles is Go's, byte for byte; return it."""
    ours = merged(profiles)
    check_same(ours, oracle.merge(canonical(profiles)))
    return ours


def read(folder: Path, *patterns: str) -> list[bytes]:
    """Return the contents of the files in a folder whose names match a pattern, in the order of patterns."""
    files = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
    assert files, patterns
    return [file.read_bytes() for file in files]
