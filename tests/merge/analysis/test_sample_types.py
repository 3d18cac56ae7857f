"""Parts of what a profile measures, against sums that are counted by hand."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Profile, decode, encode
from pprof_merge.analysis import split_types
from pprof_proto import profile_pb2

TYPES = ("cpu", "wall", "alloc")
_THREAD, _SPAN = b"thread", b"span"

# The stack, the values of all types, the thread and the span of a sample.
Sampled = tuple[str, tuple[int, int, int], int, int]
_SAMPLES = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.tuples(*[st.integers(-1, 2)] * 3),
        st.integers(0, 1),
        st.integers(0, 2),
    ),
    max_size=12,
)


def profile_of(samples: list[Sampled]) -> Profile:
    written = profile_pb2.Profile()
    strings = ["", *TYPES, "count", "a", "b", _THREAD.decode(), _SPAN.decode()]
    written.string_table.extend(text.encode() for text in strings)
    for name in TYPES:
        written.sample_type.add(type=strings.index(name), unit=strings.index("count"))
    for number, name in enumerate("ab", start=1):
        written.function.add(id=number, name=strings.index(name))
        written.location.add(id=number).line.add(function_id=number, line=1)
    for stack, values, thread, span in samples:
        sample = written.sample.add(location_id=["ab".index(stack) + 1], value=values)
        sample.label.add(key=strings.index(_THREAD.decode()), num=thread + 1)
        sample.label.add(key=strings.index(_SPAN.decode()), num=span + 1)
    return decode(written.SerializeToString())


def sums_of(profile: Profile) -> Counter[tuple[bytes, tuple[tuple[bytes, int], ...]]]:
    """Return the first value of a profile's samples by function and labels. Each must be there once."""
    read = profile_pb2.Profile.FromString(encode(profile))
    strings = read.string_table
    functions = {function.id: strings[function.name] for function in read.function}
    names = {location.id: functions[location.line[0].function_id] for location in read.location}
    sums: Counter[tuple[bytes, tuple[tuple[bytes, int], ...]]] = Counter()
    for sample in read.sample:
        labels = tuple((strings[label.key], label.num) for label in sample.label)
        key = names[sample.location_id[0]], tuple(sorted(labels))
        assert key not in sums
        sums[key] = sample.value[0]
    return sums


@given(_SAMPLES, st.sampled_from(range(3)))
def test_samples_that_are_the_same_without_labels_are_added_up(samples: list[Sampled], column: int) -> None:
    expected: Counter[tuple[bytes, tuple[tuple[bytes, int], ...]]] = Counter()
    for stack, values, thread, _ in samples:
        expected[stack.encode(), ((_THREAD, thread + 1),)] += values[column]
    (part,) = split_types(profile_of(samples), [[column]], {_SPAN})
    assert sums_of(part) == Counter({key: value for key, value in expected.items() if value})


@pytest.mark.parametrize("columns", [*permutations(range(3), 2)])
def test_the_first_type_is_the_default(columns: tuple[int, int]) -> None:
    (part,) = split_types(profile_of([("a", (1, 2, 3), 0, 0)]), [columns])
    read = profile_pb2.Profile.FromString(encode(part))
    named = [read.string_table[type_.type].decode() for type_ in read.sample_type]
    assert named == [TYPES[column] for column in columns]
    assert read.string_table[read.default_sample_type].decode() == named[0]
    (sample,) = read.sample
    assert [*sample.value] == [column + 1 for column in columns]
    assert {read.string_table[label.key] for label in sample.label} == {_THREAD, _SPAN}


def test_what_only_left_out_samples_use_is_left_out() -> None:
    (part,) = split_types(profile_of([("a", (1, 0, 0), 0, 0), ("b", (0, 1, 0), 0, 0)]), [[0]])
    assert b"b" not in profile_pb2.Profile.FromString(encode(part)).string_table
