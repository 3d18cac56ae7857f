from __future__ import annotations

import gzip
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited, taken_at
from tests.collector.own_service import OwnService
from tests.faults.stacks import profile_of, tally
from tests.server import Server, bearer


def submit_all(server: Server, *names: str) -> None:
    for name in names:
        assert server.submit(profile_of(name)).status_code == 204


def blobs_of_default(server: Server) -> int:
    """Return how many profiles the service `default` has."""
    return len([blob for blob in server.blobs() if "/default/" in str(blob)])


def test_the_merge_takes_the_place_of_its_inputs(own: OwnService) -> None:
    submit_all(own, "a", "b", "c")
    before = own.merge()
    answer = own.combine()
    assert answer.status_code == 200
    assert answer.content == before.content
    (blob,) = own.blobs()
    content = blob.read_bytes()
    assert content.startswith(answer.content)  # and ends with its seal
    assert gzip.decompress(content) == gzip.decompress(answer.content)
    assert [path.name for path in own.blobs(".inputs")] == [blob.name.replace(".pb.gz", ".inputs")]
    assert own.merge().content == before.content


@pytest.mark.parametrize(
    "query",
    [
        "",
        "and_combine=True",
        "and_combine=1",
        "and_combine=",
        "and_combine=TRUE",
        "and_combine=true%20",
    ],
)
def test_only_the_exact_value_true_combines(shared: Server, query: str) -> None:
    submit_all(shared, "a", "b")
    answer = shared.client.post(f"/v1/merge?{query}", headers=bearer(Server.merge_key))
    assert answer.status_code == 200
    assert blobs_of_default(shared) == 2


@pytest.mark.parametrize(
    "query", ["AND_COMBINE=true", "and_combine=false&and_combine=true", "and_combine=true&other=1"]
)
def test_what_is_not_certainly_a_combine_is_refused(shared: Server, query: str) -> None:
    submit_all(shared, "a", "b")
    answer = shared.client.post(f"/v1/merge?{query}", headers=bearer(Server.merge_key))
    assert (answer.status_code, blobs_of_default(shared)) == (400, 2)
    assert "and_combine" in answer.json()["detail"] or "other" in answer.json()["detail"]


def test_with_nothing_stored_it_is_404(own: OwnService) -> None:
    assert own.combine().status_code == 404


def test_combined_profiles_combine_again_and_each_counts_once(server: Server) -> None:
    submit_all(server, "a", "b")
    server.combine()
    submit_all(server, "b", "c")
    assert tally(server.merge().content) == {"a": 1, "b": 1, "c": 1}
    server.combine()
    submit_all(server, "a", "b", "c")
    assert tally(server.combine().content) == {"a": 1, "b": 1, "c": 1}
    assert len(server.blobs()) == len(server.blobs(".inputs")) == 1
    server.restart()
    submit_all(server, "a", "b", "c")
    assert tally(server.merge().content) == {"a": 1, "b": 1, "c": 1}


def test_one_profile_has_nothing_to_combine(own: OwnService) -> None:
    submit_all(own, "a")
    (blob,) = own.blobs()
    assert tally(own.combine().content) == {"a": 1}
    assert tally(own.combine().content) == {"a": 1}
    assert own.blobs() == [blob]
    assert not own.blobs(".inputs")
    assert len(own.events("merge made")) == 1


def test_what_cannot_be_read_stays_and_counts_when_it_is_mended(server: Server) -> None:
    submit_all(server, "a", "b", "c")
    damaged = server.blobs()[0]
    content = damaged.read_bytes()
    (stack,) = tally(content)
    damaged.write_bytes(content[:-30])
    server.forget_decoded()
    answer = server.combine()
    rest = {"a", "b", "c"} - {stack}
    assert tally(answer.content) == dict.fromkeys(rest, 1)
    assert damaged.name in answer.headers["PGO-Left-Out"]
    assert len(server.blobs()) == 2
    damaged.write_bytes(content)
    server.restart()
    assert tally(server.combine().content) == {"a": 1, "b": 1, "c": 1}
    assert len(server.blobs()) == 1


