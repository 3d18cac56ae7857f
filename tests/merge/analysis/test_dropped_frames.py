"""The frames that a profile wants left out: views are without them as `go tool pprof -top` is."""

from __future__ import annotations

import gzip
import json
from itertools import permutations
from time import process_time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import FORMATS, Collection, decode, encode, merge
from pprof_merge.analysis import (
    FlameGraph,
    FlameView,
    FunctionUse,
    Timeline,
    TopTable,
    WeighedStacks,
    as_shown,
    dropped_frames,
    focus_names,
)
from pprof_merge.analysis.dropped_frames import LONGEST_EXPRESSION
from pprof_proto.profile_pb2 import Profile as Message

from tests.merge.analysis.test_function_use import CPU, located
from tests.merge.analysis.test_top_table import as_go_has_it
from tests.merge.go_top import go_top
from tests.merge.stacked import stacked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.merge.analysis.test_function_use import Line

NAMES = (
    "main",
    "f",
    ".f",
    "malloc",
    "malloc(unsigned long)",
    "(anonymous namespace)::malloc(int)",
    "operator()(int)",
    "operator new",
    "Cache::operator()(int)::{lambda()#1}",
    "caf\u00e9",
    "a\nb",
)
EXPRESSIONS = st.sampled_from(
    [
        "malloc",
        "malloc|operator new",
        "f|malloc",
        ".*malloc.*",
        "operator.*",
        r"\(anonymous namespace\)::malloc",
        "f)|(malloc",
        "(?i)MALLOC",
        "caf.",
        "a.b",
        "(?s)a.b",
        ".*",
        "",
        "(",
        "a**",
        r"(?P<n>m)alloc",
    ]
)
LINES = st.sampled_from([(name, "/src/a.go", 1) for name in NAMES])
STACKS = st.lists(
    st.tuples(st.lists(st.lists(LINES, min_size=1, max_size=3), max_size=4), st.integers(1, 9)),
    min_size=1,
    max_size=8,
)


def dropping(profile: bytes, drop: str, keep: str = "") -> bytes:
    """Return a bare profile with these expressions."""
    message = Message.FromString(profile)
    for field, text in (("drop_frames", drop), ("keep_frames", keep)):
        setattr(message, field, len(message.string_table))
        message.string_table.append(text.encode("latin-1" if "\xff" in text else "utf-8"))
    return message.SerializeToString()


def top_of(profile: bytes) -> dict[str, tuple[int, int]]:
    return as_go_has_it(TopTable.of(decode(profile), column=CPU))


# As a heap profile of C++: Cache::Fill calls new, which calls malloc; parse calls malloc.
HEAP = dropping(
    stacked({"main;Cache::Fill;operator new;malloc": 100, "main;parse;malloc": 50}),
    "malloc|operator new",
    "mallocator_keep",
)
UNIT = 10_000_000


@given(STACKS, EXPRESSIONS, EXPRESSIONS)
def test_the_table_is_gos(
    tmp_path_factory: pytest.TempPathFactory,
    stacks: Sequence[tuple[Sequence[Sequence[Line]], int]],
    drop: str,
    keep: str,
) -> None:
    profile = dropping(located(stacks), drop, keep)
    assert top_of(profile) == go_top(profile, tmp_path_factory.mktemp("go"), "cpu", "nanoseconds")


@pytest.mark.parametrize(
    ("stack", "drop", "expected"),
    [
        ("main;f;malloc;g", "malloc", "main;f"),
        ("malloc;main;f;malloc;g", "malloc", "malloc;main;f"),
        ("malloc;main", "malloc", "malloc;main"),
        ("malloc", "malloc", "malloc"),
        ("main;mallocgc", "malloc", "main;mallocgc"),
        ("main;malloc(unsigned long)", "malloc", "main"),
        ("main;f", "(", "main;f"),
        ("main;f", "f|\xff", "main;f"),
        ("main;f", "f|" + "g" * LONGEST_EXPRESSION, "main;f"),
    ],
)
def test_a_stack_ends_before_what_is_dropped(stack: str, drop: str, expected: str) -> None:
    profile = decode(dropping(stacked({stack: 1}), drop))
    assert FORMATS["folded"].write(profile).decode() == f"{expected} {UNIT}\n"
    again = as_shown(profile)
    assert FORMATS["folded"].write(again).decode() == f"{expected} {UNIT}\n"


