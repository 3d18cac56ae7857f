"""LLVM's sample profile: its content for made-up profiles; LLVM's own reader reads the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import UnfitForFormat, merge
from pprof_merge.analysis.sample_paths import is_found
from pprof_merge.formats.llvm import llvm_sample_profile

from tests.merge.formats.native import CPU, LARGEST, Frame, Leaf, native

needs_llvm = pytest.mark.system("llvm-profdata")


def text(*lines: str) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def main_at(line: int, start_line: int = 10) -> Frame:
    return Frame(b"main", line, start_line)


def written(*leaves: Leaf) -> bytes:
    return llvm_sample_profile(native(leaves))


def test_a_line_counts_from_the_first_of_its_function() -> None:
    leaves = [Leaf(1, 5, (main_at(10),)), Leaf(2, 7, (main_at(12),))]
    assert written(*leaves) == text("main:12:0", " 0: 5", " 2: 7")


def test_a_line_counts_the_maximum_of_its_addresses_and_a_function_all_of_them() -> None:
    leaves = [Leaf(address, count, (main_at(12),)) for address, count in enumerate([3, 9, 4], 1)]
    assert written(*leaves) == text("main:16:0", " 2: 9")


def test_samples_of_one_address_add_up_first() -> None:
    once = native([Leaf(1, 5, (main_at(12),)), Leaf(2, 8, (main_at(12),))])
    again = native([Leaf(1, 4, (main_at(12),), callers=(Frame(b"_start", 1),))])
    assert llvm_sample_profile(merge([once, again])) == text("main:17:0", " 2: 9")


def test_the_lines_of_different_binaries_add_up() -> None:
    leaves = [Leaf(1, 5, (main_at(12),), b"old"), Leaf(2, 6, (main_at(12),), b"old")]
    leaves.append(Leaf(1, 7, (main_at(12),), b"new"))
    assert written(*leaves) == text("main:18:0", " 2: 13")


def test_inlined_calls_stand_within_the_line_that_calls() -> None:
    inner, outer = Frame(b"inner", 55, 50), Frame(b"outer", 33, 30)
    leaves = [
        Leaf(1, 2, (inner, outer, main_at(14))),
        Leaf(2, 3, (outer, main_at(14))),
        Leaf(3, 4, (inner, main_at(11))),
        Leaf(4, 5, (inner,)),
        Leaf(5, 1, (main_at(14),)),
    ]
    assert written(*leaves) == text(
        "main:10:0",
        " 4: 1",
        " 1: inner:4",
        "  5: 4",
        " 4: outer:5",
        "  3: 3",
        "  3: inner:2",
        "   5: 2",
        "inner:5:0",
        " 5: 5",
    )


def test_callers_that_are_not_inlined_play_no_part() -> None:
    leaf = Leaf(2, 5, (Frame(b"callee", 31, 30),), callers=(main_at(12),))
    assert written(leaf) == text("callee:5:0", " 1: 5")


def test_a_line_above_the_first_wraps_as_in_llvm() -> None:
    assert written(Leaf(1, 5, (main_at(8),))) == text("main:5:0", " 65534: 5")


def test_counts_are_cpu_time_where_there_are_no_samples() -> None:
    profile = native([Leaf(1, 5, (main_at(12),))], (CPU[1],))
    assert llvm_sample_profile(profile) == text("main:50000000:0", " 2: 50000000")
    assert llvm_sample_profile(native([Leaf(1, 5, (main_at(12),))], CPU[::-1])) == text("main:5:0", " 2: 5")


def test_functions_go_by_their_linkage_names() -> None:
    profile = native([Leaf(1, 5, (Frame(b"_ZN1A3runEv", 12),))], demangled=True)
    assert llvm_sample_profile(profile) == text("_ZN1A3runEv:5:0", " 2: 5")


@pytest.mark.parametrize(
    "name", ["run.cold", "run.llvm.123", "run.part.0.cold.1", "run.__part.2", "run.isra.0", "run.constprop.0"]
)
def test_parts_and_clones_count_for_their_function(name: str) -> None:
    leaves = [Leaf(1, 5, (Frame(b"run", 12),)), Leaf(2, 3, (Frame(name.encode(), 15),))]
    assert written(*leaves) == text("run:8:0", " 2: 5", " 5: 3")


@pytest.mark.parametrize("name", ["run.cold.part", "run.llvm.x", "run.partial", "run.__uniq.12"])
def test_other_names_with_a_point_are_names(name: str) -> None:
    assert written(Leaf(1, 5, (Frame(name.encode(), 12),))) == text(f"{name}:5:0", " 2: 5")


UNKNOWN_PLACES = {
    "address": Leaf(0, 5, (main_at(12),)),
    "line": Leaf(1, 5, (main_at(0),)),
    "first line": Leaf(1, 5, (main_at(12, start_line=0),)),
    "lines": Leaf(1, 5, ()),
    "line of the caller": Leaf(1, 5, (Frame(b"inner", 55, 50), main_at(0))),
    "name": Leaf(1, 5, (Frame(b"", 12),)),
    "count": Leaf(1, 0, (main_at(12),)),
    "positive count": Leaf(1, -5, (main_at(12),)),
    "end": Leaf(1, 5, (main_at(12),) * 201),
} | {
    repr(name): Leaf(1, 5, (Frame(name, 12),))
    for name in (b" f", b"#f", b"[f", b"7f", b"f\ng", b"f\0", b".cold")
}


@pytest.mark.parametrize("missing", UNKNOWN_PLACES)
def test_samples_without_a_place_are_left_out(missing: str) -> None:
    known = Leaf(9, 4, (Frame(b"known", 11),))
    assert written(UNKNOWN_PLACES[missing], known) == text("known:4:0", " 1: 4")


@pytest.mark.parametrize(
    ("leaves", "lack"),
    [
        ([], "it has no samples"),
        ([UNKNOWN_PLACES["address"]], "it has no addresses, so LLVM can't use it"),
        ([UNKNOWN_PLACES["lines"]], "it has no source lines, so LLVM can't use it"),
        ([UNKNOWN_PLACES["line"]], "it has no source lines, so LLVM can't use it"),
        (
            [UNKNOWN_PLACES["first line"]],
            "it has no first lines of functions (start_line), so LLVM can't use it",
        ),
        (
            [UNKNOWN_PLACES["name"]],
            "it has no sample with an address, a line, and its function's first line and name, as LLVM needs",
        ),
    ],
)
def test_a_profile_of_which_nothing_is_left_is_refused(leaves: list[Leaf], lack: str) -> None:
    with pytest.raises(UnfitForFormat) as raised:
        written(*leaves)
    assert str(raised.value) == lack


def test_a_profile_of_something_else_is_refused() -> None:
    profile = native([Leaf(1, 5, (main_at(12),))], ((b"alloc_space", b"bytes"),))
    with pytest.raises(UnfitForFormat, match=r"^it measures alloc_space/bytes, not CPU time$"):
        llvm_sample_profile(profile)


@pytest.fixture(scope="module")
def reread(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], bytes]:
    """Return what LLVM's writer writes of what its reader has read."""
    file = tmp_path_factory.mktemp("llvm") / "sample.prof"

    def through_llvm(sample_profile: bytes) -> bytes:
        Path(file).write_bytes(sample_profile)
        command = ["llvm-profdata", "merge", "--sample", "--text", str(file), "-o", "-"]
        done = subprocess.run(command, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), sample_profile
        return done.stdout

    return through_llvm


