"""Strings are numbered in the order in which they come, and two are the same only if all their bytes are."""

from __future__ import annotations

import pytest
from pprof_merge.columns.strings import Strings

# Of all sizes around one word and two, and some that only zeros at their end tell apart.
SOME = [
    b"",
    *(b"abcdefghijklmnopqrst"[:size] for size in range(1, 21)),
    *(bytes(size) for size in range(1, 18)),
]


def test_each_string_has_a_number_of_its_own() -> None:
    strings = Strings()
    assert [*strings.add(SOME)] == [*range(len(SOME))]
    assert strings.since(0) == SOME
    assert strings.since(len(SOME) - 2) == SOME[-2:]
    assert len(strings) == len(SOME)


def test_known_strings_keep_their_numbers() -> None:
    strings = Strings()
    strings.add([b"main.main", b"runtime.mallocgc"])
    assert [*strings.add([b"runtime.mallocgc", b"new", b"main.main", b"", b"new"])] == [2, 3, 1, 0, 3]


@pytest.mark.parametrize("count", [1, 255, 256, 257, 5000])
def test_many_at_once_are_numbered_as_one_by_one(count: int) -> None:
    every = [b"%d" % (number // 2) * (number % 7) for number in range(count)]
    at_once, one_by_one = Strings(), Strings()
    assert [*at_once.add(every)] == [one_by_one.add([string])[0] for string in every]
    assert at_once.since(0) == one_by_one.since(0)
    assert set(at_once.since(1)) == set(every) - {b""}
