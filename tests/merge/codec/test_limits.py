"""Each limit accepts a profile up to its value, and refuses it by the limit's name above."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from pprof_merge import LimitExceeded, Limits, decode, inflate
from pprof_proto.profile_pb2 import Profile

from tests.merge.differential import read
from tests.oracle import wire
from tests.oracle.oracle import go_root

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.oracle.oracle import Oracle


@pytest.fixture(scope="module")
def counts(profiles: Path) -> Mapping[str, int]:
    """Return what each limit counts in a real profile with labels."""
    (compressed,) = read(profiles, "apisvc-v1lab-s9-003*")
    profile = Profile.FromString(inflate(compressed))
    return {
        "compressed_bytes": len(compressed),
        "inflated_bytes": len(inflate(compressed)),
        "gzip_members": 1,
        "sample_types": len(profile.sample_type),
        "samples": len(profile.sample),
        "locations": len(profile.location),
        "functions": len(profile.function),
        "mappings": len(profile.mapping),
        "strings": len(profile.string_table),
        "name_bytes": max(len(string) for string in profile.string_table),
        "labels": sum(len(sample.label) for sample in profile.sample),
        "frames": sum(len(sample.location_id) for sample in profile.sample),
        "lines": sum(len(location.line) for location in profile.location),
        "nested_messages": max(
            *(len(sample.label) for sample in profile.sample),
            *(len(location.line) for location in profile.location),
        ),
        "stack_depth": max(len(sample.location_id) for sample in profile.sample),
    }


@pytest.mark.parametrize("limit", [limit for limit in Limits._fields if limit != "irregular_fields"])
def test_each_limit_is_the_largest_number_taken(
    limit: str, counts: Mapping[str, int], profiles: Path
) -> None:
    (profile,) = read(profiles, "apisvc-v1lab-s9-003*")
    actual = counts[limit]
    assert actual > 0
    decode(profile, Limits(**{limit: actual}))
    with pytest.raises(LimitExceeded) as refused:
        decode(profile, Limits(**{limit: actual - 1}))
    assert (refused.value.limit, refused.value.allowed) == (limit, actual - 1)
    assert f"{actual - 1:,} {limit.replace('_', ' ')}" in str(refused.value)


@pytest.mark.parametrize(
    "irregular",
    {
        "in the profile": wire.number(99, 1) * 1000,
        "in packed comments": wire.packed(13, *[1] * 1000),
        "in a sample": wire.record(2, wire.packed(2, 1, 1), wire.number(9, 1) * 1000),
        "in a location": wire.record(4, wire.number(1, 1 << 40), wire.number(9, 1) * 1000),
        "in a function": wire.record(5, wire.number(1, 1 << 40), wire.number(9, 1) * 1000),
    }.items(),
    ids=lambda case: case[0],
)
def test_irregular_fields_are_bounded(irregular: tuple[str, bytes], profiles: Path) -> None:
    (profile,) = read(profiles, "etl-s2-000*")
    protobuf = inflate(profile) + irregular[1]
    # If one record of a table is irregular, all records of the chunk are read field by field.
    decode(protobuf, Limits(irregular_fields=20_000))
    with pytest.raises(LimitExceeded, match="more than 900 irregular fields"):
        decode(protobuf, Limits(irregular_fields=900))


def test_what_go_writes_is_regular(profiles: Path, oracle: Oracle) -> None:
    default = (go_root() / "src/cmd/compile/default.pgo").read_bytes()
    for profile in [*read(profiles, "*.gz"), default]:
        for written in (profile, oracle.rewrite(profile)):
            decode(written, Limits(irregular_fields=8))  # the scalar fields of the header


def test_limits_hold_for_fields_in_an_odd_form_too(profiles: Path) -> None:
    # protobuf's own parser refuses this field number, so that the strict reader reads the profile.
    (profile,) = read(profiles, "etl-s2-000*")
    protobuf = inflate(profile) + b"\x00\x00"
    samples = len(decode(protobuf).samples)
    with pytest.raises(LimitExceeded, match="samples"):
        decode(protobuf, Limits(samples=samples - 1))


def test_a_bare_profile_is_bounded_as_what_comes_out_of_gzip(profiles: Path) -> None:
    (profile,) = read(profiles, "etl-s2-000*")
    protobuf = inflate(profile)
    decode(protobuf, Limits(inflated_bytes=len(protobuf), compressed_bytes=1))
    with pytest.raises(LimitExceeded, match="inflated bytes"):
        decode(protobuf, Limits(inflated_bytes=len(protobuf) - 1))


def test_all_members_of_a_gzip_count(profiles: Path) -> None:
    (profile,) = read(profiles, "etl-s2-000*")
    protobuf = inflate(profile)
    halves = gzip.compress(protobuf[:20_000]) + gzip.compress(protobuf[20_000:])
    decode(halves, Limits(inflated_bytes=len(protobuf), gzip_members=2))
    with pytest.raises(LimitExceeded, match="inflated bytes"):
        decode(halves, Limits(inflated_bytes=len(protobuf) - 1))
    with pytest.raises(LimitExceeded, match="gzip members"):
        decode(halves, Limits(gzip_members=1))
