"""For any bytes: `decode` accepts them exactly if Go does, and then both read the same profile."""

from __future__ import annotations

import gzip
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import LimitExceeded, MalformedProfile, decode, encode, inflate, merge

from tests.merge.campaign import MERGED, REFUSED, cases, check, real_profiles
from tests.merge.differential import check_same, read
from tests.merge.malformed import MALFORMED, WHOLE, Malformed
from tests.oracle import wire
from tests.oracle.builder import World, seeded
from tests.oracle.mutation import mutate_bytes
from tests.oracle.oracle import Oracle

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (2, 3))]


def check_verdict(mutant: bytes, oracle: Oracle) -> bool:
    """Fail if Go and `decode` disagree or read different profiles; return whether both accept the bytes."""
    refusal = oracle.refusal(mutant)
    try:
        profile = decode(mutant)
    except LimitExceeded:
        return False
    except MalformedProfile as error:
        ours = str(error)
    else:
        ours = ""
    assert bool(ours) == bool(refusal), f"{mutant.hex()}: {ours or 'we take it'}; Go: {refusal or 'takes it'}"
    if ours:
        return False
    check_same(encode(merge([profile])), oracle.merge([oracle.rewrite(mutant)]))
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_flawed_generated_profiles(seed: int, oracle: Oracle) -> None:
    random = seeded(seed)
    taken = 0
    for _ in range(150):
        profile = World(random, empty_strings=True).profile()
        taken += sum(check_verdict(mutate_bytes(random, profile), oracle) for _ in range(5))
    assert 50 < taken < 700, "the flaws are too coarse, or too fine, to tell"


def test_flawed_real_profiles(profiles: Path, oracle: Oracle) -> None:
    random = seeded(1)
    for profile in read(profiles, "apisvc-v1lab-s9-003*", "compile-c-31312*"):
        protobuf = inflate(profile)
        for _ in range(100):
            check_verdict(mutate_bytes(random, protobuf), oracle)


def test_flawed_gzip(oracle: Oracle) -> None:
    random = seeded(1)
    whole = gzip.compress(WHOLE, mtime=0)
    for _ in range(500):
        check_verdict(mutate_bytes(random, whole), oracle)


def test_every_byte_changed_and_every_cut(oracle: Oracle) -> None:
    for at in range(len(WHOLE)):
        check_verdict(WHOLE[:at], oracle)
        for byte in (0, 1, 2, 0x12, 0x7F, 0x80, 0xFF, WHOLE[at] ^ 1, WHOLE[at] ^ 0x80):
            check_verdict(WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :], oracle)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_part_of_the_campaign(seed: int, oracle: Oracle) -> None:
    outcomes = Counter(check(case, oracle) for case in islice(cases(seeded(seed), real_profiles()), 100))
    assert outcomes[MERGED] > 40
    assert outcomes[REFUSED] > 5, "the flaws are too fine to tell"


@given(noise=st.binary(max_size=64), malformed=st.sampled_from(MALFORMED), at=st.integers(0, 200))
def test_noise(noise: bytes, malformed: Malformed, at: int, oracle: Oracle) -> None:
    check_verdict(noise, oracle)
    check_verdict(WHOLE[:at] + noise + WHOLE[at:], oracle)
    check_verdict(malformed.profile[:at] + noise + malformed.profile[at:], oracle)


@pytest.mark.parametrize(
    "field",
    [0, 16, 99, 1 << 29, (1 << 60) + 5],
    ids=lambda field: f"field {field}",
)
def test_fields_that_the_schema_lacks(field: int, oracle: Oracle) -> None:
    for extra in (
        wire.number(field, 5),
        wire.record(field, b"text"),
        wire.tag(field, wire.FIXED64) + bytes(8),
        wire.tag(field, wire.FIXED32) + bytes(4),
    ):
        assert check_verdict(WHOLE + extra, oracle)
        assert check_verdict(extra + WHOLE, oracle)
        assert check_verdict(WHOLE + wire.record(4, wire.number(1, 2), extra), oracle)
        assert check_verdict(WHOLE + wire.record(2, wire.number(2, 2), extra), oracle)
        assert check_verdict(WHOLE + wire.record(5, wire.number(1, 2), extra), oracle)


@pytest.mark.parametrize(
    ("name", "extra"),
    {
        "time given twice, first as 0": wire.number(9, 0) + wire.number(9, 5),
        "period type twice": wire.record(11, wire.number(1, 2)),
        "period twice": wire.number(12, 5) + wire.number(12, 6),
        "doc url twice": wire.number(15, 1) + wire.number(15, 2),
        "comments, packed and not": wire.packed(13, 1, 2, 1) + wire.number(13, 3),
        "comments, none": wire.packed(13),
        "a string of 32 KiB": wire.record(6, bytes(32 << 10)),
        "a varint longer than it need be": wire.tag(12, 0) + b"\x81\x80\x80\x00",
        "a number of 10 bytes, above 64 bits": wire.tag(12, 0) + b"\xff" * 9 + b"\x7f",
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_odd_but_a_profile(name: str, extra: bytes, oracle: Oracle) -> None:
    rest = WHOLE.replace(wire.number(9, 17), b"") if "time" in name else WHOLE
    assert check_verdict(rest + extra, oracle)


@pytest.mark.parametrize("count", [2, 30, 31, 32, 33, 250])
def test_many_parts_of_one_record(count: int, oracle: Oracle) -> None:
    labels = [wire.record(3, wire.number(1, 1), wire.number(3, 1 + row)) for row in range(count)]
    lines = [wire.record(4, wire.number(1, 1), wire.number(2, row)) for row in range(count)]
    for more in (
        wire.record(2, wire.number(2, 5), *labels),
        wire.record(2, wire.number(1, 1) * count, wire.number(2, 5)),
        wire.record(4, wire.number(1, 2), *lines) + wire.record(2, wire.number(1, 2), wire.number(2, 5)),
    ):
        assert check_verdict(WHOLE + more, oracle)


def test_gzip_of_many_members(oracle: Oracle) -> None:
    assert check_verdict(gzip.compress(WHOLE[:40]) + gzip.compress(WHOLE[40:]), oracle)


def test_gzip_with_a_name_comment_and_extra_field(oracle: Oracle) -> None:
    body = gzip.compress(WHOLE, mtime=0)[10:]
    header = b"\x1f\x8b\x08\x1c\0\0\0\0\0\xff" + b"\x02\0ab" + b"cpu.pprof\0" + b"a comment\0"
    assert check_verdict(header + body, oracle)