def without_samples() -> bytes:
    """Return a profile without samples, which is the last in the order of time."""

    def edit(profile: Profile) -> None:
        for field in ("sample", "location", "function", "mapping"):
            profile.ClearField(field)
        profile.duration_nanos = 0

    return edited(taken_at(profile_of(""), 1_800_000_000_000_000_000), edit)


@pytest.mark.parametrize("combined", [False, True])
def test_a_merge_that_equals_one_of_its_inputs_takes_its_place(server: Server, *, combined: bool) -> None:
    submit_all(server, "a", "b")
    merged = server.combine().content
    if not combined:  # the same bytes, as one submitted profile
        other = Server(server.home / "other")
        with other:
            assert other.submit(merged).status_code == 204
            check_equal_input(other, merged)
    else:
        check_equal_input(server, merged)
        submit_all(server, "a", "b")
        assert tally(server.merge().content) == {"a": 1, "b": 1}


def check_equal_input(server: Server, merged: bytes) -> None:
    (blob,) = server.blobs()
    assert server.submit(without_samples()).status_code == 204
    assert server.combine().content == merged
    assert server.blobs() == [blob]
    server.stop()
    server.reindex()
    server.start()
    assert server.merge().content == merged
    assert server.submit(without_samples()).status_code == 204
    assert server.blobs() == [blob]


def test_a_merge_sent_back_is_counted_already(server: Server) -> None:
    submit_all(server, "a", "b")
    merged = server.combine().content
    assert server.submit(merged).status_code == 204
    assert tally(server.merge().content) == {"a": 1, "b": 1}
    server.stop()
    server.reindex()
    server.start()
    submit_all(server, "a", "b")
    assert tally(server.merge().content) == {"a": 1, "b": 1}


def test_a_merge_sent_in_before_the_combine_is_a_profile_of_its_own(own: OwnService) -> None:
    submit_all(own, "a", "b")
    assert own.submit(own.merge().content).status_code == 204
    assert tally(own.combine().content) == {"a": 2, "b": 2}


@pytest.mark.folder
def test_an_input_that_cannot_be_deleted_counts_no_more(server: Server) -> None:
    submit_all(server, "a", "b")
    server.combine()
    (inputs,) = server.blobs(".inputs")
    inputs.unlink()
    (inputs / "in the way").mkdir(parents=True)
    submit_all(server, "c")
    assert server.combine().status_code == 200
    assert server.events("blob not deleted")
    assert tally(server.merge().content) == {"a": 1, "b": 1, "c": 1}
    os.removedirs(inputs / "in the way")
    server.restart()
    assert tally(server.merge().content) == {"a": 1, "b": 1, "c": 1}
    assert len(server.blobs()) == 1


def test_parallel_submits_with_combines_add_up(server: Server) -> None:
    """Each profile is sent twice; half of the second submits come when the first may be combined already."""
    names = [f"stack {number}" for number in range(16)]
    profiles = [
        profile_of(name, time_nanos=day * 86_400_000_000_000) for name in names for day in range(1, 6)
    ]

    def submit(profile: bytes) -> int:
        return max(server.submit(profile).status_code for _ in "12")

    def combine(_: int) -> int:
        return server.combine().status_code

    with ThreadPoolExecutor(32) as clients, ThreadPoolExecutor(2) as combiners:
        submitting = clients.map(submit, profiles)
        combining = combiners.map(combine, range(6))
        assert set(submitting) == {204}
        assert set(combining) <= {200, 404}
    expected = Counter(dict.fromkeys(names, 5))
    assert tally(server.merge().content) == expected
    assert tally(server.combine().content) == expected
    assert len(server.blobs()) == 1
    server.kill()
    server.reindex()
    server.start()
    assert tally(server.merge().content) == expected
