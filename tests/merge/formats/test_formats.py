"""The formats for people, compared with `go tool pprof` and with a simple reading of the profile.

The first `go tool pprof` on a machine is built on the spot, in about 20 s.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import fastjsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pprof_merge import Profile, ProfileError, decode, encode, merge
from pprof_merge.analysis import shown_name
from pprof_merge.formats import FORMATS
from pprof_proto import profile_pb2

from tests.merge.differential import read
from tests.merge.go_top import Table, go_top, pprof
from tests.oracle.builder import World
from tests.oracle.content import Frame, content
from tests.oracle.oracle import go_root

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from random import Random

Path_ = tuple[str, ...]


class Step(NamedTuple):
    """A frame of a stack."""

    name: str
    file: str
    line: int


TYPES = (("samples", "count"), ("cpu", "nanoseconds"))


def written(profile: Profile, name: str) -> Any:
    """Return the content of a format as Python reads it."""
    text = FORMATS[name].write(profile).decode()
    return text.splitlines() if name == "folded" else json.loads(text)


def folded_stacks(profile: Profile) -> Counter[Path_]:
    stacks: Counter[Path_] = Counter()
    for line in written(profile, "folded"):
        stack, _, value = line.rpartition(" ")
        stacks[tuple(stack.split(";"))] += int(value)
    return stacks


def speedscope_stacks(profile: Profile, column: int) -> Counter[tuple[Step, ...]]:
    document = written(profile, "speedscope")
    steps = [
        Step(frame["name"], frame.get("file", ""), frame.get("line", 0))
        for frame in document["shared"]["frames"]
    ]
    shown = document["profiles"][column]
    assert len({*map(tuple, shown["samples"])}) == len(shown["samples"])
    return Counter(
        {
            tuple(steps[row] for row in rows): weight
            for rows, weight in zip(shown["samples"], shown["weights"], strict=True)
        }
    )


def by_name(stacks: Mapping[tuple[Step, ...], int]) -> Counter[Path_]:
    named: Counter[Path_] = Counter()
    for stack, value in stacks.items():
        named[tuple(step.name for step in stack)] += value
    return named


def table(stacks: Mapping[Path_, int]) -> Table:
    """Return the flat and cumulative value of each function; a sample without a stack counts for none."""
    flat: Counter[str] = Counter()
    cum: Counter[str] = Counter()
    for stack, value in stacks.items():
        if stack:
            flat[stack[-1]] += value
        for name in set(stack):
            cum[name] += value
    found = {name: (wrapped(flat[name]), wrapped(cum[name])) for name in cum}
    return {name: values for name, values in found.items() if any(values)}  # Go leaves the others out, too


def wrapped(value: int) -> int:
    """Return a value wrapped to 64 bits, as the sums of a profile."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def top_table(profile: Profile, column: int) -> Table:
    rows = written(profile, "json")["functions"]
    found = {row["name"]: (row["flat"][column], row["cum"][column]) for row in rows}
    assert len(found) == len(rows)
    return {name: values for name, values in found.items() if any(values)}


def compilers_own(_: Path) -> list[bytes]:
    return [(go_root() / "src/cmd/compile/default.pgo").read_bytes()]


def labelled_and_big(folder: Path) -> list[bytes]:
    return read(folder, "apisvc-*", "big-*")


@pytest.mark.parametrize("inputs", [compilers_own, labelled_and_big])
def test_every_function_has_gos_numbers(
    inputs: Callable[[Path], list[bytes]], profiles: Path, tmp_path: Path
) -> None:
    profile = merge(map(decode, inputs(profiles)))
    protobuf = encode(profile)
    for column, (sample_type, unit) in enumerate(TYPES):
        expected = go_top(protobuf, tmp_path, sample_type, unit)
        assert len(expected) > 300
        assert top_table(profile, column) == expected
        assert table(by_name(speedscope_stacks(profile, column))) == expected
    folded = folded_stacks(profile)
    del folded["<unknown>",]  # samples without a stack: Go has no line for them
    assert table(folded) == {name.replace(";", ":"): values for name, values in expected.items()}


