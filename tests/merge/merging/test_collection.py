"""A collection reads profiles once, and merges any selection of them as Go does."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pprof_merge import (
    Collection,
    IncompatibleProfiles,
    LimitExceeded,
    Limits,
    ProfileError,
    decode,
    encode,
    merge,
)
from pprof_merge.arrays import Int64s, Ints
from pprof_merge.merging.batch import Batch
from pprof_merge.merging.dictionary import Dictionary
from pprof_merge.merging.numbered import NumberedProfiles
from pprof_merge.merging.sums import PlainSums
from pprof_proto import profile_pb2 as messages

from tests.merge.differential import canonical, check_same, read
from tests.oracle.builder import World, seeded
from tests.oracle.oracle import go_root

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from tests.oracle.oracle import Oracle

BROKEN = b"\x12\x02\x08\x01"


def of_types(count: int) -> bytes:
    """Return a profile with one sample and `count` sample types, all of them equal."""
    types = [messages.ValueType(type=1, unit=2)] * count
    sample = messages.Sample(value=range(1, 1 + count))
    strings = [b"", b"samples", b"count"]
    return messages.Profile(sample_type=types, sample=[sample], string_table=strings).SerializeToString()


def merged_at_once(profiles: list[bytes]) -> bytes:
    return encode(merge(map(decode, profiles)))


def test_any_selection_is_what_go_makes_of_it(profiles: Path, oracle: Oracle) -> None:
    inputs = [*read(profiles, "*.gz"), (go_root() / "src/cmd/compile/default.pgo").read_bytes()]
    collection = Collection()
    numbers = list(collection.extend(inputs))
    assert numbers == list(range(len(inputs))) == list(range(len(collection)))
    for chosen in ([0], [5, 3], range(0, len(inputs), 2), range(len(inputs))):
        theirs = oracle.merge(canonical([inputs[number] for number in chosen]))
        check_same(encode(collection.merge(chosen)), theirs)
    assert encode(collection.merge()) == encode(collection.merge(range(len(inputs))))


@given(random=st.randoms(use_true_random=False), count=st.integers(1, 8))
def test_a_merge_after_each_profile_is_that_of_all_so_far(random: Random, count: int) -> None:
    world = World(random, empty_strings=True)
    inputs = [world.profile() for _ in range(count)]
    collection = Collection()
    for so_far, profile in enumerate(inputs, 1):
        collection.add(profile)
        if random.random() < 0.7:
            assert encode(collection.merge()) == merged_at_once(inputs[:so_far])
    assert encode(collection.merge()) == merged_at_once(inputs)


@given(random=st.randoms(use_true_random=False), count=st.integers(1, 8))
def test_a_collection_is_its_segments(random: Random, count: int) -> None:
    world = World(random, empty_strings=True)
    world.columns = random.random() < 0.7
    inputs = [world.profile() for _ in range(count)]
    collection, again = Collection(), Collection()
    for profile in inputs:
        collection.add(profile)
        if random.random() < 0.5:
            again.grow(collection.since(again.mark).packed())
            assert again.mark == collection.mark
        if random.random() < 0.3:  # profiles can be added to a loaded collection too
            missing = inputs[len(again) : len(collection)]
            assert list(again.extend(missing)) == list(range(len(again) - len(missing), len(again)))
            collection, again = again, Collection()
    again.grow(collection.since(again.mark).packed())
    assert encode(again.merge()) == merged_at_once(inputs)
    part = random.sample(range(count), random.randint(1, count))
    assert encode(again.merge(part)) == merged_at_once([inputs[number] for number in part])


@given(random=st.randoms(use_true_random=False), count=st.integers(2, 6))
def test_profiles_that_are_not_selected_do_not_matter(random: Random, count: int) -> None:
    world = World(random, empty_strings=True)
    world.columns = random.random() < 0.7
    inputs = [world.profile() for _ in range(count)]
    collection = Collection()
    list(collection.extend(inputs))
    part = random.sample(range(count), random.randint(1, count))
    assert encode(collection.merge(part)) == merged_at_once([inputs[number] for number in part])


@pytest.mark.parametrize("seed", range(6))
def test_what_was_added_up_before_does_not_matter(seed: int) -> None:
    """Neither what was added up ahead, nor the merges before: of all, of most, of few, or of some twice."""
    random = seeded(seed)
    world = World(random, empty_strings=True)
    inputs = [world.profile() for _ in range(200)]
    collection, n_read = Collection(), 0
    while n_read < len(inputs):
        new = inputs[n_read : n_read + random.randint(1, 90)]
        numbers = range(n_read, n_read + len(new))
        assert list(collection.extend(new)) == [*numbers]
        n_read += len(new)
        collection.sum_ahead(random.sample(numbers, random.choice([len(numbers), len(numbers) // 2])))
        part = random.sample(
            range(n_read), random.choice([n_read, n_read, n_read * 9 // 10 or 1, n_read // 3 or 1])
        )
        part += random.choice([[], [], part[:2]])
        if random.random() < 0.7:
            assert encode(collection.merge(part)) == merged_at_once([inputs[number] for number in part])


def test_profiles_that_do_not_fit_are_not_added_up_ahead() -> None:
    collection = Collection()
    one, two = range(70), range(70, 140)
    assert list(collection.extend([of_types(1)] * 70 + [of_types(2)] * 70)) == [*one, *two]
    collection.sum_ahead(one)
    collection.sum_ahead(two)
    with pytest.raises(IncompatibleProfiles):
        collection.merge()
    assert encode(collection.merge(one)) == merged_at_once([of_types(1)] * 70)
    assert encode(collection.merge(two)) == merged_at_once([of_types(2)] * 70)


def test_columns_of_inlined_lines_are_those_of_the_selected() -> None:
    def at(column: int) -> bytes:
        lines = [messages.Line(function_id=1, line=3, column=column), messages.Line(function_id=1, line=9)]
        return messages.Profile(
            sample_type=[messages.ValueType()],
            sample=[messages.Sample(location_id=[1], value=[1])],
            location=[messages.Location(id=1, line=lines)],
            function=[messages.Function(id=1)],
            string_table=[b""],
        ).SerializeToString()

    collection = Collection()
    assert list(collection.extend([at(7), at(8), at(3)])) == [0, 1, 2]
    columns = [collection.merge(part).locations.lines.column.tolist() for part in ([0, 2], [1, 2], [2], None)]
    assert columns == [[7, 0], [8, 0], [3, 0], [8, 0]]


def test_older_profiles_that_are_added_later_are_merged_in_order(profiles: Path) -> None:
    inputs = canonical(read(profiles, "apisvc-*"))
    times = [decode(profile).header.time_nanos for profile in inputs]
    assert any(before < after for before, after in pairwise(times))
    collection = Collection()
    for so_far in range(1, len(inputs) + 1):
        collection.add(inputs[-so_far])
        assert encode(collection.merge()) == merged_at_once(inputs[-so_far:])


def test_an_older_profile_that_is_added_later_sets_the_order_of_sample_types() -> None:
    def at(time_nanos: int, sample_types: list[bytes]) -> bytes:
        return messages.Profile(
            time_nanos=time_nanos,
            sample_type=[messages.ValueType(type=1 + row) for row in range(len(sample_types))],
            sample=[messages.Sample(value=[time_nanos + len(each) for each in sample_types])],
            string_table=[b"", *sample_types],
        ).SerializeToString()

    inputs = [at(70, [b"a", b"bb"]), at(50, [b"bb", b"a"]), at(60, [b"a", b"bb"]), at(40, [b"a", b"bb"])]
    collection = Collection()
    for so_far, profile in enumerate(inputs, 1):
        collection.add(profile)
        assert encode(collection.merge()) == merged_at_once(inputs[:so_far])
    assert collection.merge().samples.values.tolist() == [[224, 228]]


@pytest.mark.parametrize("periods", [(-5, 0, -5), (0, -5, 0, -5, -7), (3, 0, 3, 9, 3), (-7, -5, 0)])
def test_a_header_that_comes_again_counts_as_in_go(periods: tuple[int, ...]) -> None:
    """A period of 0 is none, so a negative one after it is taken."""
    inputs = [
        messages.Profile(
            time_nanos=1 + number,
            period=period,
            sample_type=[messages.ValueType(type=1)],
            sample=[messages.Sample(value=[1])],
            string_table=[b"", b"samples"],
        ).SerializeToString()
        for number, period in enumerate(periods)
    ]
    collection = Collection()
    list(collection.extend(inputs))
    assert encode(collection.merge()) == merged_at_once(inputs)


def test_refused_profiles_are_reported_and_leave_nothing(profiles: Path) -> None:
    inputs = read(profiles, "etl-*")
    flawed = [b"", inputs[0], b"no profile", inputs[1][:1000], inputs[1], BROKEN, inputs[2]]
    collection = Collection()
    outcomes = list(collection.extend(flawed))
    assert [outcome if isinstance(outcome, int) else None for outcome in outcomes] == [
        None, 0, None, None, 1, None, 2,
    ]  # fmt: skip
    assert all(isinstance(outcome, int | ProfileError) for outcome in outcomes)
    assert str(outcomes[0]) == "the input is empty"
    assert str(outcomes[3]) == "gzip: the stream is truncated"
    assert [collection.digest(number) for number in range(3)] == [decode(one).digest for one in inputs]
    assert [collection.header(number) for number in range(3)] == [decode(one).header for one in inputs]
    with pytest.raises(ProfileError):
        collection.add(BROKEN)
    assert encode(collection.merge()) == merged_at_once(inputs)


def test_limits_hold_for_each_profile_by_itself(profiles: Path) -> None:
    inputs = read(profiles, "etl-*", "lintd-*")
    samples = [len(decode(profile).samples) for profile in inputs]
    collection = Collection(Limits(samples=max(samples), frames=60_000, irregular_fields=8))
    assert list(collection.extend(inputs)) == list(range(len(inputs)))
    (refused,) = Collection(Limits(samples=max(samples) - 1)).extend([inputs[samples.index(max(samples))]])
    assert isinstance(refused, LimitExceeded)
    assert refused.limit == "samples"


def test_profiles_of_other_types_are_added_but_not_merged(profiles: Path) -> None:
    one, two, three = (of_types(n_types) for n_types in (1, 2, 3))
    collection = Collection()
    assert list(collection.extend([one, two, three, two])) == [0, 1, 2, 3]
    with pytest.raises(IncompatibleProfiles):
        collection.merge()
    assert encode(collection.merge([1, 3])) == merged_at_once([two, two])
    collection.add(read(profiles, "etl-s2-000*")[0])
    with pytest.raises(IncompatibleProfiles):
        collection.merge()


def test_totals_are_the_sums_of_each_profile(profiles: Path) -> None:
    """Whatever the order of the sample types is, as in the second profile here."""
    inputs = [*map(decode, read(profiles, "apisvc-v1-*.pb.gz")[:3])]
    turned = inputs[1].replace(
        header=inputs[1].header._replace(sample_types=inputs[1].header.sample_types[::-1]),
        samples=replace(inputs[1].samples, values=inputs[1].samples.values[:, ::-1]),
    )
    collection = Collection()
    for profile in (inputs[0], turned, inputs[2]):
        collection.add(encode(profile))
    for column, sample_type in enumerate(inputs[0].header.sample_types):
        expected = [int(profile.samples.values[:, column].sum()) for profile in inputs]
        assert collection.totals([0, 1, 2], sample_type).tolist() == expected
        assert collection.totals([2, 0], sample_type).tolist() == [expected[2], expected[0]]
    assert collection.totals([], inputs[0].header.sample_types[0]).tolist() == []


def test_nothing_to_merge() -> None:
    with pytest.raises(ProfileError, match="no profile"):
        Collection().merge()


@settings(max_examples=settings().max_examples // 2)
@given(random=st.randoms(use_true_random=False), counts=st.lists(st.integers(0, 4), min_size=2, max_size=3))
def test_collections_of_other_processes_are_absorbed(random: Random, counts: list[int]) -> None:
    world = World(random, empty_strings=True)
    inputs = [[world.profile() for _ in range(count)] for count in counts]
    collection = Collection()
    for share in inputs:
        other = Collection()
        list(other.extend(share))
        first = len(collection)
        assert collection.absorb(pickle.loads(pickle.dumps(other))) == range(first, first + len(share))  # noqa: S301 - our own
    together = [profile for share in inputs for profile in share]
    if together:
        assert encode(collection.merge()) == merged_at_once(together)
        collection.add(together[0])
        assert encode(collection.merge()) == merged_at_once([*together, together[0]])


def test_values_that_were_pickled_are_added_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy adds at indexes thirty times slower with any other type object than its own."""
    types: list[np.dtype[Any]] = []

    class Watched(PlainSums):
        def add_column(self, column: int, stacks: Ints, values: Int64s) -> None:
            types.extend((stacks.dtype, values.dtype))
            super().add_column(column, stacks, values)

    collection = Collection()
    collection.add(World(seeded(1)).profile())
    monkeypatch.setattr("pprof_merge.merging.incremental.PlainSums", Watched)
    loaded = pickle.loads(pickle.dumps(collection, protocol=5))  # noqa: S301 - our own
    assert encode(loaded.merge([0])) == encode(collection.merge([0]))
    assert types
    assert all(each is np.dtype(np.int64) for each in types)


