"""The report on merges of real profiles, and of profiles that lack something."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pprof_merge import Collection, Header, Limits, UnfitForFormat, ValueType, decode, encode, merge
from pprof_merge.analysis.build_report import Report, ReportedProfile, ReportOptions, report
from pprof_merge.analysis.call_edges import TracedEdges, call_edges
from pprof_merge.analysis.edge_overlap import overlap, overlap_of_edges
from pprof_merge.analysis.outliers import outlier_scores
from pprof_merge.merging.incremental import Contribution
from pprof_proto import profile_pb2

DAY = 86_400_000_000_000
NOW = 20_000 * DAY  # 4 October 2024


def collected(profiles: list[bytes]) -> Collection:
    collection = Collection(Limits.none())
    assert [*collection.extend(profiles)] == [*range(len(profiles))]
    return collection


def report_on(profiles: list[bytes], **asked: Any) -> Report:
    subjects = [ReportedProfile(number, f"profile {number}") for number in range(len(profiles))]
    return report(collected(profiles), subjects, NOW, ReportOptions(**asked))


@pytest.fixture(scope="module")
def real(profiles: Path) -> Callable[[str], list[bytes]]:
    return lambda pattern: [path.read_bytes() for path in sorted(profiles.glob(f"{pattern}*.pb.gz"))]


Real = Callable[[str], list[bytes]]


def edited(profile: bytes, edit: Callable[[profile_pb2.Profile], object]) -> bytes:
    message = profile_pb2.Profile.FromString(encode(decode(profile)))
    edit(message)
    return message.SerializeToString()


def text(message: profile_pb2.Profile, string: str) -> int:
    message.string_table.append(string.encode())
    return len(message.string_table) - 1


def test_a_merge_that_the_compiler_uses(real: Real) -> None:
    profiles = real("apisvc-")
    found = report_on(profiles)
    merged = merge(map(decode, profiles))
    assert (found.go.verdict, found.go.reason) == ("used", "")
    assert found.go.edges == len(call_edges(merged)) > 500
    assert 0.99 < found.go.start_lines <= 1
    assert (found.profiles, found.stacks) == (len(profiles), len(merged.samples))
    assert found.totals == {
        str(each): merged.samples.values[:, column].sum()
        for column, each in enumerate(merged.header.sample_types)
    }
    assert found.duration_nanos == merged.header.duration_nanos
    assert sorted(found.versions.values(), reverse=True) == [*found.versions.values()]
    assert len(found.versions) == 2
    assert sum(found.versions.values()) == len(profiles)
    assert (found.instances, found.coverage, found.against) == ({}, None, None)


def test_json_has_all_of_it(real: Real) -> None:
    found = report_on(real("etl-"), symbols=frozenset({b"main.main"}), against=decode(real("etl-")[0]))
    document: dict[str, Any] = json.loads(found.json())
    assert [*document] == list(Report.__dataclass_fields__)
    assert document["coverage"]["functions"]["missing"] > 0.5
    assert len(document["coverage"]["missing"]) == 20
    assert document["totals"]["samples/count"] > 100


def without_start_lines(message: profile_pb2.Profile) -> None:
    for function in message.function:
        function.start_line = 0


def of_other_types(message: profile_pb2.Profile) -> None:
    message.sample_type[0].type = message.sample_type[1].type = text(message, "wall")


def all_zero_for_the_compiler(message: profile_pb2.Profile) -> None:
    for sample in message.sample:
        sample.value[0] = 0


def without_samples(message: profile_pb2.Profile) -> None:
    del message.sample[:]


def of_one_location_each(message: profile_pb2.Profile) -> None:
    for location in message.location:
        del location.line[1:]
    for sample in message.sample:
        del sample.location_id[1:]


@pytest.mark.parametrize(
    ("edit", "verdict", "reason"),
    [
        (without_start_lines, "refused", "start line"),
        (of_other_types, "refused", "wall/count or wall/nanoseconds"),
        (all_zero_for_the_compiler, "ignored", "no calls"),
        (without_samples, "ignored", "no calls"),
        (of_one_location_each, "ignored", "no calls"),
    ],
)
def test_what_the_compiler_does_not_use(
    real: Real, edit: Callable[[profile_pb2.Profile], None], verdict: str, reason: str
) -> None:
    """tests/merge/formats/test_go_format.py checks the same profiles with `go tool preprofile`."""
    found = report_on([edited(real("etl-")[0], edit)], symbols=frozenset({b"main.main"}))
    assert found.go.verdict == verdict
    assert reason in found.go.reason
    assert (found.outliers is None) == (found.coverage is None) == (verdict == "refused")
    assert json.loads(found.json())["profiles"] == 1


def test_a_profile_to_compare_with(real: Real) -> None:
    v1, v2 = real("apisvc-v1-"), real("apisvc-v2-")
    released = decode(v2[0])
    found = report_on(v1, against=released)
    assert found.against is not None
    assert found.against.overlap == overlap(merge(map(decode, v1)), released) > 0.3
    moved = found.against.moved
    changes = [abs(each.share - each.before) for each in moved]
    assert changes == sorted(changes, reverse=True)
    assert len(moved) == 20
    assert changes[-1] > 0
    edges = call_edges(merge(map(decode, v1)))
    by_callee: Counter[bytes] = Counter()
    for callee, weight in zip(edges.callee.tolist(), edges.weight.tolist(), strict=True):
        by_callee[edges.names[callee]] += weight
    for each in moved:
        weight = by_callee[each.function.encode()]
        assert each.share == pytest.approx(weight / by_callee.total())
        assert (each.place is None) == (weight == 0)
        assert each.place is None or each.place > sum(other > weight for other in by_callee.values())
    # The other way round, the same functions moved back.
    back = report_on(v2[:1], against=merge(map(decode, v1))).against
    assert back is not None
    assert {(one.function, one.before, one.place_before) for one in back.moved} == {
        (one.function, one.share, one.place) for one in moved
    }
    with pytest.raises(UnfitForFormat):
        report_on(v1, against=decode(edited(v2[0], without_start_lines)))


def at(time_nanos: int) -> Callable[[profile_pb2.Profile], None]:
    def edit(message: profile_pb2.Profile) -> None:
        message.time_nanos = time_nanos

    return edit


def test_days_and_ages(real: Real) -> None:
    (profile, *_) = real("etl-")
    times = [0, NOW - 3 * DAY, NOW - 1, NOW - DAY + 1, NOW - DAY]
    found = report_on([edited(profile, at(time)) for time in times]).times
    assert found.days == {"2024-10-01": 1, "2024-10-03": 3}
    assert found.unknown == 1
    assert found.oldest is not None
    assert found.newest is not None
    assert (found.oldest.time, found.oldest.age_seconds) == ("2024-10-01T00:00:00Z", 3 * 86_400)
    assert (found.newest.time, found.newest.age_seconds) == ("2024-10-03T23:59:59Z", 1)
    alone = report_on([edited(profile, at(0))]).times
    assert (alone.days, alone.unknown, alone.oldest, alone.newest) == ({}, 1, None, None)


def test_instances_whose_clocks_are_ahead_are_named(real: Real) -> None:
    (profile, *_) = real("etl-")
    second = 10**9
    kept = [
        ("right", NOW - DAY, NOW - DAY),
        ("a little", NOW + 59 * second, NOW + 59 * second),
        ("unbounded", NOW + 90 * second, NOW + 90 * second),
        ("b", NOW + DAY, NOW - DAY),
        ("b", NOW + 3 * DAY, NOW - 2 * DAY),
        ("undated", 0, NOW),
        ("", NOW + 5 * second, NOW),
    ]
    profiles = collected([edited(profile, at(said)) for _, said, _ in kept])
    subjects = [
        ReportedProfile(number, "", {"instance": instance} if instance else {}, stored)
        for number, (instance, _, stored) in enumerate(kept)
    ]
    found = report(profiles, subjects, NOW, ReportOptions())
    assert [(each.instance, each.profiles, each.ahead_seconds) for each in found.clocks] == [
        ("b", 2, 5 * DAY // second), ("unbounded", 1, 90), ("", 1, 5),
    ]  # fmt: skip
    assert found.times.newest is not None
    assert found.times.newest.age_seconds == -90
    assert found.times.unknown == 1


@pytest.mark.parametrize("time_nanos", [1, -1, (1 << 63) - 1, -(1 << 63)])
def test_any_time_is_a_time(real: Real, time_nanos: int) -> None:
    assert report_on([edited(real("etl-")[0], at(time_nanos))]).times.unknown == 0


def labelled(**labels: str) -> Callable[[profile_pb2.Profile], None]:
    def edit(message: profile_pb2.Profile) -> None:
        for key, value in labels.items():
            for sample in message.sample[: len(message.sample) // 2]:
                sample.label.add(key=text(message, key), str=text(message, value))

    return edit


def test_instances_and_versions_from_labels(real: Real) -> None:
    profiles = real("apisvc-v1-")[:3]
    marked = [
        edited(profile, labelled(instance=f"host-{number % 2}", version="1.4", other="x"))
        for number, profile in enumerate(profiles)
    ]
    assert report_on(marked).instances == {"host-0": 2, "host-1": 1}
    assert report_on(marked).versions == {"1.4": 3}
    found = report_on([*marked, *real("apisvc-v2-")])
    assert found.versions["1.4"] == 3
    assert [*found.versions.values()] == [3, 3]
    combined = encode(merge(map(decode, marked)))
    assert report_on([combined]).instances == {"host-0": 1, "host-1": 1}


def test_a_merge_of_versions_is_of_each(real: Real) -> None:
    profiles = real("apisvc-v1-") + real("apisvc-v2-")
    combined = report_on([encode(merge(map(decode, profiles)))])
    assert combined.versions == dict.fromkeys(sorted(report_on(profiles).versions), 1)
    assert len(combined.versions) == 2


@pytest.mark.parametrize("file", ["/lib/libc.so.6", "/lib/x.so", "[vdso]"])
def test_libraries_are_no_versions(real: Real, file: str) -> None:
    def linked(message: profile_pb2.Profile) -> None:
        library = message.mapping.add(id=1000, memory_start=1 << 40, memory_limit=1 << 41)
        library.filename, library.build_id = text(message, file), text(message, "0abc")
        used = {message.sample[0].location_id[0]}
        for location in message.location:
            if location.id in used:
                location.mapping_id, location.address = 1000, (1 << 40) + 16

    (profile, *_) = real("etl-")
    assert report_on([edited(profile, linked)]).versions == report_on([profile]).versions


def without_build_ids(message: profile_pb2.Profile) -> None:
    for mapping in message.mapping:
        mapping.build_id = 0
    message.string_table[message.mapping[0].filename] = b"/bin/etl"


def test_a_binary_without_a_build_id_goes_by_its_file_name(real: Real) -> None:
    assert report_on([edited(real("etl-")[0], without_build_ids)]).versions == {"/bin/etl": 1}


@pytest.mark.parametrize(
    ("service", "foreign"), [("apisvc-", "etl-"), ("apisvc-", "lintd-"), ("etl-", "lintd-")]
)
def test_a_foreign_programs_profile_is_found(real: Real, service: str, foreign: str) -> None:
    own, other = real(service), real(foreign)[0]
    alone = report_on(own).outliers
    assert alone is not None
    assert alone.profiles == []
    found = report_on([*own, other]).outliers
    assert found is not None
    assert found.profiles[0].profile == f"profile {len(own)}"
    assert found.profiles[0].likeness < 0.5 < found.bound
    assert found.profiles[0].overlap == pytest.approx(overlap(decode(other), merge(map(decode, own))))
    assert 0 < found.profiles[0].share < 1


def test_two_versions_of_a_service_are_alike(real: Real) -> None:
    found = report_on(real("apisvc-v1-") + real("apisvc-v2-")).outliers
    assert found is not None
    assert (found.profiles, found.compared) == ([], len(real("apisvc-v1-") + real("apisvc-v2-")))


def test_the_bound_decides(real: Real) -> None:
    strict, lax = (report_on(real("apisvc-"), bound=bound).outliers for bound in (2.0, 0.0))
    assert strict is not None
    assert lax is not None
    assert len(strict.profiles) == strict.compared == len(real("apisvc-"))
    assert strict.profiles == sorted(strict.profiles, key=lambda outlier: outlier.likeness)
    assert lax.profiles == []
    assert strict.median == np.median([outlier.likeness for outlier in strict.profiles])


def test_few_calls_and_no_rest_are_not_compared(real: Real) -> None:
    def thinned(message: profile_pb2.Profile) -> None:
        del message.sample[20:]

    own = real("etl-")
    for profiles, compared in ((own[:1], 0), ([*own, edited(own[0], thinned)], len(own)), (own[:2], 2)):
        found = report_on(profiles).outliers
        assert found is not None
        assert found.compared == compared
        assert (found.median is None) == (compared == 0)


@pytest.mark.parametrize("n_calls", [60, 600, 6000])
@pytest.mark.parametrize(
    ("sample_type", "unit"), [((b"samples", b"count"), 1), ((b"cpu", b"nanoseconds"), 4000)]
)
def test_expected_is_the_mean_over_draws(
    real: Real, n_calls: int, sample_type: tuple[bytes, bytes], unit: int
) -> None:
    """The expectation is the mean overlap of profiles drawn from the same edges, in any unit of weight."""
    edges = call_edges(merge(map(decode, real("apisvc-v1-"))))
    header = Header((ValueType(*sample_type),), period=unit)
    random = np.random.default_rng(n_calls)
    draws = [
        [random.multinomial(size, edges.weight / edges.weight.sum()) * unit for size in (n_calls, 20_000)]
        for _ in range(30)
    ]
    rows = np.arange(len(edges))
    found = []
    for small, large in draws:
        traced = TracedEdges(replace(edges, weight=small + large), rows, np.arange(len(edges) + 1))
        contributions = [Contribution(rows, values[:, np.newaxis]) for values in (small, large)]
        found.append(outlier_scores(header, traced, contributions))
    overlaps = [
        overlap_of_edges(replace(edges, weight=small), replace(edges, weight=large)) for small, large in draws
    ]
    assert [each.overlap[0] for each in found] == pytest.approx(overlaps)
    assert {each.calls[0] for each in found} == {n_calls}
    assert np.mean([each.expected[0] for each in found]) == pytest.approx(np.mean(overlaps), rel=0.05)


def test_two_thousand_profiles_take_seconds(real: Real) -> None:
    profiles = real("apisvc-") + real("etl-") + real("lintd-")
    collection = collected([profiles[number % len(profiles)] for number in range(2000)])
    start = time.process_time()
    found = report(
        collection, [ReportedProfile(number, str(number)) for number in range(2000)], NOW, ReportOptions()
    )
    assert time.process_time() - start < 10
    assert found.outliers is not None
    assert found.outliers.compared == 2000
