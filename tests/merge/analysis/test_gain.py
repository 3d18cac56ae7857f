"""The gain that a report expects: from the call that is hottest, and from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import FORMATS, Profile, UnfitForFormat, decode, encode, merge
from pprof_merge.analysis.call_edges import TracedEdges, call_edges, traced_edges
from pprof_merge.analysis.gain import (
    MEASURED,
    Collection,
    Compiler,
    Gain,
    HotCall,
    Point,
    expected_gain,
    share_of_samples,
)
from pprof_proto import profile_pb2

from tests.merge.stacked import stacked

SAMPLES = (Point(100, 0.5), Point(1000, 0.95), Point(10_000, 1.0))
KNOWN: Mapping[Compiler, Sequence[Point]] = {"go": SAMPLES, "llvm": SAMPLES}


def gain_of(profile: Profile, instances: int = 1, lost: float | None = None) -> Gain:
    """Return the gain that is expected, by what Go's compiler reads of the profile."""
    try:
        go: TracedEdges | UnfitForFormat = traced_edges(profile)
    except UnfitForFormat as unfit:
        go = unfit
    return expected_gain(profile, go, instances, lost=lost, measured=KNOWN)


def profile_of(stacks: Mapping[str, int], seconds: float = 0.0) -> Profile:
    """Return a profile of a Go program: each stack begins in the runtime, as all do there."""
    named = {f"runtime.goexit;runtime.main;{stack}": count for stack, count in stacks.items()}
    message = profile_pb2.Profile.FromString(stacked(named))
    message.duration_nanos = int(seconds * 1e9)
    return decode(message.SerializeToString())


def hottest(stacks: Mapping[str, int]) -> HotCall | None:
    gain = gain_of(profile_of(stacks))
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
    assert gain_of(decode(message.SerializeToString())).hottest_call is None


def test_the_verdict_follows_what_was_measured() -> None:
    hot = "main.main;main.read;main.next"
    enough = gain_of(profile_of({hot: 2000}), 3)
    assert (enough.verdict, enough.samples, enough.collect) == ("enough", 2000, None)
    assert enough.share == pytest.approx(0.965, abs=0.001)
    assert enough.reason == "Go's compiler can use 2,000 of 2,000 samples, and more would add little."
    more = gain_of(profile_of({hot: 400}, seconds=240), 3)
    assert (more.verdict, more.collect) == ("collect more", Collection(600, 2, 3))
    assert more.reason.endswith(
        "collect 600 more that it can use, by profiling 3 instances for 2 more minutes."
    )
    timeless = gain_of(profile_of({hot: 400}), 0)
    assert timeless.collect == Collection(600, None, 1)
    lost = gain_of(profile_of({hot: 2000}), 3, lost=0.25)
    assert lost.reason.endswith("; 25% of the weight is in functions that the program doesn't have any more.")


def test_where_no_call_is_hot_the_usual_is_expected() -> None:
    stacks = {f"main.main;main.f{number};main.g{number}": 100 for number in range(20)}
    gain = gain_of(profile_of(stacks))
    assert gain.verdict == "enough"
    assert gain.reason == (
        "Go's compiler can use 2,000 of 2,000 samples, and more would add little; expect 0 to 5% less CPU"
        " time: no call stands out, and the hottest that isn't inlined yet, of main.g0 by main.f0, has 5% of"
        " the time below it."
    )
    few = gain_of(profile_of(dict.fromkeys(stacks, 5)))
    assert few.verdict == "collect more"
    assert "collect 900 more that it can use; expect 0 to 5% less CPU time" in few.reason


def test_a_native_profile_is_llvms(profiles: Path) -> None:
    native = gain_of(decode(stacked({"main;work": 5})))
    assert (native.compiler, native.hottest_call, native.verdict) == ("llvm", None, "collect more")
    real = merge(decode(path.read_bytes()) for path in sorted(profiles.glob("apisvc-v1-*.pb.gz")))
    gain = gain_of(real)
    assert gain.compiler == "go"
    assert gain.hottest_call
    assert 0 < gain.hottest_call.share < 0.2


Edit = Callable[[profile_pb2.Profile], None]


