"""Merges in other formats: what is sent, what is stored, and what a failure leaves behind."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pprof_merge
import pytest
from pprof_merge.formats import FORMATS
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.collector.own_service import OwnService
from tests.faults.stacks import profile_of, tally
from tests.server import Server

pytestmark = pytest.mark.any_store

PEOPLES = ("folded", "speedscope", "json")


def expected(name: str, profiles: list[bytes]) -> bytes:
    return FORMATS[name].write(pprof_merge.merge(map(pprof_merge.decode, profiles)))


def kept(server: Server) -> list[Path]:
    return sorted((server.data / "merged").iterdir())


def formats_made(server: Server) -> list[str]:
    return [line["format"] for line in server.events("merge made")]


def test_every_format_is_the_engines(server: Server, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        server.submit(profile)
    etags = {server.merge().headers["ETag"]}
    for name in PEOPLES:
        get, post = server.merge(format_=name), server.merge("POST", format_=name)
        assert get.status_code == post.status_code == 200
        assert get.content == post.content == expected(name, go_profiles)
        assert get.headers["Content-Type"] == FORMATS[name].media_type
        assert get.headers["Content-Disposition"] == f'attachment; filename="default{FORMATS[name].suffix}"'
        assert get.headers["Cache-Control"] == "private, no-cache"
        assert "Content-Encoding" not in get.headers
        assert get.headers["ETag"] == f'"{hashlib.sha256(get.content).hexdigest()}-{name}"'
        etags.add(get.headers["ETag"])
    assert len(etags) == 4
    server.wait_for_log("merge made", 4)
    assert formats_made(server) == ["pprof", *PEOPLES]


def test_pprof_is_the_merge_itself(shared: Server) -> None:
    shared.submit(profile_of("a"))
    plain, named = shared.merge(), shared.merge(format_="pprof")
    assert named.content == plain.content
    assert named.headers["ETag"] == plain.headers["ETag"]
    assert plain.headers["Content-Type"] == "application/octet-stream"
    assert plain.headers["Content-Disposition"] == 'attachment; filename="default.pb.gz"'


def test_head_has_the_headers_of_get_and_no_body(shared: Server) -> None:
    shared.submit(profile_of("a"))
    head, get = shared.merge("HEAD", format_="json"), shared.merge(format_="json")
    assert head.content == b""
    for answer in (head, get):
        del answer.headers["Date"]
    assert head.headers == get.headers


def test_a_client_that_has_a_format_gets_304_for_that_one_alone(shared: Server) -> None:
    shared.submit(profile_of("a"))
    etag = shared.merge(format_="folded").headers["ETag"]
    answer = shared.merge(format_="folded", If_None_Match=etag)
    assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", etag)
    for name in ("pprof", "json"):
        assert shared.merge(format_=name, If_None_Match=etag).status_code == 200
    assert shared.merge("POST", format_="folded", If_None_Match=etag).status_code == 200


@pytest.mark.parametrize("name", ["svg", "", "PPROF", "x" * 1000])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_format_that_is_none_is_400_and_names_those_there_are(
    shared: Server, method: str, name: str
) -> None:
    shared.submit(profile_of("a"))
    shared.submit(profile_of("b"))
    blobs = shared.blobs()
    answer = shared.merge(format_=name) if method == "GET" else shared.combine(format_=name)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    detail = answer.json()["detail"]
    assert detail.startswith(f"unknown format {name[:50]!r}; give one of pprof, ")
    assert all(known in detail for known in FORMATS)
    assert shared.blobs() == blobs


def test_a_stranger_is_not_told_the_formats(shared: Server) -> None:
    assert shared.merge(key="wrong", format_="svg").status_code == 403


def test_nothing_stored_is_404_in_any_format(own: OwnService) -> None:
    assert own.merge(format_="json").status_code == 404


def test_an_unchanged_merge_is_not_made_again(server: Server) -> None:
    for name in ("a", "b"):
        server.submit(profile_of(name))
    first = server.merge(format_="folded")
    files = kept(server)
    assert len(files) == 1
    server.merge(format_="folded")
    server.submit(profile_of("a"))  # it is stored already
    assert server.merge("POST", format_="folded").content == first.content
    server.restart()
    again = server.merge(format_="folded")
    assert (again.content, again.headers["ETag"]) == (first.content, first.headers["ETag"])
    assert not formats_made(server)
    assert kept(server) == files
    assert server.combine(format_="folded").content == first.content


def test_a_format_changes_with_the_merge(server: Server) -> None:
    server.submit(profile_of("a"))
    before = {name: server.merge(format_=name) for name in PEOPLES}
    assert len(kept(server)) == 3
    server.submit(profile_of("b"))
    after = server.merge(format_="folded")
    assert after.headers["ETag"] != before["folded"].headers["ETag"]
    assert after.content == b"a 10000000\nb 10000000\n"


def test_a_lost_file_is_made_again(server: Server) -> None:
    server.submit(profile_of("a"))
    before = server.merge(format_="folded")
    for path in (server.data / "merged").iterdir():
        path.unlink()
    after = server.merge(format_="folded")
    assert (after.content, after.headers["ETag"]) == (before.content, before.headers["ETag"])
    assert server.merge().status_code == 200


@pytest.mark.parametrize("damage", [b"", b"not gzip", profile_of("somebody else's")])
def test_a_damaged_merge_is_made_anew(server: Server, damage: bytes) -> None:
    server.submit(profile_of("a"))
    server.merge()
    (file,) = kept(server)
    file.write_bytes(damage)
    assert server.merge(format_="folded").content == b"a 10000000\n"
    assert tally(server.merge().content) == {"a": 1}
    server.wait_for_log("kept merge damaged")


def test_what_a_crash_leaves_in_merged_is_swept(server: Server) -> None:
    server.submit(profile_of("a"))
    content = server.merge(format_="folded").content
    files = kept(server)
    files[0].with_name(f"{'0' * 64}.merge").write_bytes(b"without a record")
    server.restart()
    assert kept(server) == files
    assert server.merge(format_="folded").content == content
    assert not server.events("unknown file ignored")


def test_a_combine_stores_the_merge_and_answers_in_the_format(own: OwnService) -> None:
    for name in ("a", "b"):
        own.submit(profile_of(name))
    merge = own.merge().content
    answer = own.combine(format_="json")
    assert answer.status_code == 200
    flat = {row["name"]: row["flat"] for row in answer.json()["functions"]}
    assert flat == {"a": [1, 10_000_000], "b": [1, 10_000_000]}
    (blob,) = own.blobs()
    assert own.merge().content == merge
    assert blob.read_bytes().startswith(merge)  # its seal comes after that


def test_all_who_wait_share_one_merge(own: OwnService, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        own.submit(profile)
    names = [*PEOPLES, *PEOPLES]
    with ThreadPoolExecutor(6) as clients:
        answers = dict(
            zip(names, clients.map(lambda name: own.merge(format_=name).content, names), strict=True)
        )
    assert {name: len(content) for name, content in answers.items()} == {
        name: len(expected(name, go_profiles)) for name in PEOPLES
    }
    own.wait_for_log("request", 6)
    assert sorted(formats_made(own)) == sorted(PEOPLES)


def test_what_is_left_out_is_named_in_any_format(own: OwnService) -> None:
    for name in ("a", "b"):
        own.submit(profile_of(name))
    blob = own.blobs()[0]
    blob.write_bytes(b"")
    own.forget_decoded()
    answer = own.merge(format_="json")
    assert blob.name in answer.headers["PGO-Left-Out"]
    assert len(json.loads(answer.content)["functions"]) == 1


def without_lines(parsed: Profile) -> None:
    for location in parsed.location:
        del location.line[:]


def test_what_the_format_cannot_do_without_is_said(server: Server) -> None:
    for stack in ("a", "b"):
        assert server.submit(edited(profile_of(stack), without_lines)).status_code == 204
    for answer in (server.merge(format_="llvm"), server.combine(format_="llvm")):
        assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
        assert answer.json()["detail"] == "format=llvm: it has no source lines, so LLVM can't use it"
    assert len(server.blobs()) == 1, "the documentation says that it is combined all the same"
    assert not kept(server)
    assert server.merge(format_="folded").content == b"[service] 20000000\n"
