"""Rules: what a file may contain, and what they leave of a profile."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import decode, encode, inflate, merge
from pprof_merge.analysis import RulesInvalid
from pprof_merge.analysis.rules import NOINLINE_PREFIX, Rules, apply_rules, parse_rules
from pprof_proto import profile_pb2

from tests.merge.differential import read
from tests.merge.go_top import go_top
from tests.oracle.builder import World
from tests.oracle.content import Content, Place, Stack, Values, content
from tests.oracle.oracle import go_root

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from pprof_merge import Profile

DATADOGS = b"""\xef\xbb\xbf# golang/go#65532: inlined, they make the stack of every goroutine larger
noinline runtime.gopark

  noinline\tgoogle.golang.org/grpc/internal/transport.(*loopyWriter).processData \r
drop /go[.]shape[.]struct [{] a int; b # \\d+ [}]/
"""


def test_a_file_has_a_rule_a_line() -> None:
    rules = parse_rules(DATADOGS)
    assert rules == Rules(
        drop=(r"/go[.]shape[.]struct [{] a int; b # \d+ [}]/",),
        noinline=("runtime.gopark", "google.golang.org/grpc/internal/transport.(*loopyWriter).processData"),
    )
    assert len(rules) == 3
    assert parse_rules(str(rules).encode()) == parse_rules(str(parse_rules(str(rules).encode())).encode())
    assert not parse_rules(b"# nothing yet\n")


def test_the_text_of_rules_is_that_of_what_they_do() -> None:
    assert (
        str(parse_rules(b"drop b\n#\ndrop a\n drop  b")) == str(Rules(drop=("a", "b"))) == "drop a\ndrop b\n"
    )
    assert str(Rules(drop=("a",))) != str(Rules(noinline=("a",)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"runtime.gopark", "unknown rule 'runtime.gopark'; a rule begins with drop or noinline"),
        (b"Drop a", "unknown rule 'Drop'"),
        (b"drop", "drop needs the name of a function, or a /regular expression/"),
        (b"noinline \t", "noinline needs the name of a function, or a /regular expression/"),
        (b"drop /runtime.(/", "/runtime.(/: missing ), unterminated subpattern at position 8"),
        (b"drop caf\xe9", "not UTF-8"),
    ],
)
def test_a_line_that_is_no_rule_is_named(line: bytes, words: str) -> None:
    with pytest.raises(RulesInvalid, match=f"^line 3: {re.escape(words)}") as caught:
        parse_rules(b"# two\ndrop lines\n" + line + b"\ndrop more\n")
    assert caught.value.line == 3
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert (type(again), str(again)) == (RulesInvalid, str(caught.value))


@pytest.fixture(scope="module")
def compiler() -> Profile:
    """Return Go's profile of its own compiler, which has thousands of recursive and inlined calls."""
    return merge([decode((go_root() / "src/cmd/compile/default.pgo").read_bytes())])


@pytest.fixture(scope="module")
def whole(compiler: Profile) -> Content:
    """Return what that profile has."""
    return content(encode(compiler))


def names_of(profile: Profile) -> set[str]:
    return {profile.strings[row].decode() for row in profile.functions.name.tolist()}


# The last function is mostly inlined, so that locations are cut within.
PRUNED = ("runtime.mallocgc", "runtime.growslice", "sort.Search")


def test_drop_is_what_pprof_does_by_drop_frames(compiler: Profile, tmp_path: Path) -> None:
    """No function is in the location of a root: pprof never cuts there."""
    told = profile_pb2.Profile.FromString(encode(compiler))
    told.drop_frames = len(told.string_table)
    told.string_table.append("|".join(map(re.escape, PRUNED)).encode())
    ours, before = encode(apply_rules(compiler, Rules(drop=PRUNED))), encode(compiler)
    for sample_type, unit in (("samples", "count"), ("cpu", "nanoseconds")):
        theirs = go_top(told.SerializeToString(), tmp_path, sample_type, unit)
        assert go_top(ours, tmp_path, sample_type, unit) == theirs
    assert theirs != go_top(before, tmp_path, sample_type, unit)


def test_drop_leaves_nothing_of_the_functions_and_all_of_the_time(compiler: Profile, whole: Content) -> None:
    rest = apply_rules(compiler, Rules(drop=PRUNED))
    assert {*PRUNED} <= names_of(compiler)
    assert not {*PRUNED} & names_of(rest)
    assert content(encode(rest)).total() == whole.total()
    assert len(rest.samples) < len(compiler.samples), "stacks that have become the same are not summed"


def test_a_sample_goes_with_its_root(compiler: Profile, whole: Content) -> None:
    rest = content(encode(apply_rules(compiler, Rules(drop=("runtime.gcBgMarkWorker",)))))
    expected = {
        stack: rows
        for stack, rows in whole.samples.items()
        if not stack.places or stack.places[-1].frames[-1].function != b"runtime.gcBgMarkWorker"
    }
    assert 0 < len(expected) < len(compiler.samples)
    assert rest.samples == expected


def cut(stacks: dict[Stack, list[Values]], dropped: set[bytes]) -> dict[Stack, Values]:
    """Return the stacks cut by definition: from the root up to the first of the functions."""
    sums: dict[Stack, Values] = {}
    for stack, rows in stacks.items():
        kept: list[Place] = []
        for place in reversed(stack.places):
            frames = list(place.frames)
            inner = (
                max((row for row, frame in enumerate(frames) if frame.function in dropped), default=-1) + 1
            )
            if not inner or frames[inner:]:
                kept.insert(0, place._replace(frames=tuple(frames[inner:])))
            if inner:
                break
        if kept or not stack.places:
            short = Stack(tuple(kept), stack.tags)
            for row in rows:
                before = sums.get(short, (0,) * len(row))
                sums[short] = tuple(wrapped(a + b) for a, b in zip(before, row, strict=True))
    return {stack: values for stack, values in sums.items() if any(values)}


def wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@given(random=st.randoms(use_true_random=False))
def test_every_stack_of_generated_profiles_is_cut(random: Random) -> None:
    world = World(random)
    profile = merge([decode(world.profile()) for _ in range(3)])
    dropped = {random.choice(world.functions)[0] for _ in range(2)} - {b""}
    patterns = tuple(f"/{re.escape(name.decode(errors='surrogateescape'))}/" for name in dropped)
    ours = content(encode(apply_rules(profile, Rules(drop=patterns))))
    expected = cut(content(encode(profile)).samples, dropped)
    assert Counter({stack: values for stack, (values,) in ours.samples.items()}) == expected
    assert ours.header == content(encode(profile)).header


def renamed_back(told: bytes) -> bytes:
    """Return a profile with its names as they were, told by the prefix."""
    message = profile_pb2.Profile.FromString(told)
    message.string_table[:] = [text.removeprefix(NOINLINE_PREFIX) for text in message.string_table]
    return message.SerializeToString()


def test_noinline_changes_names_and_nothing_else(compiler: Profile, whole: Content) -> None:
    rules = parse_rules(b"noinline runtime.scanobject\nnoinline /.*[.]rewriteValue.*/\n")
    told = apply_rules(compiler, rules)
    hit = {name for name in names_of(compiler) if ".rewriteValue" in name or name == "runtime.scanobject"}
    assert len(hit) > 10
    assert names_of(told) == names_of(compiler) - hit | {NOINLINE_PREFIX.decode() + name for name in hit}
    assert content(renamed_back(encode(told))).samples == whole.samples
    assert encode(apply_rules(told, rules)) == encode(told)


def test_a_function_without_a_name_is_left_as_it_is() -> None:
    profile = profile_pb2.Profile(string_table=[b"", b"cpu", b"_Zf", b"f"])
    profile.sample_type.add(type=1)
    for number, (name, system_name) in enumerate([(3, 0), (0, 2), (3, 2)], 1):
        profile.function.add(id=number, name=name, system_name=system_name)
        profile.location.add(id=number, address=number).line.add(function_id=number)
        profile.sample.add(location_id=[number], value=[number])
    merged = merge([decode(profile.SerializeToString())])
    told = profile_pb2.Profile.FromString(encode(apply_rules(merged, Rules(noinline=("/.*/",)))))
    names = [
        (told.string_table[function.name], told.string_table[function.system_name])
        for function in told.function
    ]
    assert names == [
        (NOINLINE_PREFIX + b"f", b""),
        (b"", b"_Zf"),
        (NOINLINE_PREFIX + b"f", NOINLINE_PREFIX + b"_Zf"),
    ]


def test_a_pattern_is_the_whole_name(profiles: Path) -> None:
    profile = merge(map(decode, read(profiles, "etl-*")))
    misses = Rules(
        drop=("runtime", "runtime.malloc", "runtime.mallocgc ", "/runtime[.]malloc/", "runtime.*", "/.*/x/"),
        noinline=("/allocgc/", "RUNTIME.MALLOCGC"),
    )
    assert "runtime.mallocgc" in names_of(profile)
    assert apply_rules(profile, misses) is profile
    assert apply_rules(profile, Rules(drop=("/runtime[.]malloc.*/",))) is not profile


def test_all_may_go() -> None:
    profile = profile_pb2.Profile(string_table=[b"", b"cpu", b"f"], time_nanos=7)
    profile.sample_type.add(type=1)
    profile.function.add(id=1, name=2)
    profile.location.add(id=1).line.add(function_id=1)
    profile.sample.add(location_id=[1, 1], value=[5])
    profile.sample.add(value=[3])  # a sample without a stack is in no function
    rest = apply_rules(merge([decode(profile.SerializeToString())]), Rules(drop=("f",)))
    assert rest.samples.values.tolist() == [[3]]
    assert (len(rest.functions), rest.header.time_nanos) == (0, 7)
    assert decode(encode(rest)).samples.values.tolist() == [[3]]
    assert inflate(encode(rest)) == encode(rest)
