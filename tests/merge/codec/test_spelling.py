"""Profiles that are written in any way that protobuf allows are the same profile."""

from __future__ import annotations

import gzip
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import decode, encode
from pprof_proto.profile_pb2 import Profile

from tests.oracle.respelling import respelled

_PROFILES = Path(__file__).parents[2] / "testdata" / "profiles"
_SMALLEST = sorted(_PROFILES.glob("*.pb.gz"), key=lambda path: path.stat().st_size)[:3]


@pytest.mark.parametrize("file", _SMALLEST, ids=lambda file: file.name)
@given(random=st.randoms(use_true_random=True))
def test_a_profile_is_the_same_however_it_is_spelled(file: Path, random: Random) -> None:
    """A second period type replaces the first, as in google/pprof; protobuf's own readers merge them."""
    content = gzip.decompress(file.read_bytes())
    spelled = respelled(Profile.FromString(content), random, whole={"period_type"})
    assert encode(decode(spelled)) == encode(decode(content))
