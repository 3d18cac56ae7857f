"""Values of stacks with certain functions, beside `go tool pprof -top` and the stacks of views."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Limits, ProfileError, decode
from pprof_merge.analysis import as_shown, masked_values, shown_function, stacks_of
from pprof_merge.codec import ProfileColumns, read_summary

from tests.merge.differential import read
from tests.merge.go_top import go_top
from tests.merge.stacked import stacked

CPU = 1  # the column of the time
BITS = 60


class Masks(dict[bytes, int]):
    """The mask of each name that is shown; all others have none."""

    def __init__(self, shown: dict[str, int], system_name: bytes | None) -> None:
        super().__init__()
        self._shown = shown
        self._system_name = system_name

    def __missing__(self, name: bytes) -> int:
        system_name = name if self._system_name is None else self._system_name
        return self._shown.get(shown_function(name, system_name).decode(), 0)


def masks_of(shown: dict[str, int]) -> list[dict[bytes, int]]:
    return [Masks(shown, b""), Masks(shown, None), Masks(shown, b"\0")]


def values_of(columns: ProfileColumns, names: list[str]) -> dict[str, tuple[int, int]]:
    """Return the flat and the cumulative value of each of these functions, many in one pass."""
    found: dict[str, tuple[int, int]] = {}
    for begin in range(0, len(names), BITS):
        some = names[begin : begin + BITS]
        masks = masks_of({name: 1 << bit for bit, name in enumerate(some)})
        _, inside, leaf = masked_values(columns, CPU, masks, len(some))
        found |= dict(zip(some, zip(leaf, inside, strict=True), strict=True))
    return found


@pytest.mark.parametrize(
    "pattern", ["apisvc-v1-s1-002*", "etl-s2-000*", "big-test-regexp*", "compile-c-421*"]
)
def test_they_are_what_go_shows_of_each_function(pattern: str, profiles: Path, tmp_path: Path) -> None:
    """The tests of regexp are recursive."""
    (profile,) = read(profiles, pattern)
    _, columns = read_summary(profile, Limits())
    expected = go_top(profile, tmp_path, "cpu", "nanoseconds")
    assert len(expected) > 100
    assert values_of(columns, [*expected]) == expected
    total = int(decode(profile).samples.values[:, CPU].sum())
    assert masked_values(columns, CPU, masks_of({}), 1) == (total, [0], [0])


FUNCTIONS = ["main.run", "_ZN4core3fmt5write17h0123456789abcdefE", "ns::f(int)", "[kernel]", "日本"]
STACKS = st.lists(st.sampled_from(FUNCTIONS), max_size=5).map(";".join)


@given(
    st.dictionaries(STACKS, st.integers(0, 5), min_size=1),
    st.dictionaries(st.sampled_from(FUNCTIONS), st.integers(0, 7)),
)
def test_they_are_those_of_the_stacks_of_views(counts: dict[str, int], given_masks: dict[str, int]) -> None:
    profile = stacked(counts)
    shown = {
        shown_function(name.encode(), name.encode()).decode(): mask for name, mask in given_masks.items()
    }
    _, columns = read_summary(profile, Limits())
    stacks = stacks_of(decode(profile))
    values = decode(profile).samples.values[:, CPU]
    expected = [
        [int(values[mask].sum()) for mask in stacks.contain(chosen)]
        for chosen in (
            np.array([shown.get(frame.name, 0) >> bit & 1 for frame in stacks.frames], np.bool_)
            for bit in range(3)
        )
    ]
    for each in (columns, as_shown(decode(profile)).columns):
        total, inside, leaf = masked_values(each, CPU, masks_of(shown), 3)
        assert (total, [*zip(leaf, inside, strict=True)]) == (values.sum(), [*map(tuple, expected)])


@pytest.mark.parametrize("counts", [[-1], [5 << 36, 6 << 36, 5 << 36], [1, 9 << 36, 1 << 39]])
def test_values_that_are_negative_or_too_large_are_refused(counts: list[int]) -> None:
    """A count stands for 10 ms, so 1 << 38 of them are 87 years."""
    _, columns = read_summary(
        stacked({f"f;{number}": count for number, count in enumerate(counts)}), Limits()
    )
    with pytest.raises(ProfileError, match="negative, or too large"):
        masked_values(columns, CPU, masks_of({"f": 1}), 1)
