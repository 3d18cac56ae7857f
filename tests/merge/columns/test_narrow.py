"""Narrow columns give back what they were made of, slice by slice, in few bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge.columns.narrow import NarrowColumns, Slices, narrowed

_EDGES = [0, 1, -1, *(1 << bits for bits in (8, 16, 24, 32, 62)), -(1 << 63), (1 << 63) - 1]
NUMBERS = st.one_of(
    st.integers(0, 9),
    st.integers(0, 1 << 17),
    st.sampled_from(_EDGES),
    st.integers(-(1 << 63), (1 << 63) - 1),
)


@given(data=st.data())
def test_slices_of_columns_are_those_of_what_they_were_made_of(data: st.DataObject) -> None:
    numbers = st.lists(NUMBERS, max_size=40) | st.lists(st.integers(0, 300), max_size=400)
    columns = [np.array(each, np.int64) for each in data.draw(st.lists(numbers, min_size=1, max_size=4))]
    sizes = np.array([len(column) for column in columns])
    joined = NarrowColumns([narrowed(column) for column in columns], sizes)
    owners = data.draw(st.lists(st.integers(0, len(columns) - 1), min_size=1, max_size=6))
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, int(sizes[owner]))] * 2))) for owner in owners]
    begins, ends = np.array(bounds).T
    into = np.empty((ends - begins).sum(), np.int64)
    joined.take(Slices(np.array(owners), begins, ends), into)
    expected = [columns[owner][begin:end] for owner, (begin, end) in zip(owners, bounds, strict=True)]
    assert into.tolist() == np.concatenate(expected).tolist()


def test_most_integers_decide_how_many_bytes_all_take() -> None:
    thousand = np.arange(1000)
    for numbers, nbytes in (
        (thousand * 0, 0),
        (thousand % 256, 1000),
        (np.append(thousand[1:] % 256, -1), 1000 + 12),
        (np.append(thousand[1:] % 256, 1 << 40), 1000 + 12),
        (thousand, 2000),
        (thousand * 1000, 3000),
        (thousand * 1_000_000, 4000),
        (thousand << 40, 8000),
    ):
        assert narrowed(numbers).nbytes == nbytes