def with_values(types: int, values: list[list[int]]) -> bytes:
    """Return a profile with a sample at each of some addresses, which has one value of each type."""
    kinds = [messages.ValueType(type=1 + number, unit=1) for number in range(types)]
    samples = [messages.Sample(location_id=[1 + row], value=each) for row, each in enumerate(values)]
    locations = [messages.Location(id=1 + row, address=1 + row) for row in range(len(values))]
    strings = [b"", *(b"t%d" % number for number in range(types))]
    return messages.Profile(
        sample_type=kinds, sample=samples, location=locations, string_table=strings
    ).SerializeToString()


@given(data=st.data())
def test_packed_profiles_are_unpacked_as_they_were(data: st.DataObject) -> None:
    """Values may be multiples of others or not, of any size and sign; profiles may differ in their types."""
    number = st.integers(0, 300) | st.sampled_from([0, 1, -1, 1 << 40, -(1 << 63), (1 << 63) - 1])
    inputs = []
    for types in data.draw(st.lists(st.integers(1, 3) | st.just(60), min_size=1, max_size=5)):
        rows = data.draw(st.lists(st.lists(number, min_size=types, max_size=types), max_size=4))
        if data.draw(st.booleans()):
            rows = [[row[0] % 1000 * (1 + column) for column in range(types)] for row in rows]
        inputs.append(with_values(types, rows))
    batch = Batch(Limits())
    for profile in inputs:
        batch.read(profile)
    numbered = Dictionary(batch).take_profiles()
    unpacked = NumberedProfiles.joined([each.unpacked() for each in numbered.packed()])
    for field in fields(NumberedProfiles):
        was, now = getattr(numbered, field.name), getattr(unpacked, field.name)
        assert was.dtype == now.dtype
        assert was.tolist() == now.tolist()


def test_profiles_with_many_types_do_not_widen_those_of_others() -> None:
    many, few = with_values(100, [[1] * 100]), with_values(1, [[1 + row] for row in range(20_000)])
    collection = Collection()
    list(collection.extend([few, many, few, many]))
    # A stack's number takes two bytes, and a value about as many. If each sample had 100 values, it were 100.
    assert collection.own_nbytes < 2 * 20_000 * 5
    assert encode(collection.merge([0, 2])) == merged_at_once([few, few])
    assert encode(collection.merge([1, 3])) == merged_at_once([many, many])