def edited(edit: Edit, stacks: Mapping[str, int]) -> Profile:
    message = profile_pb2.Profile.FromString(stacked(stacks))
    edit(message)
    return decode(message.SerializeToString())


def unchanged(_: profile_pb2.Profile) -> None:
    pass


def without_start_lines(message: profile_pb2.Profile) -> None:
    for function in message.function:
        function.start_line = 0


def interpreted(message: profile_pb2.Profile) -> None:
    without_start_lines(message)
    for location in message.location:
        location.address = 0


def without_functions(message: profile_pb2.Profile) -> None:
    message.string_table.append(b"abcdef")
    message.mapping[0].build_id = len(message.string_table) - 1
    for location in message.location:
        del location.line[:]


def of_objects(message: profile_pb2.Profile) -> None:
    message.string_table.append(b"objects")
    for measured in message.sample_type:
        measured.type = len(message.string_table) - 1


NO_START_LINE = "no function has a start line; programs built with Go 1.20 or later write them"


@pytest.mark.parametrize(
    ("edit", "stack", "why"),
    [
        (interpreted, "main;work", "it has no addresses, so LLVM can't use it"),
        (without_start_lines, "main;work", "it has no first lines of functions (start_line), so LLVM can't"),
        (without_functions, "main;work", "so LLVM can't use it without the program that was profiled"),
        (of_objects, "main;work", "not CPU time"),
        (unchanged, "", "it has no samples"),
    ],
)
def test_what_no_compiler_takes_gains_nothing(edit: Edit, stack: str, why: str) -> None:
    gain = gain_of(edited(edit, {stack: 115_507}))
    assert (gain.compiler, gain.verdict, gain.samples, gain.collect) == (None, "none", 0, None)
    assert {each.verdict for each in gain.formats.values()} == {"none"}
    assert why in gain.formats["llvm"].reason
    assert gain.reason == (
        f"No compiler can use it (Go: {gain.formats['go'].reason}; LLVM: {gain.formats['llvm'].reason})."
    )


def test_a_go_program_from_before_1_20_is_no_program_of_llvm() -> None:
    gain = gain_of(edited(without_start_lines, {"runtime.goexit;runtime.main;main.main": 5000}))
    assert (gain.compiler, gain.verdict) == (None, "none")
    assert gain.reason == f"Go's compiler can't use it: {NO_START_LINE}."


def test_only_samples_that_a_compiler_takes_count() -> None:
    def few(message: profile_pb2.Profile) -> None:
        for function in message.function:
            if message.string_table[function.name].endswith(b"unknown"):
                function.start_line = 0

    gain = gain_of(edited(few, {"main;work": 10, "unknown;of unknown": 49_990}))
    assert {name: (each.verdict, each.samples) for name, each in gain.formats.items()} == {
        "go": ("collect more", 10),
        "llvm": ("collect more", 10),
    }
    assert "10 of 50,000 samples" in gain.reason
    # Go's compiler matches a call by its line in the caller: the start line of what is called tells nothing.
    gain = gain_of(edited(few, {"unknown;work": 500}))
    assert gain.formats["go"].verdict == "none"
    assert gain.formats["llvm"].samples == 500


OLD_NAME, FOUND = (
    "_ZN4core3ops8function5Fn$LT$A..B$GT$17h0123456789abcdefE",
    "_ZN4main4work17h0123456789abcdefE",
)


def test_samples_in_names_of_rust_that_llvm_cuts_do_not_count() -> None:
    gain = gain_of(edited(unchanged, {OLD_NAME: 4000, FOUND: 1000}))
    assert gain.formats["llvm"].samples == 1000
    assert gain.formats["llvm"].reason.startswith(
        "rustc, which finds no function with a dot in its name (build with -Csymbol-mangling-version=v0), can"
        " use 1,000 of 5,000 samples"
    )
    # As in programs with other names, whose library still has these: it was built before.
    gain = gain_of(edited(unchanged, {OLD_NAME: 4000, "_RNvC4main4work": 1000}))
    assert gain.formats["llvm"].samples == 1000
    assert gain.formats["llvm"].reason.startswith("LLVM (clang, rustc) can use 1,000 of 5,000 samples")


