"""An output that would be enormous is refused before it is made, at little cost; one that fits is written.

Each input is measured in a process of its own, which may use three times an output's budget, and the memory
of a profile of 8 MiB.
"""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Budget, Limits, OutputTooLarge, decode, merge
from pprof_merge.analysis.coverage import parse_symbols
from pprof_merge.analysis.grouping import package_of
from pprof_merge.analysis.sample_paths import base_name
from pprof_merge.analysis.stacks import Frame
from pprof_merge.budget import digits
from pprof_merge.formats import FORMATS

from tests.merge.hostile_outputs import HOSTILE_OUTPUTS, attack
from tests.merge.writing import TOO_LARGE, UNFIT, WRITTEN, writings
from tests.oracle.builder import World

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
BUDGET = 32 * MIB
ROOM = 3 * BUDGET + 160 * MIB

# The outputs of each input that exceed the budget. The others are written, or unfit for the format.
ENORMOUS = {
    "long names in deep stacks": {"folded"},
    "names of 4,000 letters in deep stacks": {"folded"},
    "long names in many samples": {"folded"},
    "long names that aren't UTF-8": {"folded"},
    "long names of control characters": {"folded"},
    "long names that begin with <": {"folded"},
    "inlined calls in deep stacks": {"folded", "speedscope", "json", "flame graph"},
    "inlined calls in many samples": {"folded", "speedscope", "json", "flame graph", "go", "report"},
    "inlined calls of many leaves": {"llvm", "report"},
    "functions with one long name": {"folded", "speedscope"},
    "functions with one long file": {"speedscope"},
}


# Each format that can exceed its budget does so in one of them.
SOME = {
    "long names in deep stacks",
    "long names of control characters",
    "inlined calls in many samples",
    "inlined calls of many leaves",
    "many labels",
}


@pytest.mark.parametrize(
    "name",
    [name if name in SOME else pytest.param(name, marks=pytest.mark.exhaustive) for name in HOSTILE_OUTPUTS],
)
def test_outputs_stay_within_their_budget(name: str, tmp_path: Path) -> None:
    data = HOSTILE_OUTPUTS[name]()
    decode(data)  # raises if it is over a limit
    written = writings(data, tmp_path, BUDGET, ROOM)
    for output, (result, words, size, _, memory) in written.items():
        assert result in {WRITTEN, TOO_LARGE, UNFIT}, f"{output}: {result} {words}"
        assert memory < ROOM, output
        if output in FORMATS:
            assert size <= BUDGET
        if result == TOO_LARGE:
            assert f"{BUDGET:,} are allowed" in words
            assert memory < BUDGET + 100 * MIB, output
    assert {output for output in written if written[output].result == TOO_LARGE} >= ENORMOUS.get(name, set())


def test_a_stored_profile_with_a_name_over_the_limit(tmp_path: Path) -> None:
    written = writings(attack(MIB), tmp_path, 256 * MIB, 64 * MIB)
    assert written["folded"].result == TOO_LARGE
    assert written["folded"].words.startswith("it would take 52,")  # GB
    assert {result.result for name, result in written.items() if name != "folded"} == {WRITTEN}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(8))
def test_what_fits_is_written_and_one_byte_less_is_too_little(name: str, seed: int) -> None:
    world = World(Random(seed))  # noqa: S311 - made-up profiles
    profile = merge(decode(world.profile()) for _ in range(3))
    try:
        content = FORMATS[name].write(profile)
    except ValueError:
        return  # the profile isn't fit for the format
    if FORMATS[name].binary:
        return  # the budget is for the protobuf, before gzip
    # The tables of functions and stacks take part of the budget too.
    fits = Budget(len(content) + (1 << 16))
    assert FORMATS[name].write(profile, fits) == content == b"".join(FORMATS[name].pieces(profile, fits))
    with pytest.raises(OutputTooLarge) as refused:
        FORMATS[name].write(profile, Budget(len(content) - 1))
    assert refused.value.allowed == len(content) - 1
    assert refused.value.size >= len(content)


@pytest.mark.parametrize("name", ["pprof", "go"])
def test_binary_formats_count_before_gzip(name: str) -> None:
    profile = decode(attack(30_000))
    assert len(FORMATS[name].write(profile)) < 10_000
    with pytest.raises(OutputTooLarge, match="allowed; select fewer profiles"):
        FORMATS[name].write(profile, Budget(50_000))


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_digits_is_the_length_of_the_decimal_number(values: list[int]) -> None:
    assert digits(np.array(values, np.int64)).tolist() == [len(str(value)) for value in values]


_CLONE = re.compile(rb"(\.(llvm|part|__part|lto_priv|isra|constprop)\.\d+|\.cold(\.\d+)?)+$")
_PARTS = st.sampled_from([b".", b"cold", b".cold", b"part", b".part.1", b"llvm", b"0", b".5", b"x", b""])


@given(st.lists(_PARTS, max_size=8).map(b"".join))
def test_suffixes_of_clones_are_cut_as_by_an_expression(name: bytes) -> None:
    assert base_name(name) == _CLONE.sub(b"", name)


def test_no_name_or_list_of_symbols_makes_a_search_quadratic() -> None:
    # With a quadratic search, each of these would take minutes.
    assert package_of(Frame("<" * (1 << 18), "", 0)) == "<unknown>"
    assert package_of(Frame(f"f{'.isra.0' * (1 << 16)}/", "", 0)) == "f"
    assert base_name(b".cold" * (1 << 16) + b"x") == b".cold" * (1 << 16) + b"x"
    assert parse_symbols(b" " * (1 << 20) + b"\n 4d53a0 T main.run") == {b"main.run"}


def test_a_name_has_a_limit_of_its_own() -> None:
    letters = Limits().name_bytes
    decode(attack(letters))
    with pytest.raises(ValueError, match=f"string 8: more than {letters:,} name bytes"):
        decode(attack(letters + 1))