NAMES = st.one_of(
    st.sampled_from(
        [
            b"main",
            b"_ZN1A3runEv",
            b"A::run(int, char) const",
            b"f:1:2",
            b"f 7:3",
            b"f.cold",
            b"!f",
            b"vtables",
        ]
    ),
    st.binary(max_size=5),
)
FRAMES = st.builds(
    Frame, NAMES, st.sampled_from([1, 10, 12, 70_000, LARGEST]), st.sampled_from([1, 10, LARGEST])
)
LEAVES = st.builds(
    Leaf,
    st.integers(1, 5),
    st.sampled_from([1, 2, 1000, LARGEST]),
    st.lists(FRAMES, min_size=1, max_size=4).map(tuple),
    st.sampled_from([b"5eed", b"feed"]),
)


@needs_llvm
@given(st.lists(LEAVES, min_size=1, max_size=12))
def test_llvm_reads_what_was_written(reread: Callable[[bytes], bytes], leaves: list[Leaf]) -> None:
    try:
        sample_profile = written(*leaves)
    except UnfitForFormat:
        return
    assert reread(sample_profile) == sample_profile


@needs_llvm
def test_llvm_reads_the_largest_count_there_is(reread: Callable[[bytes], bytes]) -> None:
    leaves = [Leaf(1, LARGEST, (main_at(12),), build_id) for build_id in (b"1", b"2", b"3")]
    largest = written(*leaves)
    assert largest == text(f"main:{2**64 - 1}:0", f" 2: {2**64 - 1}")
    assert reread(largest) == largest


@needs_llvm
def test_llvm_reads_the_deepest_path_there_is(reread: Callable[[bytes], bytes]) -> None:
    deepest = written(Leaf(1, 5, (main_at(12),) * 200))
    assert deepest.count(b"\n") == 201
    assert reread(deepest) == deepest


@pytest.mark.system("clang")
@pytest.mark.parametrize(
    "name", ["_ZN1a1b17h0123456789abcdefE", "_ZN4a..b1c17h0123456789abcdefE", "_RNvC1a1b", "a"]
)
def test_llvm_finds_the_names_that_are_said_to_be_found(tmp_path: Path, name: str) -> None:
    """Rust's old names with dots are not found: what clang does then is what rustc does, by the same code."""
    source, profile = tmp_path / "program.c", tmp_path / "program.prof"
    source.write_text(f'int work(int) __asm__("{name}");\nint work(int n) {{\n  return n ? n * 3 : 1;\n}}\n')
    profile.write_bytes(written(Leaf(1, 5, (Frame(name.encode(), 12, 11),))))
    guided = [f"-fprofile-sample-use={profile}", "-Rpass-analysis=sample-profile"]
    command = ["clang", "-c", "-O2", "-g", *guided, "-o", str(tmp_path / "program.o"), str(source)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert ("Applied 5 samples" in said) == is_found(name.encode())
