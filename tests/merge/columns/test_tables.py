"""A table gives equal rows one number, and different rows different ones, even where hashes collide."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import vec
from mypy_extensions import i32, i64
from pprof_merge.columns.tables import IntTable, Table
from pprof_merge.columns.vectors import wrapped, zeros
from pprof_merge.columns.views import view32, view64

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[int, ...]

WORDS = [0, 1, 2, (1 << 31) - 1]
WIDE = [*WORDS, -1, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, -(1 << 63)]


def interned(table: Table | IntTable, rows: Sequence[Row]) -> list[int]:
    words = [word for row in rows for word in row]
    bounds = vec[i64]([0, *np.cumsum([len(row) for row in rows]).tolist()])
    numbers = zeros(len(rows))
    table.make_room(len(rows), len(words))
    if isinstance(table, IntTable):
        table.numbers_of(vec[i32](words), bounds, len(rows), numbers)
    else:
        table.numbers_of(vec[i64](words), bounds, len(rows), numbers)
    return list(numbers)


def kept(table: Table | IntTable) -> list[Row]:
    ends = view64(table.ends, table.count + 1).tolist()
    words = (
        view32(table.words, ends[-1]) if isinstance(table, IntTable) else view64(table.words, ends[-1])
    ).tolist()
    return [tuple(words[begin:end]) for begin, end in pairwise(ends)]


def copied(table: Table | IntTable) -> Table | IntTable:
    """Return a table with the same rows, appended in two parts."""
    again: Table | IntTable = IntTable() if isinstance(table, IntTable) else Table()
    rows, dtype = kept(table), np.int32 if isinstance(table, IntTable) else np.int64
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        words = np.array([word for row in part for word in row], dtype)
        again.append(words.tobytes(), np.array([len(row) for row in part], np.int64).tobytes())
    return again


@pytest.mark.parametrize(("kind", "words"), [(Table, WIDE), (IntTable, WORDS)])
@given(choices=st.data(), reload=st.integers(0, 5))
def test_equal_rows_and_only_they_have_one_number(
    kind: type[Table | IntTable], words: list[int], choices: st.DataObject, reload: int
) -> None:
    rows = st.lists(st.lists(st.sampled_from(words), max_size=5).map(tuple), max_size=400)
    table = kind()
    known: dict[Row, int] = {}
    for index, batch in enumerate(choices.draw(st.lists(rows, max_size=6))):
        for row, number in zip(batch, interned(table, batch), strict=True):
            assert known.setdefault(row, number) == number
        assert kept(table) == [*known]  # numbered as they come
        if index == reload:
            table = copied(table)


@pytest.mark.parametrize("kind", [Table, IntTable])
def test_many_rows_grow_the_table(kind: type[Table | IntTable]) -> None:
    table = kind()
    every = [(n * 20_011 & 0x7FFFFFFF,) for n in range(100_000)]
    for begin in range(0, len(every), 7_000):
        interned(table, every[begin : begin + 7_000])
    assert interned(table, every[::-1]) == [*reversed(range(len(every)))]
    assert interned(table, []) == []


def test_rows_whose_hashes_are_equal_are_told_apart() -> None:
    table = Table()
    table.make_room(3, 6)
    numbers = [table.number_of(vec[i64](row), 0, 2, 5) for row in ([1, 2], [2, 1], [1, 2])]
    assert numbers == [0, 1, 0]


@pytest.mark.parametrize("value", [0, 1, -1, (1 << 63) - 1, -(1 << 63), 17 - (1 << 62)])
def test_sums_wrap_as_64_bits_do(value: int) -> None:
    assert wrapped(value) == value


def test_an_index_past_the_end_is_an_error() -> None:
    table = Table()
    with pytest.raises(IndexError):
        table.number_of(vec[i64]([1]), 0, 2, 5)