def test_what_is_kept_is_not_dropped() -> None:
    assert top_of(dropping(stacked({"main;malloc": 1}), "m.*c", "malloc")) == top_of(
        stacked({"main;malloc": 1})
    )


def test_an_inlined_call_is_cut_where_it_is_dropped() -> None:
    lines: list[list[Line]] = [
        [("main", "a.go", 1)],
        [("f", "a.go", 2), ("malloc", "a.go", 3), ("g", "a.go", 4)],
    ]
    profile = decode(dropping(located([(lines, 7)]), "malloc"))
    assert FORMATS["folded"].write(profile) == b"main;f 7\n"


def test_every_view_is_without_them() -> None:
    profile = decode(HEAP)
    names = {"main", "Cache::Fill", "parse"}
    assert top_of(HEAP) == {
        "main": (0, 150 * UNIT),
        "Cache::Fill": (100 * UNIT,) * 2,
        "parse": (50 * UNIT,) * 2,
    }
    folded = FORMATS["folded"].write(profile).decode()
    assert folded == f"main;Cache::Fill {100 * UNIT}\nmain;parse {50 * UNIT}\n"
    speedscope = json.loads(FORMATS["speedscope"].write(profile))
    assert {frame["name"] for frame in speedscope["shared"]["frames"]} == names
    table = json.loads(FORMATS["json"].write(profile))
    assert {row["name"] for row in table["functions"]} == names
    graph = FlameGraph.of(WeighedStacks.of(profile, CPU), FlameView())
    assert {*graph.names} == {"", *names}
    use = FunctionUse.of(profile, "Cache::Fill", CPU)
    assert (use.flat, use.callees) == (100 * UNIT, {})
    dropped = FunctionUse.of(profile, "malloc", CPU)
    assert (dropped.is_known, dropped.similar) == (False, [])
    collection = Collection()
    collection.add(HEAP)
    timeline = Timeline.of(collection, [0], [0], lambda frame: frame.name == "parse")
    assert timeline.flat[0, CPU] == 50 * UNIT


def test_patterns_choose_from_what_is_left() -> None:
    shown = as_shown(decode(HEAP))
    assert not len(focus_names(shown, focus=lambda name: name == "malloc").samples)


@pytest.mark.parametrize("wanted", ["pprof", "go"])
def test_merges_and_compilers_keep_them(wanted: str) -> None:
    message = Message.FromString(gzip.decompress(FORMATS[wanted].write(decode(HEAP))))
    assert b"malloc" in message.string_table


def test_merges_carry_the_expressions_of_the_first(tmp_path: Path) -> None:
    stacks = {"main;f;malloc": 1, "main;free": 2}
    profiles = [
        dropping(stacked(stacks, time_nanos=time), drop) for time, drop in ((1, "malloc"), (2, "free"))
    ]
    merged = encode(merge(map(decode, profiles)))
    assert top_of(merged) == go_top(merged, tmp_path, "cpu", "nanoseconds")
    assert top_of(merged)["f"] == (2 * UNIT, 2 * UNIT)
    assert top_of(merged)["free"] == (4 * UNIT, 4 * UNIT)


def test_many_stacks_are_cut_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("main", "malloc", "f", "g")
    stacks = {";".join(of): 1 for length in range(1, 5) for of in permutations(names, length)}
    profile = decode(dropping(stacked({**stacks, "": 1}), "malloc|g"))
    at_once = FORMATS["folded"].write(profile)
    for size in (1, 3, 7):
        monkeypatch.setattr(dropped_frames, "_CHUNK_FRAMES", size)
        assert FORMATS["folded"].write(profile) == at_once


def test_hostile_expressions_are_ignored_in_time() -> None:
    names = {f"main;{'abcdef' * 5000}{number}": 1 for number in range(40)}
    profile = decode(dropping(stacked(names), "((a|b|.)*(c|d|.){200}){3}"))
    begin = process_time()
    found = TopTable.of(profile, column=CPU)
    assert process_time() - begin < 10  # without a bound it takes 40 times half a second
    assert len(found.names) == 41
