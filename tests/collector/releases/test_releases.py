"""Releases: pipelines get the same profile until a bound or a person changes it."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pprof_merge
import pytest
from pprof_merge.analysis.edge_overlap import overlap
from pprof_merge.formats import FORMATS

from tests.collector.edits import edited
from tests.collector.own_service import OwnService
from tests.collector.releases_seen import (
    OTHER_PROGRAM,
    SOON,
    VERSION_1,
    VERSION_2,
    listed,
    merge_of,
    number_in,
    state,
    submit_all,
)
from tests.faults.stacks import profile_of, tally
from tests.server import Server, bearer


@pytest.fixture
def eager(stopped: Server) -> Server:
    """Start a collector that compares on each request, and releases every merge that differs."""
    stopped.environment |= SOON | {"PGOF_RELEASE_DAYS": "0"}
    stopped.start()
    return stopped


@pytest.fixture
def drifting(stopped: Server) -> Server:
    """Start a collector that compares on each request."""
    stopped.environment |= SOON
    stopped.start()
    return stopped


def test_nothing_stored_is_404_and_makes_no_release(own: OwnService) -> None:
    for answer in (own.release(), own.releases(method="POST")):
        assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
        assert answer.json()["detail"] == "no stored profile matches the selection"
    assert own.release(method="HEAD").status_code == 404
    assert listed(own) == []


def test_the_first_release_is_the_merge(server: Server) -> None:
    submit_all(server, VERSION_1)
    merge, release = server.merge(), server.release()
    assert release.status_code == 200
    assert release.content == merge.content
    assert release.headers["ETag"] == merge.headers["ETag"]
    assert release.headers["PGO-Release"] == "1"
    assert release.headers["Content-Type"] == "application/octet-stream"
    assert release.headers["Cache-Control"] == "private, no-cache"
    assert release.headers["Content-Disposition"] == 'attachment; filename="default.pb.gz"'
    (known,) = listed(server)
    one = server.releases("/1").json()
    assert one == known | {"report": one["report"]}
    assert known.pop("time")[:2] == "20"
    assert known == {
        "number": 1,
        "current": True,
        "pinned": False,
        "reason": "first",
        "replaces": None,
        "overlap": None,
        "etag": merge.headers["ETag"].strip('"'),
        "digest": hashlib.sha256(pprof_merge.inflate(merge.content)).hexdigest(),
        "sha256": hashlib.sha256(merge.content).hexdigest(),
        "size": len(merge.content),
        "samples": len(merge_of(VERSION_1).samples),
        "left_out": 0,
        "summary": {"verdict": "used", "profiles": len(VERSION_1), "outliers": 0},
    }
    reported = server.client.get("/v1/report", headers=bearer(server.merge_key)).json()
    # There was no release to compare with before this one.
    assert one["report"] == {**reported, "times": one["report"]["times"], "against": None}
    assert reported["against"] == {"overlap": 1.0, "moved": []}


def test_it_stays_the_same_while_the_merge_drifts_within_the_bound(drifting: Server) -> None:
    submit_all(drifting, VERSION_1)
    first = drifting.release()
    submit_all(drifting, [edited(VERSION_1[0], lambda parsed: setattr(parsed, "time_nanos", 1))])
    assert drifting.merge().content != first.content
    again = drifting.release()
    assert (again.content, again.headers["ETag"]) == (first.content, first.headers["ETag"])
    drifting.restart()
    assert drifting.release().content == first.content
    assert state(drifting) == ([1], 1, False)


@pytest.mark.parametrize("others", [VERSION_2, OTHER_PROGRAM], ids=["version", "program"])
def test_a_drift_beyond_the_bound_makes_a_new_one(stopped: Server, others: list[bytes]) -> None:
    alike = overlap(merge_of(VERSION_1), merge_of(VERSION_1 + others))
    stopped.environment |= SOON | {"PGOF_RELEASE_OVERLAP": str(alike + 0.001)}
    stopped.start()
    submit_all(stopped, VERSION_1)
    first = stopped.release()
    submit_all(stopped, others)
    second = stopped.release()
    assert second.content == stopped.merge().content != first.content
    assert second.headers["PGO-Release"] == "2"
    new = listed(stopped)[0]
    assert (new["reason"], new["replaces"]) == ("drift", 1)
    assert new["overlap"] == pytest.approx(alike)
    assert stopped.release().content == second.content
    assert state(stopped) == ([2, 1], 2, False)


def test_a_drift_to_just_above_the_bound_does_not(stopped: Server) -> None:
    alike = overlap(merge_of(VERSION_1), merge_of(VERSION_1 + VERSION_2))
    stopped.environment |= SOON | {"PGOF_RELEASE_OVERLAP": str(alike - 0.001)}
    stopped.start()
    submit_all(stopped, VERSION_1)
    stopped.release()
    submit_all(stopped, VERSION_2)
    assert number_in(stopped) == 1


def test_one_that_is_too_old_is_replaced_once_the_merge_is_another(stopped: Server) -> None:
    stopped.environment |= SOON | {"PGOF_RELEASE_OVERLAP": "0", "PGOF_RELEASE_DAYS": "1"}
    stopped.start()
    stopped.submit(profile_of("a"))
    first = stopped.release()
    stopped.submit(profile_of("b"))
    assert number_in(stopped) == 1
    stopped.kill()
    # Every release has reached this age.
    stopped.environment["PGOF_RELEASE_DAYS"] = str(1e-9)
    stopped.start()
    second = stopped.release()
    assert (second.headers["PGO-Release"], tally(second.content)) == ("2", {"a": 1, "b": 1})
    assert listed(stopped)[0]["reason"] == "age"
    assert number_in(stopped) == 2
    assert first.content != second.content


def test_the_merge_is_looked_at_no_more_often_than_asked_for(stopped: Server) -> None:
    stopped.environment |= {"PGOF_RELEASE_CHECK_SECONDS": "3600", "PGOF_RELEASE_DAYS": "0"}
    stopped.start()
    for name in "ab":
        stopped.submit(profile_of(name))
        assert number_in(stopped) == 1
    assert len(stopped.events("merge made")) == 1
    assert stopped.releases(method="POST").status_code == 201
    assert number_in(stopped) == 2


def test_a_merge_is_compared_once(drifting: Server) -> None:
    submit_all(drifting, VERSION_1)
    for _ in "12":
        drifting.release()
    submit_all(drifting, [edited(VERSION_1[0], lambda parsed: setattr(parsed, "time_nanos", 1))])
    for _ in "123":
        drifting.release()
    drifting.wait_for_log("request", len(VERSION_1) + 6)
    (compared,) = drifting.events("release compared")
    assert compared["release"] == 1
    assert 0.85 < compared["overlap"] < 1


def test_pipelines_that_ask_at_once_get_the_same(eager: Server) -> None:
    submit_all(eager, VERSION_1)
    for number in (1, 2):
        with ThreadPoolExecutor(8) as pipelines:
            answers = list(pipelines.map(lambda _: eager.release(), range(8)))
        assert {answer.headers["PGO-Release"] for answer in answers} == {str(number)}
        assert len({answer.content for answer in answers}) == 1
        submit_all(eager, VERSION_2)
    assert state(eager)[0] == [2, 1]


def test_head_has_the_headers_of_get_and_no_body(own: OwnService) -> None:
    own.submit(profile_of("a"))
    head, get = own.release(method="HEAD"), own.release()
    assert head.content == b""
    for answer in (head, get):
        del answer.headers["Date"]
    assert head.headers == get.headers


def test_who_has_it_gets_304(own: OwnService) -> None:
    own.submit(profile_of("a"))
    etag = own.release().headers["ETag"]
    for number in (None, 1):
        answer = own.release(number, If_None_Match=etag)
        assert (answer.status_code, answer.content) == (304, b"")
        assert (answer.headers["ETag"], answer.headers["PGO-Release"]) == (etag, "1")


def test_a_release_on_request_is_made_if_the_merge_has_changed(server: Server) -> None:
    server.submit(profile_of("a"))
    made = server.releases(method="POST")
    assert (made.status_code, made.headers["Location"]) == (201, "/v1/releases/1")
    assert made.json() == server.releases("/1").json()
    again = server.releases(method="POST")
    assert (again.status_code, again.json()) == (200, made.json())
    server.submit(profile_of("b"))
    assert server.releases(method="POST").status_code == 201
    assert [(release["number"], release["reason"]) for release in listed(server)] == [
        (2, "request"),
        (1, "request"),
    ]
    assert tally(server.release().content) == {"a": 1, "b": 1}
    assert tally(server.release(1).content) == {"a": 1}
    assert server.release(1).headers["Content-Disposition"] == 'attachment; filename="default-1.pb.gz"'


def test_a_rollback_stays_until_it_is_unpinned(eager: Server) -> None:
    for name in "ab":
        eager.submit(profile_of(name))
        eager.release()
    pinned = eager.releases("/1/pin", "PUT")
    assert (pinned.status_code, pinned.json()["pinned"]) == (200, True)
    assert eager.releases("/1/pin", "PUT").json() == pinned.json()
    eager.submit(profile_of("c"))
    assert tally(eager.release().content) == {"a": 1}
    eager.restart()
    assert tally(eager.release().content) == {"a": 1}
    assert state(eager) == ([2, 1], 1, True)
    made = eager.releases(method="POST")
    assert (made.status_code, made.json()["current"]) == (201, False)
    assert state(eager) == ([3, 2, 1], 1, True)
    assert eager.releases("/2/pin", "DELETE").status_code == 200
    assert state(eager) == ([3, 2, 1], 1, True)
    for _ in "12":
        unpinned = eager.releases("/1/pin", "DELETE")
        assert (unpinned.json()["current"], unpinned.json()["pinned"]) == (True, False)
    assert state(eager) == ([3, 2, 1], 1, False)
    # The merge differs from release 1, and is release 3 already.
    assert number_in(eager) == 3
    assert state(eager) == ([3, 2, 1], 3, False)


def test_after_a_rollback_only_a_bound_brings_another(drifting: Server) -> None:
    for name in "ab":
        drifting.submit(profile_of(name))
        drifting.releases(method="POST")
    drifting.releases("/1/pin", "PUT")
    drifting.releases("/1/pin", "DELETE")
    assert number_in(drifting) == 1  # to Go's compiler, all profiles without a call are alike
    drifting.restart()
    assert number_in(drifting) == 1


def test_old_ones_go_but_never_the_current_one(stopped: Server) -> None:
    stopped.environment["PGOF_RELEASES_KEPT"] = "2"
    stopped.start()
    for name in "abc":
        stopped.submit(profile_of(name))
        stopped.releases(method="POST")
    assert state(stopped) == ([3, 2], 3, False)
    stopped.release(2, format_="folded")
    stopped.releases("/2/pin", "PUT")
    for name in "de":
        stopped.submit(profile_of(name))
        stopped.releases(method="POST")
    assert state(stopped) == ([5, 4, 2], 2, True)
    stopped.releases("/5/pin", "PUT")
    stopped.submit(profile_of("f"))
    stopped.releases(method="POST")
    assert state(stopped) == ([6, 5], 5, True)
    files = {path.name for path in (stopped.area("releases") / "default" / "cpu").iterdir()}
    assert files == {"6.pb.gz", "6.json", "5.pb.gz", "5.json", "choice.json"}
    assert stopped.release(2).status_code == 404


@pytest.mark.parametrize("number", ["0", "2", "01", "x", "-1", "9" * 30, "1.5", "%31%00"])
def test_a_number_that_is_none_is_404(shared: Server, number: str) -> None:
    shared.submit(profile_of("a"))
    shared.release()
    for path, method in (("", "GET"), ("/profile", "GET"), ("/pin", "PUT"), ("/pin", "DELETE")):
        answer = shared.releases(f"/{number}{path}", method)
        assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert state(shared) == ([1], 1, False)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/release", {"GET", "HEAD"}),
        ("/v1/releases", {"GET", "HEAD", "POST"}),
        ("/v1/releases/1", {"GET", "HEAD"}),
        ("/v1/releases/1/profile", {"GET", "HEAD"}),
        ("/v1/releases/1/pin", {"PUT", "DELETE"}),
    ],
)
def test_all_take_a_merge_key_and_their_methods(shared: Server, path: str, methods: set[str]) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        for key in ("wrong", Server.submit_key):
            answer = shared.client.request(method, path, headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == (403 if method in methods else 405)


def test_formats_are_of_the_release_and_kept_with_it(server: Server) -> None:
    submit_all(server, VERSION_1)
    server.release()
    submit_all(server, VERSION_2)
    for name in ("folded", "json"):
        expected = FORMATS[name].write(merge_of(VERSION_1))
        for _ in "12":
            answer = server.release(format_=name)
            assert answer.content == expected
            assert answer.headers["ETag"] == f'"{hashlib.sha256(expected).hexdigest()}-{name}"'
            assert answer.headers["Content-Type"] == FORMATS[name].media_type
    assert len(server.events("release converted")) == 2
    server.restart()
    assert server.release(1, format_="folded").content == FORMATS["folded"].write(merge_of(VERSION_1))
    assert not server.events("release converted")
    assert server.release(format_="svg").status_code == 400
    (kept,) = server.area("releases").rglob("1.*-folded")
    kept.write_bytes(b"damaged")
    assert server.release(1, format_="folded").content == FORMATS["folded"].write(merge_of(VERSION_1))


def test_what_the_format_cannot_do_without_is_said(own: OwnService) -> None:
    def without_lines(parsed: Any) -> None:
        for location in parsed.location:
            del location.line[:]

    own.submit(edited(profile_of("a"), without_lines))
    assert own.release(format_="llvm").status_code == 422
    assert own.release().status_code == 200


def test_without_a_catalog_all_is_as_before(eager: Server) -> None:
    for name in "abc":
        eager.submit(profile_of(name))
        eager.release()
    eager.releases("/2/pin", "PUT")
    before, bytes_before = listed(eager), eager.release().content
    eager.kill()
    eager.reindex()
    eager.start()
    assert listed(eager) == before
    assert eager.release().content == bytes_before
    eager.releases("/2/pin", "DELETE")
    assert number_in(eager) == 3


def test_one_that_lacks_blobs_says_of_how_many(own: OwnService) -> None:
    for name in "ab":
        own.submit(profile_of(name))
    own.blobs()[0].write_bytes(b"")
    own.forget_decoded()
    own.release()
    assert listed(own)[0]["left_out"] == 1


def test_the_log_says_which_release_was_given_and_made(server: Server) -> None:
    server.submit(profile_of("a"))
    etag = server.release().headers["ETag"].strip('"')
    made = server.wait_for_log("release made")
    assert (made["release"], made["reason"], made["overlap"]) == (1, "first", None)
    line = server.wait_for_log("request", 2)
    assert (line["release"], line["profile"]) == (1, etag)