@pytest.mark.parametrize("kept", [0, 1])
def test_one_sample_type_is_enough_to_count_samples(kept: int) -> None:
    def one_type(message: profile_pb2.Profile) -> None:
        del message.sample_type[1 - kept]
        for sample in message.sample:
            del sample.value[1 - kept]

    gain = gain_of(edited(one_type, {"main;work": 5000}))
    assert [each.samples for each in gain.formats.values()] == [5000, 5000]


def test_a_profile_of_leaves_alone_is_none_of_gos() -> None:
    gain = gain_of(edited(unchanged, {"runtime.main": 5000}))
    assert gain.formats["go"].verdict == "none"
    assert (gain.compiler, gain.verdict) == ("llvm", "enough")
    assert gain.reason.endswith(
        "; Go's compiler can't use it: it has no calls, or their weights add up to 0."
    )


LINES = st.sampled_from([0, 0, 1, 3])


@given(
    frames=st.lists(st.tuples(LINES, LINES, st.booleans(), st.booleans()), min_size=1, max_size=5),
    stacks=st.lists(
        st.tuples(st.lists(st.integers(0, 4), max_size=3), st.integers(-2, 3)), min_size=1, max_size=5
    ),
    types=st.sampled_from(
        ["samples/count", "cpu/nanoseconds", "cpu/count", "samples/bytes", "objects/count"]
    ),
    is_go=st.booleans(),
)
def test_a_verdict_is_none_where_the_format_is_refused_or_empty(
    frames: Sequence[tuple[int, int, bool, bool]],
    stacks: Sequence[tuple[Sequence[int], int]],
    types: str,
    is_go: bool,
) -> None:
    names = [f"{'runtime.' if is_go else ''}f{row}" for row in range(len(frames))]
    texts = ["", *types.split("/"), *names]
    message = profile_pb2.Profile(string_table=[text.encode() for text in texts])
    message.sample_type.add(type=1, unit=2)
    message.mapping.add(id=1)
    for row, (start_line, line, has_address, has_function) in enumerate(frames, 1):
        message.function.add(id=row, name=row + 2, start_line=start_line)
        location = message.location.add(id=row, mapping_id=1, address=4096 + row if has_address else 0)
        if has_function:
            location.line.add(function_id=row, line=line)
    for stack, value in stacks:
        message.sample.add(location_id=[each % len(frames) + 1 for each in stack], value=[value])
    profile = decode(message.SerializeToString())
    gain = gain_of(profile)
    taken, refused = list[str](), dict[str, str]()
    try:
        edges = call_edges(decode(FORMATS["go"].write(profile)))
        # The format writes a start line for all functions: those that had none match nothing.
        matched = {
            profile.strings[int(profile.functions.name[row])]
            for row in np.flatnonzero(profile.functions.start_line).tolist()
        } & {edges.names[row] for row in edges.caller.tolist()}
        if edges.weight.sum() and matched:
            taken.append("go")
    except UnfitForFormat as unfit:
        refused["go"] = str(unfit)
    try:
        if FORMATS["llvm"].write(profile):
            taken.append("llvm")
    except UnfitForFormat as unfit:
        refused["llvm"] = str(unfit)
    assert [name for name, each in gain.formats.items() if each.verdict != "none"] == taken
    assert refused.items() <= {name: each.reason for name, each in gain.formats.items()}.items()
    assert (gain.verdict == "none") == (not taken)
    assert (gain.compiler is None) == (not taken)


def test_the_measured_points_rise_and_are_shares() -> None:
    for points in MEASURED.values():
        amounts = [point.amount for point in points]
        assert amounts == sorted({*amounts})
        assert all(amount > 0 for amount in amounts)
        shares = [point.share for point in points]
        assert shares == sorted(shares)
        assert all(0 <= share <= 1 for share in shares)


@given(st.integers(0, 10**8), st.integers(0, 10**8))
def test_more_samples_never_mean_less(one: int, other: int) -> None:
    few, many = (share_of_samples(SAMPLES, count) for count in sorted((one, other)))
    assert 0 <= few <= many <= 1
