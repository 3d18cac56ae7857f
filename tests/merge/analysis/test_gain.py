"""The gain that a report expects: from the call that is hottest, and from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Profile, decode, encode, merge
from pprof_merge.analysis.gain import (
    MEASURED,
    Collection,
    Compiler,
    HotCall,
    Measured,
    Point,
    expected_gain,
    share_after_changes,
    share_of_samples,
)
from pprof_proto import profile_pb2

from tests.merge.stacked import stacked

SAMPLES = (Point(100, 0.5), Point(1000, 0.95), Point(10_000, 1.0))
CHANGES = (Point(0.5, 0.4), Point(1.0, 0.0))
KNOWN: Mapping[Compiler, Measured] = {
    "go": Measured((0.9, 3.0), SAMPLES, CHANGES),
    "llvm": Measured((1.1, 1.7), SAMPLES, CHANGES),
}


def profile_of(stacks: Mapping[str, int], seconds: float = 0.0) -> Profile:
    """Return a profile of a Go program: each stack begins in the runtime, as all do there."""
    named = {f"runtime.goexit;runtime.main;{stack}": count for stack, count in stacks.items()}
    message = profile_pb2.Profile.FromString(stacked(named))
    message.duration_nanos = int(seconds * 1e9)
    return decode(message.SerializeToString())


def hottest(stacks: Mapping[str, int]) -> HotCall | None:
    gain = expected_gain(profile_of(stacks), 1)
    assert gain
    assert gain.compiler == "go"
    return gain.hottest_call


def test_the_hottest_call_is_the_innermost_between_own_functions() -> None:
    assert hottest({"main.main;main.read;main.next": 60, "main.main;main.read": 40}) == HotCall(
        "main.read", "main.next", 0.6
    )
    # What the runtime and assembly do counts for the call that has it below.
    below = {
        "main.main;main.read;main.next;runtime.mallocgc;runtime.gcStart": 30,
        "main.main;main.read;memeqbody": 9,
    }
    assert hottest({**below, "main.main": 61}) == HotCall("main.read", "main.next", 0.3)
    # A recursive call can't be inlined, and neither can the runtime.
    assert hottest({"main.main;main.walk;main.walk;main.walk": 90, "main.main": 10}) is None
    assert hottest({"main.main;runtime.gcBgMarkWorker": 5}) is None


def test_a_call_that_is_inlined_already_does_not_count() -> None:
    message = profile_pb2.Profile.FromString(encode(profile_of({"main.main;main.read;main.next": 5})))
    texts = [text.decode() for text in message.string_table]
    functions = {texts[each.name]: each.id for each in message.function}
    leaf = next(each for each in message.location if each.line[0].function_id == functions["main.next"])
    leaf.line.add(function_id=functions["main.read"], line=1)
    gain = expected_gain(decode(message.SerializeToString()), 1)
    assert gain
    assert gain.hottest_call is None


def test_the_verdict_follows_what_was_measured() -> None:
    hot = "main.main;main.read;main.next"
    enough = expected_gain(profile_of({hot: 2000}), 3, measured=KNOWN)
    assert enough
    assert (enough.verdict, enough.samples, enough.collect) == ("enough", 2000, None)
    assert enough.share == pytest.approx(0.965, abs=0.001)
    assert "0.9 to 3 times" in enough.reason
    more = expected_gain(profile_of({hot: 400}, seconds=240), 3, measured=KNOWN)
    assert more
    assert (more.verdict, more.collect) == ("collect more", Collection(600, 2, 3))
    assert "Collect 600 more: profile 3 instances for 2 more minutes." in more.reason
    timeless = expected_gain(profile_of({hot: 400}), 0, measured=KNOWN)
    assert timeless
    assert timeless.collect == Collection(600, None, 1)
    lost = expected_gain(profile_of({hot: 2000}), 3, lost=0.25, measured=KNOWN)
    assert lost
    assert "25% of the weight is in functions that the program doesn't have" in lost.reason
    assert "After changes in a quarter of the functions, 70% of a gain was left." in lost.reason


def test_where_no_call_is_hot_little_is_expected() -> None:
    stacks = {f"main.main;main.f{number};main.g{number}": 100 for number in range(20)}
    gain = expected_gain(profile_of(stacks), 1, measured=KNOWN)
    assert gain
    assert gain.verdict == "little to gain"
    assert "Don't expect much here" in gain.reason
    assert "5% of the time" in gain.reason


def test_a_native_profile_is_llvms_and_another_type_has_none(profiles: Path) -> None:
    native = expected_gain(decode(stacked({"main;work": 5})), 1, measured=KNOWN)
    assert native
    assert (native.compiler, native.hottest_call, native.verdict) == ("llvm", None, "collect more")
    message = profile_pb2.Profile.FromString(stacked({"main;work": 5}))
    message.string_table.append(b"objects")
    message.sample_type[0].type = len(message.string_table) - 1
    assert expected_gain(decode(message.SerializeToString()), 1) is None
    assert expected_gain(decode(stacked({})), 1) is not None
    real = merge(decode(path.read_bytes()) for path in sorted(profiles.glob("apisvc-v1-*.pb.gz")))
    gain = expected_gain(real, 1)
    assert gain
    assert gain.hottest_call
    assert 0 < gain.hottest_call.share < 0.2


def test_the_measured_points_rise_and_are_shares() -> None:
    for known in MEASURED.values():
        assert known.ratios[0] <= known.ratios[1]
        for points in (known.by_samples, known.by_changes):
            amounts = [point.amount for point in points]
            assert amounts == sorted({*amounts})
            assert all(amount > 0 for amount in amounts)
            shares = [point.share for point in points]
            assert shares == sorted(shares, reverse=points is known.by_changes)
            assert all(0 <= share <= 1 for share in shares)


@given(st.integers(0, 10**8), st.integers(0, 10**8))
def test_more_samples_never_mean_less(one: int, other: int) -> None:
    few, many = (share_of_samples(SAMPLES, count) for count in sorted((one, other)))
    assert 0 <= few <= many <= 1


@pytest.mark.parametrize(("part", "share"), [(0, 1), (0.25, 0.7), (0.5, 0.4), (0.75, 0.2), (1, 0)])
def test_changes_are_between_the_points(part: float, share: float) -> None:
    assert share_after_changes(CHANGES, part) == pytest.approx(share)