def plain_stacks(profile: Profile, column: int) -> dict[tuple[Step, ...], int]:
    """Return the stacks from the root, read in another way, without those that add up to 0."""
    stacks: Counter[tuple[Step, ...]] = Counter()
    for stack, rows in content(encode(profile)).samples.items():
        path = []
        for place in reversed(stack.places):
            binary = place.binary.filename.decode() if place.binary else ""
            nameless = Step(f"[{binary.split('/')[-1]}]" if binary else "<unknown>", "", 0)
            path += [step_of(frame) or nameless for frame in place.frames[::-1]] or [nameless]
        stacks[tuple(path)] += sum(row[column] for row in rows)
    return {path: total for path, value in stacks.items() if (total := wrapped(value))}


def step_of(frame: Frame) -> Step | None:
    if not frame.function:
        return None
    name = frame.function.decode(errors="backslashreplace")
    if frame.system_name in {b"", frame.function}:
        name = shown_name(name)
    return Step(name, frame.filename.decode(), frame.start_line)


def generated(random: Random) -> Profile:
    world = World(random)
    return merge([decode(world.profile()) for _ in range(3)])


@given(random=st.randoms(use_true_random=False))
def test_every_stack_of_generated_profiles(random: Random) -> None:
    profile = generated(random)
    for column in range(len(profile.header.sample_types)):
        expected = plain_stacks(profile, column)
        sizes = {stack: abs(value) for stack, value in expected.items() if abs(value) in range(1, 1 << 63)}
        assert speedscope_stacks(profile, column) == sizes
        assert top_table(profile, column) == table(by_name(expected))
    named = [sample_type.type for sample_type in profile.header.sample_types]
    default = profile.header.default_sample_type
    expected = plain_stacks(profile, named.index(default) if default in named else -1)
    folded: Counter[Path_] = Counter()
    for path, value in by_name(expected).items():
        folded[tuple(name.replace(";", ":") for name in path) or ("<unknown>",)] += value
    assert folded_stacks(profile) == {path: total for path in folded if (total := wrapped(folded[path]))}


def shop(name: bytes = b"main.run", **fields: Any) -> bytes:
    """Return a profile of one function with two samples, of 10 ms and 3 bytes each."""
    profile = profile_pb2.Profile(
        string_table=[b"", b"cpu", b"nanoseconds", b"space", b"bytes", name], **fields
    )
    profile.sample_type.add(type=1, unit=2)
    profile.sample_type.add(type=3, unit=4)
    profile.function.add(id=1, name=5)
    profile.location.add(id=1, address=16).line.add(function_id=1, line=7)
    profile.location.add(id=2, address=32).line.add(function_id=1, line=8)
    for location in (1, 2):
        profile.sample.add(location_id=[location], value=[10_000_000, 3])
    return profile.SerializeToString()


@pytest.mark.parametrize(
    ("default", "value", "shown"), [(0, 6, "space"), (3, 6, "space"), (1, 20_000_000, "cpu")]
)
def test_the_number_is_of_the_type_that_pprof_shows(
    default: int, value: int, shown: str, tmp_path: Path
) -> None:
    profile = shop(default_sample_type=default)
    assert folded_stacks(decode(profile)) == {("main.run",): value}
    document = written(decode(profile), "speedscope")
    assert document["profiles"][document["activeProfileIndex"]]["name"] == shown
    assert f"Type: {shown}\n" in pprof(profile, tmp_path, "-top")


def test_a_name_cannot_break_a_line_or_a_stack() -> None:
    assert (
        FORMATS["folded"].write(decode(shop(b"struct { a int; b\n\rint }")))
        == b"struct { a int: b  int } 6\n"
    )


