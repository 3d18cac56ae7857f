"""Ids of profiles in profefe's API: what they return, and how long they stay valid."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.errors import NoSuchProfile
from pgo_collector.model.series import BlobName, Identity, Series
from pgo_collector.routes.profefe.envelope import parse_profile_id, profile_id

from tests.collector.profefe import PROFILES, TYPES, assert_error, get, listed, merged, stored
from tests.faults.stacks import EPOCH, profile_of, tally
from tests.server import Server, bearer


def test_one_profile_is_what_is_stored(shared: Server, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        path = f"{PROFILES}/{stored(shared, profile, service='bytes')['id']}"
        answer = get(shared, path)
        assert (answer.status_code, answer.content) == (200, profile)
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"] == 'attachment; filename="pprof.pb.gz"'
        head = get(shared, path, "HEAD")
        assert (head.status_code, head.content, head.headers["ETag"]) == (200, b"", answer.headers["ETag"])
        again = shared.client.get(
            path, headers=bearer(shared.merge_key) | {"If-None-Match": answer.headers["ETag"]}
        )
        assert again.status_code == 304


def test_several_ids_are_merged(shared: Server) -> None:
    a, b, c = (stored(shared, profile_of(stack), service="several")["id"] for stack in "abc")
    for ids, stacks in (
        (f"{a}+{c}", "ac"),
        (f"{c}+{b}+{a}", "abc"),
        (f"{a}+{a}+{b}", "ab"),
        (f"{a}+{a}", "a"),
    ):
        assert tally(get(shared, f"{PROFILES}/{ids}").content) == dict.fromkeys(stacks, 1)
    heap = stored(shared, profile_of("a", type_="heap"), service="several", type="heap")["id"]
    other = stored(shared, profile_of("a"), service="another")["id"]
    for mixed in (heap, other):
        assert_error(get(shared, f"{PROFILES}/{a}+{mixed}"), 400, "several services or types")
    assert_error(get(shared, f"{PROFILES}/{a}+x"), 404, "nothing found")


def test_ids_stay_the_same(server: Server) -> None:
    for number, labels in enumerate(("", "a=1", "a=2,b=%2F")):
        stored(server, profile_of("x", time_nanos=EPOCH + number), labels=labels)
    before = listed(server)
    for rebuilt in (False, True):
        server.kill()
        if rebuilt:
            server.reindex()
        server.start()
        assert listed(server) == before
        for profile in before:
            assert tally(get(server, f"{PROFILES}/{profile['id']}").content) == {"x": 1}


def test_the_id_of_a_combined_profile_says_where_it_went(server: Server) -> None:
    ids = [stored(server, profile_of(stack, time_nanos=EPOCH + ord(stack)))["id"] for stack in "ab"]
    server.combine(query={"service": "demo"})
    (combined,) = listed(server)
    assert combined["id"] not in ids
    for path in (*ids, "+".join(ids)):
        assert_error(get(server, f"{PROFILES}/{path}"), 404, f"whose id is {combined['id']}")
    assert tally(get(server, f"{PROFILES}/{combined['id']}").content) == {"a": 1, "b": 1}
    assert stored(server, profile_of("a", time_nanos=EPOCH + ord("a")))["id"] == ids[0]
    assert merged(server) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    "id_",
    ["x", "-", "merge2", "+", "x+", "AAAA", "A" * 54, "A" * 5000, "%00", "%FF", "é", "a b", "="],
)
def test_what_is_no_id_is_not_found(shared: Server, id_: str) -> None:
    assert_error(get(shared, f"{PROFILES}/{id_}"), 404)


def test_another_spelling_of_an_id_is_none(shared: Server) -> None:
    id_ = stored(shared, profile_of("a"))["id"]
    for other in (f"{id_}=", f"{id_}A", id_[:-1], f"{id_[:9]}!{id_[9:]}", id_.swapcase()):
        assert_error(get(shared, f"{PROFILES}/{other}"), 404, "nothing found")


@given(
    st.sampled_from(TYPES),
    st.lists(
        st.tuples(st.text("ab /=,%é", min_size=1).filter(str.strip), st.text("x/", min_size=1)), max_size=2
    ),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.binary(min_size=32, max_size=32),
)
def test_an_id_reads_back(type_: str, pairs: list[tuple[str, str]], time_nanos: int, digest: bytes) -> None:
    labels = tuple(sorted({key.strip(): value for key, value in pairs}.items()))
    name = BlobName(Series("demo", type_, labels), Identity(time_nanos, digest.hex()))
    assert parse_profile_id(profile_id(name)) == name
    assert re.fullmatch(r"[A-Za-z0-9_-]+", profile_id(name))


@given(st.text() | st.text("ABCZabcz019-_=", min_size=50))
def test_any_other_text_is_no_id(text: str) -> None:
    try:
        assert profile_id(parse_profile_id(text)) == text
    except NoSuchProfile as error:
        assert str(error) == "nothing found"  # noqa: PT017 - most texts are none, and some may be one
