"""Names in views: demangled as `go tool pprof -top` shows them. Merges and compilers have mangled ones."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pprof_merge import FORMATS, decode, encode, merge
from pprof_merge.analysis import (
    FlameGraph,
    FlameView,
    FunctionUse,
    Grouping,
    TopTable,
    WeighedStacks,
    as_shown,
    demangling,
    focus_calls,
    short_names,
    shown_name,
)
from pprof_merge.analysis.demangling import LONGEST_NAME
from pprof_proto.profile_pb2 import Profile as Message

from tests.merge.analysis.test_dropped_frames import dropping, top_of
from tests.merge.go_top import go_top
from tests.merge.stacked import stacked

# As compilers and linkers write them, and how `go tool pprof` shows them.
RUST_LEGACY = "_ZN4core3fmt5write17h0123456789abcdefE"
CPP = "_ZNSt6vectorIiSaIiEE9push_backEOi"
SHOWN = {
    RUST_LEGACY: "core::fmt::write",
    f"{RUST_LEGACY}.llvm.99": "core::fmt::write",
    "_ZN4core3fmt3num50_$LT$impl$u20$core..fmt..Debug$u20$for$u20$i32$GT$3fmt17h83a687c72d217fd2E.4467": (
        "core::fmt::num::<impl core::fmt::Debug for i32>::fmt"
    ),
    "_RNvC6_123foo3bar": "123foo::bar",
    "_RNCNvC4main3foo0B3_.llvm.99": "main::foo::{closure#0}",
    "_RINvNtC4core3ptr13drop_in_placeINtNtC5alloc3vec3VecNtC1a1bEEB4_": "core::ptr::drop_in_place::<>",
    "_RNvXs_C4mainINtB4_1SNtB4_1UENtB4_1T1f": "<main::S<> as main::T>::f",
    CPP: "std::vector::push_back",
    "_Z3foov": "foo",
    "__Z3foov": "foo",
    "_Z3fooi.part.1.isra.0": "foo",
    "_Z1fv@@LIB_2": "f",
    "_ZSt4sortIPiEvT_S1_": "std::sort",
    "_ZlsRSoRK1A": "operator<<",
    "_ZN1AltERKS_": "A::operator<",
    "_ZNK1AclEv": "A::operator()",
    "_ZN1AcvT_IiEEv": "A::operator int",
    "_ZN12_GLOBAL__N_13fooEv": "(anonymous namespace)::foo",
    "_ZZ4mainENKUlvE_clEv": "main::{lambda()#1}::operator()",
    "_ZNSsC1ERKSaIcE": "std::basic_string::basic_string",
    "_ZThn24_N5clang9ASTReader3getEi": "non-virtual thunk to clang::ASTReader::get(int)",
    "_Znotmangled": "_Znotmangled",
    "main.(*T).Run": "main.(*T).Run",
    "std::vector<int>::push_back(int)": "std::vector::push_back",
    "a::operator->(int)": "a::operator->",
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_name_is_shown_as_by_go(name: str, tmp_path: Path) -> None:
    profile = stacked({f"main;{name}": 2, name: 1})
    assert go_top(profile, tmp_path, "cpu", "nanoseconds", "-symbolize=") == top_of(profile)
    assert set(top_of(profile)) == {"main", SHOWN[name]}


@pytest.mark.parametrize(
    "name",
    [
        "<module>",
        "<Vec<T> as std::Drop>::drop",
        "(a::b)",
        "List<T>.add()",
        "main.F[go.shape.interface { A() }]",
    ],
)
def test_names_of_which_go_leaves_too_little_are_shown_as_sent(name: str) -> None:
    assert set(top_of(stacked({name: 1}))) == {name}


@pytest.mark.system("nm")
def test_the_functions_of_a_library_are_shown_as_by_go(tmp_path: Path) -> None:
    (library, *_) = Path("/usr/lib").glob("*/libstdc++.so.6")
    listed = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    symbols = [
        line.split()[-1].partition("@")[0] for line in listed.splitlines() if re.search(" [TW] ", line)
    ]
    profile = stacked(dict.fromkeys(symbols, 1))
    shown = top_of(profile)
    assert shown == go_top(profile, tmp_path, "cpu", "nanoseconds", "-symbolize=")
    assert len(symbols) > 3000
    assert not [name for name in shown if name.startswith("_Z")]


def test_swift_is_shown_too() -> None:
    assert shown_name("$s4main3FooV3baryS2i_SStF") == "Foo.bar(_:_:)"


def test_a_name_that_the_sender_has_demangled_stays() -> None:
    message = Message.FromString(stacked({CPP: 1}))
    message.function[0].name = len(message.string_table)
    message.string_table.append(b"std::vector<int>::push_back(int&&)")
    assert set(top_of(message.SerializeToString())) == {"std::vector<int>::push_back(int&&)"}


def test_a_mangled_name_without_a_name_in_the_system_is_shown_demangled() -> None:
    message = Message.FromString(stacked({CPP: 1}))
    message.function[0].system_name = 0
    assert set(top_of(message.SerializeToString())) == {"std::vector::push_back"}


def test_compilers_and_merges_keep_what_linkers_know() -> None:
    profile = decode(stacked({f"main;{RUST_LEGACY};{CPP}": 9}))
    for name in ("llvm", "pprof", "go"):
        assert FORMATS[name].write(profile) == FORMATS[name].write(decode(encode(profile)))
    assert CPP.encode() in encode(merge([profile]))
    assert b"_ZNSt6vectorIiSaIiEE9push_backEOi:" in FORMATS["llvm"].write(profile)


def test_every_view_has_the_same_names() -> None:
    profile = decode(stacked({f"main;{RUST_LEGACY};{CPP}": 9}))
    stack = "main;core::fmt::write;std::vector::push_back"
    assert FORMATS["folded"].write(profile) == f"{stack} 90000000\n".encode()
    for name in ("speedscope", "json"):
        assert b"std::vector::push_back" in FORMATS[name].write(profile)
        assert b"_ZN" not in FORMATS[name].write(profile)
    shown = as_shown(profile)
    assert as_shown(shown) is shown


def test_instances_of_a_template_are_one_function() -> None:
    long = "_ZNSt6vectorIlSaIlEE9push_backEOl"
    assert top_of(stacked({CPP: 1, long: 2, "std::vector::push_back": 3})) == {
        "std::vector::push_back": (60_000_000, 60_000_000)
    }


@pytest.mark.parametrize("name", [CPP, "std::vector::push_back"])
def test_either_name_finds_the_function(name: str) -> None:
    profile = decode(stacked({f"main;{RUST_LEGACY};{CPP}": 9, "main": 1}))
    use = FunctionUse.of(profile, name, 1)
    assert (use.is_known, use.cum, [*use.callers]) == (True, 90_000_000, ["core::fmt::write"])
    stacks = WeighedStacks.of(profile, 1)
    assert FlameGraph.of(stacks, FlameView(search=name)).matched.tolist() == [90_000_000]
    callers, _ = stacks.around(name)
    assert callers.values.sum() == 90_000_000
    calls = [shown_name("main"), RUST_LEGACY, name]
    assert len(focus_calls(profile, calls).samples) == 1


def test_frames_are_dropped_by_the_names_that_are_shown(tmp_path: Path) -> None:
    profile = dropping(stacked({f"main;{RUST_LEGACY};{CPP};f": 9}), "std::vector::push_back")
    assert top_of(profile) == go_top(profile, tmp_path, "cpu", "nanoseconds", "-symbolize=")
    assert set(top_of(profile)) == {"main", "core::fmt::write"}


# What makes names deep, long, or refer to what came before.
PIECES = st.sampled_from(
    [
        *(
            "_Z",
            "_R",
            "_ZN",
            "$s",
            "S_",
            "S0_",
            "T_",
            "I",
            "E",
            "J",
            "P",
            "R",
            "K",
            "N",
            "v",
            "i",
            "Dp",
            "X",
            "L",
        ),
        *("Ul", "cv", "cl", "1A", "C1a", "Nv", "B_", "NtB0_", "IS_S_E", "Say", "G", "h0", "17h"),
    ]
)


@given(
    st.lists(st.tuples(PIECES, st.integers(1, 500)), min_size=1, max_size=8), st.sampled_from(["", *SHOWN])
)
@example([("_Z1f", 1), ("P", 4000), ("i", 1)], "")
@example([("_ZN", 1), ("1aI", 1300), ("iE", 1)], "")
@example([("_Z1f1AIiE", 1), ("1AIS_S_E", 400)], "")
def test_a_hostile_name_costs_little(pieces: list[tuple[str, int]], begin: str) -> None:
    name = (begin + "".join(piece * times for piece, times in pieces))[:LONGEST_NAME]
    start = process_time()
    assert len(shown_name(name)) <= 8 * len(name) + 64
    assert process_time() - start < 1


def test_what_takes_too_long_is_shown_as_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demangling, "_MOST_SECONDS", -1.0)
    profile = stacked({f"{CPP};main": 1})
    assert set(top_of(profile)) == {CPP, "main"}


def test_a_name_that_is_too_long_is_shown_as_sent() -> None:
    name = "_Z" + "1a" * LONGEST_NAME
    assert shown_name(name) == name
    assert shown_name(f"{CPP}\u00e9") == f"{CPP}\u00e9"


def test_a_name_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Counter[str]()
    monkeypatch.setattr(short_names, "short_name", lambda name: read.update([name]) or name.lower())
    profile = decode(stacked({"_Z10onlyinhere;_Z10andinhere": 1}))
    for _ in range(3):
        TopTable.of(profile)
    assert [*read.values()] == [1, 1]


def test_names_that_were_read_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demangling, "_MOST_BYTES", 10_000)
    known = demangling.ShortForms()
    monkeypatch.setattr(demangling, "_KNOWN", known)
    for number in range(1000):
        assert shown_name(f"_Z5f{number:04}v") == f"f{number:04}"
        assert len(known) < 10_000 / 200


@pytest.mark.parametrize("by", ["function", "line"])
@pytest.mark.parametrize("has_system_name", [False, True])
def test_a_part_of_a_mangled_name_finds_what_is_shown_in_its_place(
    by: Grouping, *, has_system_name: bool
) -> None:
    """So does a part of what is shown, also where the sender named the function, and in sums of profiles."""
    argument = "_ZNSt6vectorIN2ns3BarEE9push_backEOS1_"
    message = Message.FromString(stacked({f"main;{CPP}": 1, f"main;{argument}": 2, "main;work": 4}))
    if has_system_name:
        for function in message.function:
            function.system_name = function.name
            if function.name and message.string_table[function.name].startswith(b"_Z"):
                function.name = len(message.string_table)
                message.string_table.append(b"std::vector::push_back")
    profile = decode(message.SerializeToString())
    one = WeighedStacks.of(profile, 0, by=by)
    for stacks in (one, WeighedStacks.joined([one, one]), one.beside(one)):
        sums = 3 * (2 if len(stacks.values) > len(one.values) and stacks.values.shape[1] == 1 else 1)
        for part in ("6vectorIN2NS3b", "9push_ba", "_ZNSt6vec", "vector::PUSH", CPP):
            graph = FlameGraph.of(stacks, FlameView(search=part))
            assert (graph.n_matches, int(graph.matched[0])) == (1, sums), part
        assert FlameGraph.of(stacks, FlameView(search="2ns4")).n_matches == 0
    for part in ("6vectorIN2NS3b", "vector::push"):
        assert FunctionUse.of(profile, part, 0).similar == ["std::vector::push_back"]
    above, below = one.around("std::vector::push_back")
    if by == "function":
        for stacks in (above, below):
            assert FlameGraph.of(stacks, FlameView(search="3Bar")).n_matches == 1
