"""A row table gives equal rows one number, and different rows different ones, even where hashes collide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge.columns import row_table
from pprof_merge.columns.row_table import Rows, RowTable

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[int, int, tuple[int, ...]]

rows = st.tuples(
    st.integers(-1, 2),
    st.sampled_from([-1, 0, 1, 1 << 40]),
    st.lists(st.integers(0, 2), max_size=4).map(tuple),
)


def columns(chosen: Sequence[Row]) -> Rows:
    words = [word for _, _, ragged in chosen for word in ragged]
    return Rows(
        [np.array([row[0] for row in chosen], np.int64), np.array([row[1] for row in chosen], np.int64)],
        [np.array(words, np.int64)],
        np.cumsum([0, *(len(ragged) for _, _, ragged in chosen)]),
    )


def taken(table: RowTable, numbers: Sequence[int]) -> list[Row]:
    (first, second), (words,), offsets = table.rows.take(np.array(numbers, np.int64))
    return [
        (int(first[i]), int(second[i]), tuple(words[offsets[i] : offsets[i + 1]].tolist()))
        for i in range(len(numbers))
    ]


@pytest.mark.parametrize("steps", [1, 2, 32])
@given(batches=st.lists(st.lists(rows, max_size=40), max_size=6), reload=st.integers(0, 5))
def test_equal_rows_and_only_they_have_one_number(steps: int, batches: list[list[Row]], reload: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_table, "_MAX_PROBES", steps)  # with few, rows find no slot
        patch.setattr(row_table, "_MIN_SLOTS", 2)
        table = RowTable([np.int32, np.int64], [np.int32])
        known: dict[Row, int] = {}
        for index, batch in enumerate(batches):
            numbers = table.intern(columns(batch)).tolist()
            assert taken(table, numbers) == batch
            for row, number in zip(batch, numbers, strict=True):
                assert known.setdefault(row, number) == number
            if index == reload:
                again = RowTable([np.int32, np.int64], [np.int32])
                half = len(table) // 2
                again.append(table.rows.take(np.arange(half)))
                again.append(table.since(half))
                table = again
        assert sorted(known.values()) == list(range(len(table)))


def test_many_rows_grow_the_table() -> None:
    table = RowTable([np.int64])
    none = np.zeros(0, np.int64)
    every = np.arange(100_000) * (1 << 33)
    for part in np.split(every, 10):
        table.intern(Rows([part], [], np.zeros(len(part) + 1, np.int64)))
    numbers = table.intern(Rows([every[::-1]], [], np.zeros(len(every) + 1, np.int64)))
    assert len(table) == len(every)
    assert np.array_equal(table.rows.take(numbers).fixed[0], every[::-1])
    assert table.intern(Rows([none], [], np.zeros(1, np.int64))).tolist() == []


def test_rows_that_hash_alike_are_told_apart() -> None:
    # The hash, a sum of values times powers of an odd number, is the same for a Thue-Morse sequence and its
    # complement, whatever the number is.
    signs = np.array([i.bit_count() & 1 for i in range(1 << 11)])
    table = RowTable([], [np.int32])
    words = np.concatenate((3 + signs, 4 - signs))
    numbers = table.intern(Rows([], [words], np.array([0, 1 << 11, 1 << 12])))
    assert len(set(numbers.tolist())) == 2