def test_the_table_says_what_it_is_of() -> None:
    document = written(decode(shop(period=100, time_nanos=5, duration_nanos=6)), "json")
    assert document.pop("functions") == [
        {"name": "main.run", "flat": [20_000_000, 6], "cum": [20_000_000, 6]}
    ]
    assert document == {
        "sample_types": [{"type": "cpu", "unit": "nanoseconds"}, {"type": "space", "unit": "bytes"}],
        "default_sample_type": 1,
        "period_type": {"type": "", "unit": ""},
        "period": 100,
        "time_nanos": 5,
        "duration_nanos": 6,
        "stacks": 2,
        "total": [20_000_000, 6],
    }


def test_the_table_begins_with_what_costs_most_by_itself(profiles: Path) -> None:
    rows = written(merge(map(decode, read(profiles, "big-*"))), "json")["functions"]
    keys = [(-row["flat"][1], -row["cum"][1], row["name"]) for row in rows]
    assert keys == sorted(keys)


@pytest.mark.parametrize("name", ["folded", "speedscope", "json"])
def test_a_profile_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ProfileError, match="no sample type"):
        FORMATS[name].write(decode(profile_pb2.Profile(string_table=[b""], time_nanos=1).SerializeToString()))


def test_samples_may_be_none() -> None:
    profile = profile_pb2.Profile.FromString(shop())
    del profile.sample[:]
    empty = decode(profile.SerializeToString())
    assert FORMATS["folded"].write(empty) == b""
    assert [shown["samples"] for shown in written(empty, "speedscope")["profiles"]] == [[], []]
    assert (written(empty, "json")["functions"], written(empty, "json")["total"]) == ([], [0, 0])


@pytest.mark.parametrize(
    ("unit", "shown", "weight"),
    [
        ("μs", "microseconds", 3),
        ("ns", "nanoseconds", 3),
        ("hr", "seconds", 3 * 3600),
        ("MB", "bytes", 3 << 20),
        ("cycles", "none", 3),
    ],
)
def test_speedscope_gets_values_in_a_unit_that_it_knows(unit: str, shown: str, weight: int) -> None:
    strings = ["", "a", unit]
    profile = profile_pb2.Profile(string_table=[text.encode() for text in strings])
    profile.sample_type.add(type=1, unit=2)
    profile.function.add(id=1, name=1)
    profile.location.add(id=1).line.add(function_id=1)
    profile.sample.add(location_id=[1], value=[3])
    (document,) = written(decode(profile.SerializeToString()), "speedscope")["profiles"]
    assert (document["unit"], document["weights"], document["endValue"]) == (shown, [weight], weight)


SCHEMA = "speedscope/file-format-schema.json"


@settings(max_examples=settings().max_examples // 2)
@given(random=st.randoms(use_true_random=False))
def test_speedscope_files_keep_to_its_schema(random: Random, profiles: Path) -> None:
    validate = fastjsonschema.compile(json.loads((profiles.parent / SCHEMA).read_text()))
    validate(written(generated(random), "speedscope"))


def test_speedscope_opens_with_the_time_in_its_unit(profiles: Path) -> None:
    document = written(merge(map(decode, read(profiles, "big-*"))), "speedscope")
    samples, cpu = document["profiles"]
    assert (samples["name"], samples["unit"], cpu["name"], cpu["unit"]) == (
        "samples",
        "none",
        "cpu",
        "nanoseconds",
    )
    assert document["profiles"][document["activeProfileIndex"]] == cpu
    for shown in (samples, cpu):
        assert shown["startValue"] == 0
        assert shown["endValue"] == list(accumulate(shown["weights"]))[-1]
    named = [frame for frame in document["shared"]["frames"] if frame["name"] == "sort.Slice"]
    assert named
    assert all(frame["file"].endswith("/sort/slice.go") and frame["line"] > 1 for frame in named)
