"""Weighted merges: what is served and kept; stored profiles stay as they are."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pprof_merge import Collection, Weighting, compress, encode, inflate
from pprof_merge.analysis.rules import apply_rules, parse_rules
from pprof_merge.formats import FORMATS
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.collector.own_service import OwnService
from tests.faults.stacks import DAY, EPOCH, SECOND, profile_of
from tests.server import Server

WEEK = 7 * DAY


def expected(profiles: list[bytes], weighting: Weighting) -> bytes:
    collection = Collection()
    for profile in profiles:
        collection.add(profile)
    return encode(collection.merge(weighting=weighting))


def lasting(profile: bytes, seconds: int) -> bytes:
    """Return the profile with another duration."""

    def edit(parsed: Profile) -> None:
        parsed.duration_nanos = seconds * SECOND

    return compress(edited(profile, edit))


def cpu_of(content: bytes) -> dict[str, int]:
    """Return the CPU time of each stack in ns."""
    profile = Profile.FromString(inflate(content))
    names = {function.id: profile.string_table[function.name].decode() for function in profile.function}
    stacks = {location.id: names[location.line[0].function_id] for location in profile.location}
    types = [profile.string_table[each.type] for each in profile.sample_type]
    return {stacks[each.location_id[0]]: each.value[types.index(b"cpu")] for each in profile.sample}


def kept(server: Server) -> list[Path]:
    return sorted((server.data / "merged").iterdir())


WEIGHTINGS = [
    ({"weight": "duration"}, Weighting("duration")),
    ({"weight": "instance"}, Weighting("instance")),
    ({"weight": "version", "half_life": "7d"}, Weighting("version", WEEK)),
    ({"half_life": "2s"}, Weighting("sum", 2 * SECOND)),
]


def test_every_weight_is_the_engines(server: Server, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        server.submit(profile)
    plain = server.merge()
    etags = {plain.headers["ETag"]}
    for query, weighting in WEIGHTINGS:
        get, post = server.merge(query=query), server.merge("POST", query=query)
        assert get.status_code == post.status_code == 200
        assert get.content == post.content
        assert inflate(get.content) == expected(go_profiles, weighting)
        assert get.headers["ETag"] == f'"{hashlib.sha256(get.content).hexdigest()}-pprof"'
        assert get.headers["Content-Disposition"] == 'attachment; filename="default.pb.gz"'
        assert server.merge(query=query, If_None_Match=get.headers["ETag"]).status_code == 304
        etags.add(get.headers["ETag"])
    assert len(etags) == 5
    assert len(server.events("merge made")) == 5
    assert server.merge().content == plain.content


def test_sum_is_the_merge_itself(shared: Server) -> None:
    shared.submit(profile_of("a"))
    plain, named = shared.merge(), shared.merge(query={"weight": "sum"})
    assert (named.content, named.headers["ETag"]) == (plain.content, plain.headers["ETag"])
    assert len(shared.events("merge made")) <= 1


def test_an_idle_second_counts_as_a_busy_one(own: OwnService) -> None:
    own.submit(lasting(profile_of("a"), 1))
    own.submit(lasting(profile_of("b"), 3))
    assert cpu_of(own.merge().content) == {"a": 10_000_000, "b": 10_000_000}
    assert cpu_of(own.merge(query={"weight": "duration"}).content) == {"a": 5_000_000, "b": 15_000_000}


@pytest.mark.parametrize("weight", ["instance", "version"])
def test_the_labels_of_a_series_say_what_counts_the_same(own: OwnService, weight: str) -> None:
    for stack, label in (("a", 1), ("b", 1), ("c", 1), ("d", 2)):
        query = {"labels": f"{weight}={label},region=eu"}
        assert own.submit(profile_of(stack), query=query).status_code == 204
    times = cpu_of(own.merge(query={"weight": weight}).content)
    assert times == dict.fromkeys("abc", 6_666_667) | {"d": 20_000_000}


def test_the_same_bytes_from_two_versions_are_of_both(own: OwnService) -> None:
    for stack, version in (("a", 1), ("a", 2), ("b", 1)):
        query = {"labels": f"version={version}"}
        assert own.submit(profile_of(stack), query=query).status_code == 204
    times = cpu_of(own.merge(query={"weight": "version"}).content)
    assert times == {"a": 22_500_000, "b": 7_500_000}


def test_what_lost_its_instance_is_not_weighed_by_it(server: Server) -> None:
    for stack, labels in (("a", "instance=1"), ("b", "instance=2"), ("c", "instance=1")):
        day = EPOCH + DAY if stack == "c" else EPOCH
        server.submit(profile_of(stack, time_nanos=day), query={"labels": labels})
    server.submit(profile_of("new", time_nanos=EPOCH + 2 * DAY), query={"labels": "instance=1,version=2"})
    server.stop()
    server.environment |= {"PGOF_ROLLUP_DAYS": "3", "PGOF_ROLLUP_LABELS": "version"}
    server.start()
    server.wait_for_log("upkeep done")
    answer = server.merge(query={"weight": "instance"})
    assert set(cpu_of(answer.content)) == {"c", "new"}
    assert "a roll-up dropped the label instance" in answer.headers["PGO-Left-Out"]
    for query in ({}, {"weight": "version"}):
        answer = server.merge(query=query)
        assert set(cpu_of(answer.content)) == {"a", "b", "c", "new"}
        assert "PGO-Left-Out" not in answer.headers


def test_older_counts_less(own: OwnService) -> None:
    own.submit(profile_of("old", time_nanos=EPOCH))
    own.submit(profile_of("new", time_nanos=EPOCH + WEEK))
    times = cpu_of(own.merge(query={"half_life": "1w"}).content)
    assert times == {"old": 6_666_667, "new": 13_333_333}


def test_rules_and_formats_come_after_weights(stopped: Server, go_profiles: list[bytes]) -> None:
    folder = stopped.home / "rules"
    folder.mkdir()
    text = b"drop runtime.mallocgc\nnoinline /crypto.*/\n"
    (folder / "default.rules").write_bytes(text)
    stopped.environment["PGOF_RULES_DIR"] = str(folder)
    stopped.start()
    collection = Collection()
    for profile in go_profiles:
        stopped.submit(profile)
        collection.add(profile)
    ruled = apply_rules(collection.merge(weighting=Weighting("duration", DAY)), parse_rules(text))
    query = {"weight": "duration", "half_life": "24h"}
    for name in ("pprof", "folded", "json"):
        answer = stopped.merge(format_=name, query=query)
        assert answer.content == FORMATS[name].write(ruled)
        assert answer.headers["Content-Type"] == FORMATS[name].media_type
    (folder / "default.rules").unlink()
    assert stopped.merge(format_="folded", query=query).content != FORMATS["folded"].write(ruled)


def test_what_has_no_duration_is_left_out_and_named(own: OwnService) -> None:
    own.submit(profile_of("a"))
    own.submit(lasting(profile_of("b"), 0))
    assert cpu_of(own.merge().content) == {"a": 10_000_000, "b": 10_000_000}
    for _ in range(2):  # the second time from what is kept
        answer = own.merge(query={"weight": "duration"})
        assert cpu_of(answer.content) == {"a": 10_000_000}
        assert 'reason="it has no duration to be weighed by"' in answer.headers["PGO-Left-Out"]
    assert "PGO-Left-Out" not in own.merge().headers
    assert len(own.events("merge made")) == 2
    assert "PGO-Left-Out" not in own.merge(query={"weight": "instance"}).headers


def test_none_that_can_be_weighed_is_404_with_the_reason(own: OwnService) -> None:
    assert own.merge(query={"weight": "instance"}).status_code == 404
    own.submit(lasting(profile_of("a"), 0))
    answer = own.merge(query={"weight": "duration"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert "it has no duration to be weighed by" in answer.json()["detail"]
    assert own.merge().status_code == 200


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        (
            {"weight": "median"},
            "weight: unknown weight 'median'; choose one of sum, duration, instance, version",
        ),
        ({"weight": ""}, "weight: unknown weight ''"),
        (
            {"half_life": "7"},
            "half_life: '7' is not a half-life; write a number from 1 to 999999 and a unit, s, m, h, d or w",
        ),
        ({"half_life": "0d"}, "half_life: '0d' is not a half-life"),
        ({"half_life": ""}, "half_life: '' is not a half-life"),
        ({"weight": "duration", "half_life": "x" * 1000}, f"half_life: '{'x' * 50}' is not a half-life"),
    ],
)
@pytest.mark.parametrize("combine", [False, True])
def test_what_is_no_weight_is_400_and_says_what_is(
    shared: Server, query: dict[str, str], detail: str, *, combine: bool
) -> None:
    for name in ("a", "b"):
        shared.submit(profile_of(name))
    blobs = shared.blobs()
    answer = shared.combine(query=query) if combine else shared.merge(query=query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert answer.json()["detail"].startswith(detail)
    assert shared.blobs() == blobs


@pytest.mark.parametrize("query", [{"weight": "duration"}, {"half_life": "7d"}])
def test_a_combine_is_never_weighted(shared: Server, query: dict[str, str]) -> None:
    for name in ("a", "b"):
        shared.submit(profile_of(name, time_nanos=EPOCH + len(shared.blobs())))
    blobs = shared.blobs()
    answer = shared.combine(query=query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert answer.json()["detail"] == (
        "a combine stores the plain sum of all samples; leave out and_combine, or weight, half_life,"
        " latency_from, latency_to, focus, ignore and hide"
    )
    assert shared.blobs() == blobs
    assert shared.merge("HEAD", query={"and_combine": "true", **query}).status_code == 405
    assert shared.combine(key="wrong", query=query).status_code == 403


def test_an_unchanged_merge_is_not_weighed_again(server: Server) -> None:
    for name in ("a", "b"):
        server.submit(profile_of(name))
    query = {"weight": "duration"}
    first = server.merge(query=query)
    files = kept(server)
    server.submit(profile_of("a"))  # is there already
    assert server.merge(query=query).content == first.content
    assert len(server.events("merge made")) == 1
    server.restart()
    again = server.merge(query=query)
    assert (again.content, again.headers["ETag"]) == (first.content, first.headers["ETag"])
    assert not server.events("merge made")
    assert kept(server) == files
    files[0].unlink()
    assert server.merge(query=query).content == first.content


def test_what_came_in_meanwhile_is_in_the_next(own: OwnService) -> None:
    for names in ("a", "ab", "abc"):
        own.submit(profile_of(names[-1]))
        assert set(cpu_of(own.merge(query={"weight": "duration"}).content)) == {*names}


def test_each_half_life_is_another_merge(server: Server) -> None:
    server.submit(profile_of("a"))
    server.submit(profile_of("b", time_nanos=EPOCH + DAY))
    for _ in range(2):
        answers = {server.merge(query={"half_life": f"{days}d"}).content for days in range(1, 6)}
        assert len(answers) == 5
        assert len(kept(server)) == len(server.events("merge made")) == 5


def test_a_combine_makes_one_profile_of_many(own: OwnService) -> None:
    own.submit(lasting(profile_of("a"), 1))
    own.submit(lasting(profile_of("b"), 3))
    query = {"weight": "duration"}
    assert cpu_of(own.merge(query=query).content) == {"a": 5_000_000, "b": 15_000_000}
    plain = own.combine()
    assert cpu_of(own.merge(query=query).content) == {"a": 10_000_000, "b": 10_000_000}
    assert own.merge().content == plain.content


def test_all_who_wait_share_one_weighing(own: OwnService, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        own.submit(profile)
    with ThreadPoolExecutor(4) as clients:
        answers = {*clients.map(lambda _: own.merge(query={"weight": "duration"}).content, range(4))}
    assert len(answers) == 1
    assert len(own.events("merge made")) == 1


def test_a_format_that_cannot_be_made_of_it_is_422(server: Server) -> None:
    def without_lines(parsed: Profile) -> None:
        for location in parsed.location:
            del location.line[:]

    server.submit(edited(profile_of("a"), without_lines))
    answer = server.merge(format_="llvm", query={"weight": "duration"})
    assert answer.status_code == 422
    assert answer.json()["detail"] == "format=llvm: it has no source lines, so LLVM can't use it"
    assert not kept(server)


def test_a_clock_that_is_ahead_does_not_own_the_build(own: OwnService) -> None:
    now = time.time_ns()
    for stack, time_nanos in (("old", now - 8 * DAY), ("new", now - DAY), ("ahead", now + 365 * DAY)):
        own.submit(profile_of(stack, time_nanos=time_nanos))
    times = cpu_of(own.merge(query={"half_life": "1w"}).content)
    assert times["ahead"] <= times["new"] * 1.2
    assert times["old"] == pytest.approx(times["new"] / 2)
