"""The diff of two tables: which names take a different share of one profile than of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import decode
from pprof_merge.analysis.diff import Usage, diff_tables
from pprof_merge.analysis.top_table import TopTable

from tests.merge.stacked import stacked


def table(stacks: dict[str, int]) -> TopTable:
    return TopTable.of(decode(stacked(stacks))).only(0)


def test_shares_are_compared_and_not_values() -> None:
    now, base = table({"a;b": 30, "a;c": 10}), table({"a;b": 1, "a;d": 1})
    found = {shift.name: shift for shift in diff_tables(now, base, "flat")}
    assert list(found) == ["d", "b", "c", "a"]  # the largest first, then by name
    assert found["b"].now == Usage(30, 30, 0.75, 0.75)
    assert found["b"].base == Usage(1, 1, 0.5, 0.5)
    assert (found["b"].difference("flat"), found["d"].difference("flat")) == (0.25, -0.5)
    assert found["d"].now == Usage(0, 0, 0.0, 0.0)
    assert (found["a"].now.cum_share, found["a"].difference("cum")) == (1.0, 0.0)


def test_of_equal_differences_the_other_ones_decide() -> None:
    now, base = table({"b;lock;switch": 3, "b;read;switch": 1}), table({"b;read;switch": 4})
    assert [row.name for row in diff_tables(now, base, "flat")] == ["lock", "read", "b", "switch"]
    now, base = table({"a": 2, "b;c": 2}), table({"b": 2, "b;c": 2})
    assert [row.name for row in diff_tables(now, base, "cum")] == ["a", "b", "c"]


def test_nothing_has_no_shares() -> None:
    (found,) = diff_tables(table({"a": 1}), table({}), "cum")
    assert (found.base, found.difference("cum")) == (Usage(0, 0, 0.0, 0.0), 1.0)


@given(
    *[st.dictionaries(st.sampled_from(["a", "b", "a;b", "b;a", "c"]), st.integers(1, 1000), min_size=1)] * 2,
    st.sampled_from(["flat", "cum"]),
)
def test_what_some_gain_others_lose(now: dict[str, int], base: dict[str, int], by: str) -> None:
    found = diff_tables(table(now), table(base), by)  # type: ignore[arg-type]
    back = diff_tables(table(base), table(now), by)  # type: ignore[arg-type]
    assert [(shift.name, shift.difference("flat")) for shift in found] == [
        (shift.name, -shift.difference("flat")) for shift in back
    ]
    assert sum(shift.difference("flat") for shift in found) == pytest.approx(0)
