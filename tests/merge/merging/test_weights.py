"""Weights: how much each profile counts in a merge; no stack is lost by rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Collection, Profile, ProfileError, UnfitForWeight, Weighting, decode, encode
from pprof_merge.merging import WeightingInvalid
from pprof_merge.merging.weights import WEIGHTS, parse_half_life, times_until
from pprof_proto import profile_pb2

from tests.faults.stacks import DAY, EPOCH, SECOND
from tests.merge.differential import read
from tests.merge.go_top import go_top
from tests.oracle.builder import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from random import Random

BY = [name for name in WEIGHTS if name != "sum"]


class ProfileSpec(NamedTuple):
    """A profile to build: how often each function was sampled; each sample is 10 ms."""

    samples: dict[str, int]
    time_nanos: int = EPOCH
    seconds: int = 10
    labels: tuple[dict[str, str], ...] = ({},)
    build_id: str = ""
    binary: str = "/bin/service"
    swapped: bool = False

    def bytes(self) -> bytes:
        profile = profile_pb2.Profile(
            string_table=[b""], time_nanos=self.time_nanos, duration_nanos=self.seconds * SECOND
        )

        def string(text: str) -> int:
            profile.string_table.append(text.encode())
            return len(profile.string_table) - 1

        step = -1 if self.swapped else 1
        for name, unit in (("samples", "count"), ("cpu", "nanoseconds"))[::step]:
            profile.sample_type.add(type=string(name), unit=string(unit))
        profile.mapping.add(id=1, filename=string(self.binary), build_id=string(self.build_id))
        for number, (name, count) in enumerate(self.samples.items(), 1):
            profile.function.add(id=number, name=string(name))
            profile.location.add(id=number, mapping_id=1, address=number).line.add(function_id=number)
            sample = profile.sample.add(location_id=[number], value=[count, count * 10_000_000][::step])
            for key, text in self.labels[(number - 1) % len(self.labels)].items():
                sample.label.add(key=string(key), str=string(text))
        return profile.SerializeToString()


def collected(inputs: Iterable[bytes]) -> Collection:
    collection = Collection()
    refused = [taken for taken in collection.extend(inputs) if isinstance(taken, ProfileError)]
    assert not refused
    return collection


def cpu(
    specs: Sequence[ProfileSpec], weighting: Weighting, labels: Sequence[Mapping[str, str]] = ()
) -> dict[str, float]:
    """Return the CPU time of each function in the merge, in samples of 10 ms."""
    return cpu_of(collected(each.bytes() for each in specs).merge(weighting=weighting, labels=labels))


def cpu_of(merged: Profile) -> dict[str, float]:
    """Return the CPU time of each function, in samples of 10 ms. Its count must agree."""
    read_again = profile_pb2.Profile.FromString(encode(merged))
    strings = [string.decode() for string in read_again.string_table]
    names = {function.id: strings[function.name] for function in read_again.function}
    names = {location.id: names[location.line[0].function_id] for location in read_again.location}
    columns = [strings[each.type] for each in read_again.sample_type]
    times: dict[str, float] = {}
    for sample in read_again.sample:
        value = dict(zip(columns, sample.value, strict=True))
        assert abs(value["samples"] * 10_000 - value["cpu"]) <= 5_000
        name = names[sample.location_id[0]]
        times[name] = times.get(name, 0) + value["cpu"] / 10_000_000
    return times


def test_each_second_counts_the_same() -> None:
    specs = [ProfileSpec({"busy": 90}, seconds=10), ProfileSpec({"idle": 5, "more": 5}, seconds=30)]
    assert cpu(specs, Weighting("duration")) == {"busy": 25, "idle": 37.5, "more": 37.5}


def test_a_profile_without_samples_does_not_matter() -> None:
    specs = [ProfileSpec({"a": 10}, seconds=10), ProfileSpec({}, seconds=1000, time_nanos=EPOCH + 1000 * DAY)]
    for by in WEIGHTS:
        assert cpu(specs, Weighting(by, DAY)) == {"a": 10}


VERSIONS = [
    ProfileSpec({"one": 30}, build_id="1"),
    ProfileSpec({"one": 50}, build_id="1"),
    ProfileSpec({"two": 20}, build_id="2"),
]


def test_each_version_counts_the_same() -> None:
    assert cpu(VERSIONS, Weighting("version")) == {"one": 50, "two": 50}


def test_without_a_build_id_the_binary_is_the_version() -> None:
    specs = [ProfileSpec({"one": 80}, binary="/bin/v1"), ProfileSpec({"two": 20}, binary="/bin/v2")]
    assert cpu(specs, Weighting("version")) == {"one": 50, "two": 50}
    same = [each._replace(binary="/bin/v1") for each in specs]
    assert cpu(same, Weighting("version")) == {"one": 80, "two": 20}


def test_a_profile_that_names_no_instance_is_one() -> None:
    assert cpu(VERSIONS, Weighting("instance")) == pytest.approx({"one": 200 / 3, "two": 100 / 3})


@pytest.mark.parametrize("key", ["instance", "version"])
def test_a_label_of_the_samples_is_a_label_of_the_profile(key: str) -> None:
    specs = [
        ProfileSpec({"one": 30, "other": 30}, labels=({key: "a", "region": "eu"},), build_id="1"),
        ProfileSpec({"one": 40}, labels=({key: "b"},), build_id="1"),
        ProfileSpec({"two": 60}, labels=({key: "b"},), build_id="2"),
    ]
    expected = {"one": 40 + 32, "other": 40, "two": 48}
    assert cpu(specs, Weighting(key)) == expected
    # Samples of Go's runtime have no labels. A profile with two values of a label is
    # in a group of its own.
    assert cpu([specs[0]._replace(labels=({key: "a"}, {})), *specs[1:]], Weighting(key)) == expected
    both = specs[0]._replace(labels=({key: "a"}, {key: "b"}))
    assert cpu([both, *specs[1:]], Weighting(key)) == expected
    assert cpu([specs[0]._replace(labels=({key: "b"}, {})), *specs[1:]], Weighting(key)) == {
        "one": 70,
        "other": 30,
        "two": 60,
    }


def test_given_labels_take_precedence_over_labels_of_samples() -> None:
    specs = [each._replace(labels=({"version": "x"},)) for each in VERSIONS]
    assert cpu(specs, Weighting("version")) == {"one": 80, "two": 20}
    given = [{"version": "1"}, {"version": "2", "instance": "i"}, {"version": "2"}]
    assert cpu(specs, Weighting("version"), given) == pytest.approx({"one": 50 + 250 / 7, "two": 100 / 7})
    # A profile that is merged twice may have other labels each time.
    twice = collected(each.bytes() for each in VERSIONS).merge(
        [0, 0, 2], Weighting("version"), [{"version": "1"}, {"version": "2"}, {"version": "2"}]
    )
    assert cpu_of(twice) == pytest.approx({"one": 40 + 24, "two": 16})
    # A given label and a label of samples with the same value name the same group.
    assert cpu(specs, Weighting("version"), [{}, {}, {"version": "x"}]) == {"one": 80, "two": 20}
    assert cpu(specs, Weighting("version"), [{}, {}, {"version": "y"}]) == {"one": 50, "two": 50}


def test_older_counts_less() -> None:
    specs = [
        ProfileSpec({name: 10}, time_nanos=EPOCH - days * DAY)
        for name, days in (("a", 0), ("b", 7), ("c", 14))
    ]
    expected = {"a": 120 / 7, "b": 60 / 7, "c": 30 / 7}
    assert cpu(specs, Weighting("sum", 7 * DAY)) == pytest.approx(expected, abs=1e-6)
    # A profile without a time is as old as the oldest.
    timeless = [*specs[:2], specs[2]._replace(time_nanos=0)]
    assert cpu(timeless, Weighting("sum", 7 * DAY)) == pytest.approx({"a": 15, "b": 7.5, "c": 7.5}, abs=1e-6)
    all_timeless = [each._replace(time_nanos=0) for each in specs]
    assert cpu(all_timeless, Weighting("sum", 7 * DAY)) == {"a": 10, "b": 10, "c": 10}


def test_a_half_life_goes_with_every_weight() -> None:
    specs = [
        ProfileSpec({"old": 70}, EPOCH - DAY, build_id="1"),
        ProfileSpec({"new": 20}, EPOCH, 20, build_id="2"),
    ]
    assert cpu(specs, Weighting("version", DAY)) == pytest.approx({"old": 30, "new": 60})
    assert cpu(specs, Weighting("instance", DAY)) == pytest.approx({"old": 30, "new": 60})
    assert cpu(specs, Weighting("duration", DAY)) == pytest.approx({"old": 18, "new": 72})


def test_sample_types_may_come_in_any_order() -> None:
    specs = [VERSIONS[0], VERSIONS[1]._replace(swapped=True), VERSIONS[2]._replace(swapped=True)]
    for each in (specs, specs[::-1]):
        assert cpu(each, Weighting("version")) == {"one": 50, "two": 50}


def test_only_the_weight_duration_needs_a_duration() -> None:
    for seconds in (0, -1):
        specs = [*VERSIONS, ProfileSpec({"three": 1}, seconds=seconds)]
        with pytest.raises(UnfitForWeight, match=r"^it has no duration to be weighed by$"):
            cpu(specs, Weighting("duration"))
        cpu(specs, Weighting("version"))


@pytest.mark.parametrize("by", BY)
def test_a_merge_of_nothing_is_refused(by: str) -> None:
    with pytest.raises(ProfileError, match="no profile to merge"):
        Collection().merge(weighting=Weighting(by))


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("90m", 5400), ("36h", 129_600), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_a_half_life_has_a_unit(text: str, seconds: int) -> None:
    assert parse_half_life(text) == seconds * SECOND


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "d",
        "0d",
        "-7d",
        "7 d",
        "7D",
        "1.5d",
        "7days",
        "7d\n",
        "\N{ARABIC-INDIC DIGIT SEVEN}d",
        "1234567d",
    ],
)
def test_an_invalid_half_life_is_named(text: str) -> None:
    with pytest.raises(
        WeightingInvalid,
        match="is not a half-life; write a number from 1 to 999999 and a unit, s, m, h, d or w, as in 7d",
    ):
        parse_half_life(text)


def test_sum_is_the_merge(profiles: Path) -> None:
    collection = collected(read(profiles, "*.gz"))
    assert encode(collection.merge(weighting=Weighting("sum"))) == encode(collection.merge())
    chosen = range(0, len(collection), 2)
    assert encode(collection.merge(chosen, Weighting("sum"))) == encode(collection.merge(chosen))


@pytest.mark.parametrize("by", BY)
def test_equal_weights_give_the_merge_with_counts_in_thousandths(by: str) -> None:
    specs = [ProfileSpec({"a": 3, str(number): 7}, build_id=str(number)) for number in range(9)]
    collection = collected(each.bytes() for each in specs)
    plain, weighted = collection.merge(), collection.merge(weighting=Weighting(by))
    assert (weighted.samples.values == plain.samples.values * [1000, 1]).all()
    assert weighted.header == plain.header


@pytest.mark.parametrize("half_life", [0, 3 * SECOND])
@pytest.mark.parametrize("by", WEIGHTS)
def test_no_order_changes_a_byte_and_no_stack_is_lost(by: str, half_life: int, profiles: Path) -> None:
    inputs = read(profiles, "apisvc-*", "etl-*", "big-*")
    inputs = [each for each in inputs if decode(each).header.duration_nanos > 0]
    weighting = Weighting(by, half_life)
    collection = collected(inputs)
    merged = encode(collection.merge(weighting=weighting))
    backwards, rotated = collected(inputs[::-1]), collected(inputs[5:] + inputs[:5])
    assert encode(backwards.merge(weighting=weighting)) == merged
    assert encode(rotated.merge(range(len(inputs)), weighting)) == merged
    plain, weighted = collection.merge(), decode(merged)
    assert len(weighted.samples) == len(plain.samples)
    assert (weighted.samples.values >= 1).all()
    assert weighted.samples.locations.tolist() == plain.samples.locations.tolist()
    assert weighted.header == plain.header


@pytest.mark.parametrize("by", BY)
def test_the_total_stays_and_every_group_has_its_share(by: str, profiles: Path) -> None:
    """The programs have no stack in common, so that the merge shows how much each of them counts."""
    parts = [read(profiles, pattern) for pattern in ("etl-*", "lintd-*", "apisvc-v2-*")]
    merges = [collected(part).merge() for part in parts]
    collection = collected([each for part in parts for each in part])
    weighted = collection.merge(weighting=Weighting(by))
    plain_total = sum(int(merge.samples.values[:, 0].sum()) for merge in merges)
    values = weighted.samples.values[:, 0]
    assert abs(int(values.sum()) - 1000 * plain_total) <= len(values)
    expected = {
        "duration": [sum(decode(each).header.duration_nanos for each in part) for part in parts],
        "instance": [len(part) for part in parts],
        "version": [1, 1, 1],
    }[by]
    leaves = weighted.samples.locations[weighted.samples.location_offsets[:-1]]
    binary = weighted.locations.mapping[leaves]
    totals = np.bincount(binary, values).astype(int).tolist()
    wanted = sorted(1000 * plain_total * part / sum(expected) for part in expected)
    assert sorted(totals) == pytest.approx(wanted, abs=len(values))


@given(
    random=st.randoms(use_true_random=False),
    by=st.sampled_from([name for name in WEIGHTS if name != "duration"]),
    half_life=st.sampled_from([0, 1, DAY, 999_999 * 7 * DAY]),
)
def test_generated_profiles_keep_their_stacks_in_any_order(random: Random, by: str, half_life: int) -> None:
    world = World(random)
    inputs = [world.profile() for _ in range(4)]
    weighting = Weighting(by, half_life)
    merged = encode(collected(inputs).merge(weighting=weighting))
    assert encode(collected(inputs[::-1]).merge(weighting=weighting)) == merged
    if not weighting.is_plain:
        assert np.abs(decode(merged).samples.values.astype(object)).sum(axis=0).max(initial=0) < 1 << 61


def test_totals_that_would_overflow_are_scaled_down_together() -> None:
    specs = [
        ProfileSpec({"huge": 900_000_000_000}, build_id="1"),
        ProfileSpec({"small": 1, "tiny": 1}, build_id="2"),
    ]
    times = cpu(specs, Weighting("version"))
    assert times["huge"] == pytest.approx(2 * times["small"]) == pytest.approx(2 * times["tiny"])
    assert sum(times.values()) * 10_000_000 == pytest.approx(1 << 59)


@pytest.mark.parametrize("by", BY)
def test_pprof_reads_a_weighted_merge(by: str, profiles: Path, tmp_path: Path) -> None:
    merged = collected(read(profiles, "apisvc-*")).merge(weighting=Weighting(by, 7 * DAY))
    for column, (name, unit) in enumerate((("samples", "count"), ("cpu", "nanoseconds"))):
        table = go_top(encode(merged), tmp_path, name, unit)
        # A sample without a stack belongs to no function.
        framed = np.diff(merged.samples.location_offsets) > 0
        assert sum(flat for flat, _ in table.values()) == merged.samples.values[framed, column].sum()


def test_a_profile_from_after_now_counts_as_the_last_that_is_not() -> None:
    """The clock of one host is a year ahead; it decides nothing, however many of its profiles there are."""
    specs = [
        ProfileSpec({"old": 8}, EPOCH),
        ProfileSpec({"new": 8}, EPOCH + DAY),
        *(ProfileSpec({f"ahead{days}": 8}, EPOCH + days * DAY) for days in (365, 400)),
    ]
    times = times_until(EPOCH + 2 * DAY, [each.time_nanos for each in specs])
    merged = collected(each.bytes() for each in specs).merge(weighting=Weighting(half_life=DAY), times=times)
    found = cpu_of(merged)
    assert found["ahead365"] == found["ahead400"] == found["new"]
    assert found["old"] == pytest.approx(found["new"] / 2)


@given(st.lists(st.integers(-5, 20)), st.integers(0, 10))
def test_times_until_now_are_the_times_up_to_it(times: list[int], now: int) -> None:
    found = times_until(now, times)
    known = [time for time in times if time and time <= now]
    assert [time for time in found if time in times] == found
    assert all(new == time for new, time in zip(found, times, strict=True) if time <= now)
    assert all(new == max(known) for new, time in zip(found, times, strict=True) if time > now and known)
    assert times_until(now, times[::-1]) == found[::-1]
