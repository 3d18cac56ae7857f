"""Snapshots in views: states are means over time, cumulative counts are differences, amounts are sums."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Collection, Header, Profile, ValueType, encode
from pprof_merge.analysis import WeighedStacks
from pprof_merge.arrays import Int64s
from pprof_merge.merging import Kind, Snapshots, kind_of, kinds_of

from tests.merge.stacked import heap_of, stacked

MIB = 1 << 20
MINUTE = 60 * 10**9
STACKS = ("main;a", "main;b", "main;b;c")
TYPES = tuple(ValueType(type_, unit) for type_, unit in (
    (b"alloc_objects", b"count"), (b"alloc_space", b"bytes"),
    (b"inuse_objects", b"count"), (b"inuse_space", b"bytes"),
))  # fmt: skip
HEAP: dict[ValueType, Kind] = {each: kind_of(each.type) for each in TYPES}
IS_CUMULATIVE = [HEAP[each] == "cumulative" for each in TYPES]


class Taken(NamedTuple):
    """A snapshot: whose it is, when it was taken, and the four values of each of some stacks."""

    instance: int
    time: int
    values: dict[str, tuple[int, int, int, int]]


def held(space: int, allocated: int = 0) -> dict[str, tuple[int, int, int, int]]:
    return {"main;a": (0, allocated, 0, space)}


def collected(taken: list[Taken]) -> tuple[Collection, Snapshots]:
    collection = Collection()
    for each in taken:
        # With all stacks, so that each function has the same address in all profiles.
        every = {stack: each.values.get(stack, (0,) * 4) for stack in STACKS}
        collection.add(heap_of(every, time_nanos=each.time))
    instances, times = np.array([each[:2] for each in taken], np.int64).reshape(-1, 2).T
    return collection, Snapshots.of(instances, times)


def shown(taken: list[Taken]) -> Profile:
    collection, snapshots = collected(taken)
    return viewed(collection, snapshots)


def viewed(collection: Collection, snapshots: Snapshots) -> Profile:
    numbers = range(len(collection))
    counted = [each for each, kind in HEAP.items() if kind == "cumulative"]
    return collection.merge_snapshots(numbers, collection.with_restarts(numbers, snapshots, counted), HEAP)


def totals(profile: Profile) -> list[int]:
    found: list[int] = profile.samples.values.sum(axis=0).tolist()
    return found


def by_stack(profile: Profile) -> dict[str, list[int]]:
    stacks = WeighedStacks.of(profile, 0)
    names = [stacks.names[row] for row in stacks.rows.tolist()]
    spans = pairwise(stacks.offsets.tolist())
    return {
        ";".join(names[begin:end]): values
        for (begin, end), values in zip(spans, profile.samples.values.tolist(), strict=True)
    }


@pytest.mark.parametrize("number", [1, 2, 6, 700])
def test_what_a_process_holds_all_the_time_is_what_it_holds(number: int) -> None:
    taken = [Taken(0, minute * MINUTE + 1, held(50 * MIB)) for minute in range(number)]
    assert totals(shown(taken))[3] == 50 * MIB


def test_instances_add_up_however_often_each_is_seen() -> None:
    first = [Taken(0, minute * MINUTE + 1, held(50 * MIB)) for minute in range(9)]
    second = [Taken(1, minute * MINUTE + 1, held(30 * MIB)) for minute in (2, 3)]
    assert totals(shown(first + second))[3] == 80 * MIB


def test_profiles_of_one_instance_and_time_are_one_snapshot() -> None:
    """One process has one heap at a time, so these are two processes that no label tells apart."""
    taken = [Taken(0, minute * MINUTE + 1, held(space, minute)) for minute in (0, 1, 2) for space in (5, 3)]
    collection, snapshots = collected(taken)
    assert (len(snapshots), snapshots.n_instances) == (3, 1)
    assert totals(viewed(collection, snapshots))[1::2] == [4, 8]


def test_what_was_allocated_is_the_difference_of_the_last_and_the_first() -> None:
    taken = [Taken(0, minute * MINUTE + 1, held(0, 60 + 20 * minute)) for minute in range(6)]
    assert totals(shown(taken))[1] == 100


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((60, 80, 100, 10, 30), 40 + 10 + 20),
        ((60, 60, 60), 0),
        ((100, 1, 1, 0, 7), 1 + 7),
        ((5,), 5),
    ],
)
def test_a_restart_is_seen(counts: tuple[int, ...], expected: int) -> None:
    taken = [Taken(0, at * MINUTE + 1, held(0, count)) for at, count in enumerate(counts)]
    assert totals(shown(taken))[1] == expected


def test_so_is_one_after_which_more_was_counted_than_before() -> None:
    before, after = {"main;a": (1, 100, 0, 0)}, {"main;b": (2, 150, 0, 0)}
    collection, snapshots = collected([Taken(0, 1, before), Taken(0, MINUTE, after)])
    assert by_stack(viewed(collection, snapshots)) == {"main;b": [2, 150, 0, 0]}


def test_an_instance_with_one_snapshot_adds_nothing_to_the_differences_of_others() -> None:
    taken = [Taken(0, 1, held(0, 10)), Taken(0, MINUTE, held(0, 17)), Taken(1, 1, held(0, 1000))]
    assert totals(shown(taken))[1] == 7
    collection, snapshots = collected([Taken(0, 1, held(0, 10)), Taken(1, 1, held(0, 1000))])
    assert snapshots.is_since_start
    assert totals(viewed(collection, snapshots))[1] == 1010


counts = st.integers(0, 1 << 40)
values = st.dictionaries(st.sampled_from(STACKS), st.tuples(counts, counts, counts, counts), min_size=1)
snapshot_lists = st.lists(
    st.builds(Taken, st.integers(0, 2), st.integers(1, 60).map(lambda at: at * MINUTE), values),
    min_size=1,
    max_size=12,
)


def model(taken: list[Taken]) -> dict[str, list[Fraction]]:
    """Return what each stack comes to, exactly."""
    moments: defaultdict[int, defaultdict[int, dict[str, list[int]]]] = defaultdict(lambda: defaultdict(dict))
    for instance, time, of_stacks in taken:
        moment = moments[instance][time]
        for stack, each in of_stacks.items():
            moment[stack] = [a + b for a, b in zip(moment.get(stack, [0] * 4), each, strict=True)]
    is_alone = all(len(of_instance) == 1 for of_instance in moments.values())
    found = {stack: [Fraction(0)] * 4 for stack in STACKS}
    for of_instance in moments.values():
        before: dict[str, list[int]] | None = {} if is_alone else None
        for _, moment in sorted(of_instance.items()):
            fell = before is not None and any(
                moment.get(stack, [0] * 4)[at] < each[at] for stack, each in before.items() for at in (0, 1)
            )
            for stack in STACKS:
                now, then = moment.get(stack, [0] * 4), (before or {}).get(stack, [0] * 4)
                for at in range(4):
                    if not IS_CUMULATIVE[at]:
                        found[stack][at] += Fraction(now[at], len(of_instance))
                    elif before is not None:
                        found[stack][at] += now[at] - (0 if fell else then[at])
            before = moment
    return found


@given(snapshot_lists)
def test_views_are_those_of_a_model(taken: list[Taken]) -> None:
    profile, expected = shown(taken), model(taken)
    found = by_stack(profile)
    assert {*found} <= {*STACKS}
    for stack in STACKS:
        for at, value in enumerate(found.get(stack, [0] * 4)):
            exact = expected[stack][at]
            assert value == exact if IS_CUMULATIVE[at] else abs(value - exact) < 1
    for at, total in enumerate(totals(profile)):
        # A mean is rounded once, so the stacks add up to the rounded total.
        assert abs(total - sum((each[at] for each in expected.values()), Fraction())) <= Fraction(1, 2)


@given(snapshot_lists, st.integers(1, 4))
def test_steps_have_what_the_snapshots_in_them_say(taken: list[Taken], width: int) -> None:
    collection, snapshots = collected(taken)
    counted = [each for each, kind in HEAP.items() if kind == "cumulative"]
    numbers = range(len(collection))
    snapshots = collection.with_restarts(numbers, snapshots, counted)
    of_profile = np.array([each.time // MINUTE // width for each in taken], np.int64)
    n_steps = int(of_profile.max()) + 1
    for at, sample_type in enumerate(TYPES):
        sums: Int64s = collection.totals(numbers, sample_type)
        steps = snapshots.in_steps(HEAP[sample_type], sums[:, None], of_profile, n_steps)[:, 0]
        whole = snapshots.in_steps(HEAP[sample_type], sums[:, None], 0 * of_profile, 1)[0, 0]
        assert abs(whole - totals(viewed(collection, snapshots))[at]) <= 1
        if IS_CUMULATIVE[at]:
            assert steps.sum() == whole
        else:
            expected = held_in_steps(taken, at, width, n_steps)
            assert all(
                abs(step - exact) <= Fraction(1, 2) for step, exact in zip(steps, expected, strict=True)
            )


def held_in_steps(taken: list[Taken], at: int, width: int, n_steps: int) -> list[Fraction]:
    """Return what instances hold in each step: the mean in it, or for a while what they held before."""
    expected = [Fraction(0)] * n_steps
    for instance in {each.instance for each in taken}:
        moments: defaultdict[int, int] = defaultdict(int)
        for each in taken:
            if each.instance == instance:
                moments[each.time // MINUTE] += sum(values[at] for values in each.values.values())
        minutes = sorted(moments)
        of_step: defaultdict[int, list[int]] = defaultdict(list)
        for minute in minutes:
            of_step[minute // width].append(moments[minute])
        for step, sums in of_step.items():
            expected[step] += Fraction(sum(sums), len(sums))
        gaps = [after - before for before, after in pairwise(minutes)]
        for gap, (before, after) in zip(gaps, pairwise(minutes), strict=True):
            if gap <= 5 * sorted(gaps)[(len(gaps) - 1) // 2]:
                for step in range(before // width + 1, after // width):
                    expected[step] += moments[before]
    return expected


def test_a_state_holds_between_two_snapshots_and_not_through_a_long_silence() -> None:
    minutes = (0, 3, 6, 9, 200, 203)
    taken = [Taken(0, minute * MINUTE + 1, held(7)) for minute in minutes]
    taken += [Taken(1, minute * MINUTE + 1, held(100)) for minute in (4, 8)]
    collection, snapshots = collected(taken)
    sums = collection.totals(range(len(collection)), TYPES[3])
    steps = np.array([each.time // MINUTE for each in taken], np.int64)
    found = snapshots.in_steps("state", sums[:, None], steps, 204)[:, 0].tolist()
    assert found[:10] == [7, 7, 7, 7, 107, 107, 107, 107, 107, 7]
    assert not any(found[10:200])
    assert found[200:] == [7, 7, 7, 7]


@given(st.lists(st.dictionaries(st.sampled_from(STACKS), st.integers(1, 99), min_size=1), min_size=1))
def test_amounts_are_added_up_as_in_a_merge(every: list[dict[str, int]]) -> None:
    collection = Collection()
    for at, stacks in enumerate(every):
        collection.add(stacked(stacks, time_nanos=at + 1))
    numbers = range(len(collection))
    kinds = kinds_of(collection.header(0), is_counted_since_start=True)
    assert {*kinds.values()} == {"amount"}
    snapshots = Snapshots.of(np.zeros(len(every), np.int64), np.arange(len(every)))
    assert encode(collection.merge_snapshots(numbers, snapshots, kinds)) == encode(collection.merge(numbers))


def test_what_64_bits_cant_hold_is_as_large_as_can_be() -> None:
    most = (1 << 63) - 1
    taken = [Taken(instance, 1, held(most)) for instance in range(3)]
    assert totals(shown(taken))[3] > most - 2000
    _, snapshots = collected(taken)
    steps, sums = np.zeros(3, np.int64), np.full((3, 1), most)
    assert snapshots.in_steps("state", sums, steps, 1)[0, 0] > most - 2000


def header(*names: bytes, duration: int = 0) -> Header:
    return Header(tuple(ValueType(name, b"count") for name in names), duration_nanos=duration)


@pytest.mark.parametrize(
    ("of", "is_counted_since_start", "kinds"),
    [
        (header(b"alloc_space", b"inuse_space"), True, ("cumulative", "state")),
        # Go's ?seconds=, of which even what is in use is a difference.
        (header(b"alloc_space", b"inuse_space", duration=1), True, ("amount", "amount")),
        (header(b"goroutine", duration=1), True, ("amount",)),
        (header(b"goroutine"), True, ("state",)),
        (header(b"contentions", b"delay"), True, ("cumulative", "cumulative")),
        # Clients make differences of what Go counts, and leave what is in use as it is.
        (header(b"alloc_space", b"inuse_space", duration=1), False, ("amount", "state")),
        (header(b"contentions", b"delay"), False, ("amount", "amount")),
        # Of others than Go, a duration doesn't say that.
        (header(b"inuse_objects", b"inuse_space", duration=1), True, ("state", "state")),
        (header(b"heap-space", b"heap-live-size", b"objects", b"space"), True, ("state",) * 4),
        (header(b"samples", b"cpu", b"alloc-samples", b"wall"), True, ("amount",) * 4),
    ],
)
def test_names_and_durations_tell_kinds(
    of: Header, is_counted_since_start: bool, kinds: tuple[Kind, ...]
) -> None:
    found = kinds_of(of, is_counted_since_start=is_counted_since_start)
    assert tuple(found.values()) == kinds
