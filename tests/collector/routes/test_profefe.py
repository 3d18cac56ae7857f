"""profefe's API: it stores, lists and merges profiles, and refuses invalid requests."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime

import pytest

from tests.collector.edits import edited
from tests.collector.profefe import MERGE, PROFILES, TYPES, assert_error, get, listed, merged, post, stored
from tests.faults.stacks import DAY, EPOCH, SECOND, profile_of, tally
from tests.server import Server, bearer


def test_a_profile_is_described(shared: Server) -> None:
    labels = "version=1.4,region=eu+west%2F1, note =a%3Db%2Cc,nothing="
    profile = stored(shared, profile_of("a"), service="described", labels=labels)
    assert profile == {
        "id": profile["id"],
        "type": "cpu",
        "service": "described",
        "labels": [
            {"key": "note", "value": "a=b,c"},
            {"key": "region", "value": "eu west/1"},
            {"key": "version", "value": "1.4"},
        ],
        "created_at": "2023-11-14T22:13:20Z",
    }
    assert re.fullmatch(r"[A-Za-z0-9_-]+", profile["id"])
    for wanted in ("", "region=eu+west%2F1", ",version=1.4", "note=a%3Db%2Cc,version=1.4", labels):
        assert listed(shared, service="described", labels=wanted) == [profile]
    for other in ("version=1", "version=1.4,region=us", "version!=1", "version=1.4|2"):
        assert listed(shared, service="described", labels=other) == []


def test_every_type_of_profefe_is_taken_and_listed(server: Server) -> None:
    for number, type_ in enumerate(TYPES):
        stored(server, profile_of("a", time_nanos=EPOCH - number * DAY, type_=type_), type=type_)
    assert [profile["type"] for profile in listed(server)] == TYPES[::-1]
    assert [profile["type"] for profile in listed(server, limit="3")] == TYPES[2::-1]
    for type_ in TYPES:
        assert [profile["type"] for profile in listed(server, type=type_)] == [type_]
        assert merged(server, type=type_) == {"a": 1}


def test_the_time_is_the_profile_s_own_or_created_at(shared: Server) -> None:
    query = {"service": "times", "created_at": "2022-02-02T02:02:02"}
    assert stored(shared, profile_of("a"), **query)["created_at"] == "2023-11-14T22:13:20Z"
    timeless = stored(shared, profile_of("a", time_nanos=0), **query)
    assert timeless["created_at"] == "2022-02-02T02:02:02Z"
    assert listed(shared, service="times", to="2022-12-31T00:00:00") == [timeless]
    early = stored(shared, profile_of("a", time_nanos=-1), service="times")
    assert early["created_at"] == "1969-12-31T23:59:59Z"


@pytest.mark.parametrize(
    ("begin", "end", "stacks"),
    [
        ("2023-11-14T22:13:20", "2023-11-14T22:13:22", "abc"),  # both belong to it
        ("2023-11-14T22:13:21", "2023-11-14T22:13:21", "b"),
        ("2023-11-14T22:13:21Z", "2023-11-14T23:13:21+01:00", "b"),
        ("2023-11-14T22:13:21", "", "bc"),
        ("", "2023-11-14T22:13:21", "ab"),
        ("2023-11-14T22:13:23", "", ""),
        ("2023-11-14T22:13:20.000000001Z", "2023-11-14T22:13:21.999999999Z", "b"),
        ("1677-09-21T00:12:43.145224192Z", "2262-04-11T23:47:16.854775807Z", "abc"),
    ],
)
def test_times_select(shared: Server, begin: str, end: str, stacks: str) -> None:
    for number, stack in enumerate("abc"):
        stored(shared, profile_of(stack, time_nanos=EPOCH + number * SECOND), service="range")
    query = {"service": "range", "from": begin, "to": end}
    assert len(listed(shared, **query)) == len(stacks)
    if stacks:
        assert merged(shared, **query) == dict.fromkeys(stacks, 1)
    else:
        assert_error(get(shared, MERGE, type="cpu", **query), 404, "nothing found")


def test_the_last_days(shared: Server) -> None:
    now = time.time_ns()
    for stack, days in (("a", 3), ("b", 1)):
        stored(shared, profile_of(stack, time_nanos=now - days * DAY), service="lately")
    until = datetime.fromtimestamp((now - 2 * DAY) // SECOND, UTC).isoformat()
    assert merged(shared, service="lately", last="2d") == {"b": 1}
    assert merged(shared, service="lately", last="4d") == {"a": 1, "b": 1}
    assert len(listed(shared, service="lately", last="36h", to=until)) == 1
    assert_error(get(shared, MERGE, service="lately", type="cpu", last="1h"), 404, "nothing found")


def test_a_limit_takes_the_newest(shared: Server) -> None:
    for number, stack in enumerate("cab"):
        stored(shared, profile_of(stack, time_nanos=EPOCH + number * SECOND), service="limited")
    every = listed(shared, service="limited")
    limits = ("1", "b"), ("+2", "ab"), ("3", "cab"), ("1000000000", "cab"), ("0", "cab"), ("-1", "cab")
    for limit, stacks in limits:
        assert listed(shared, service="limited", limit=limit) == every[-len(stacks) :]
        assert merged(shared, service="limited", limit=limit) == dict.fromkeys(stacks, 1)
    before = {"service": "limited", "to": "2023-11-14T22:13:21", "limit": "1"}
    assert listed(shared, **before) == [every[1]]
    assert merged(shared, **before) == {"a": 1}


def test_a_label_may_lack_its_equals_sign(shared: Server) -> None:
    plain = stored(shared, profile_of("a", time_nanos=EPOCH), service="bare", labels="region")
    assert "labels" not in plain
    other = stored(shared, profile_of("b"), service="bare", labels="region=eu,=nothing, =,zone")
    assert other["labels"] == [{"key": "region", "value": "eu"}]
    for labels in ("region", "region=", "zone,region"):
        assert listed(shared, service="bare", labels=labels) == [plain]
        assert merged(shared, service="bare", labels=labels) == {"a": 1}
    assert listed(shared, service="bare", labels="zone,=x") == [plain, other]
    share = stored(shared, profile_of("c"), service="share", labels="share=100%")
    assert share["labels"] == [{"key": "share", "value": "100%"}]
    assert listed(shared, service="share", labels="share=100%25") == [share]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"service": ""}, "service is missing"),
        ({"service": "a/b"}, "a name has up to"),
        ({"labels": "a=1,a=2"}, "two values"),
        ({"from": "yesterday"}, "not a time"),
        ({"from": "2023-01-02T00:00:00", "to": "2023-01-01T00:00:00"}, "after to"),
        ({"to": "9999-12-31T23:59:59"}, "give a time from"),
        ({"last": "7"}, "not a length of time"),
        ({"last": "7d", "from": "2023-01-02T00:00:00"}, "not both"),
        ({"limit": "1.5"}, "not a whole number"),
        ({"limit": "all"}, "not a whole number"),
    ],
)
def test_what_cant_be_understood_is_refused(shared: Server, query: dict[str, str], words: str) -> None:
    for path in (PROFILES, MERGE):
        assert_error(get(shared, path, **{"service": "demo", "type": "cpu", **query}), 400, words)


def test_a_type_is_needed_to_store_and_to_merge(shared: Server) -> None:
    assert_error(post(shared, profile_of("a"), type=""), 400, "type is missing")
    assert_error(get(shared, MERGE, service="demo"), 400, "type is missing")
    assert_error(post(shared, profile_of("a"), created_at="now"), 400, "created_at=now: not a time")


def test_what_is_no_profile_is_refused(shared: Server) -> None:
    assert_error(post(shared, b"hello"), 400, "not a profile")
    assert_error(post(shared, b""), 400, "empty")
    assert_error(post(shared, profile_of("a", type_="wall")), 400)
    assert_error(post(shared, b"heap profile: 1: 2 [3: 4] @ heap/1"), 400, "go tool pprof -proto")


def test_a_profile_without_samples_is_refused(shared: Server) -> None:
    for type_ in ("heap", "cpu"):
        empty = edited(profile_of("a", type_=type_), lambda parsed: parsed.ClearField("sample"))
        assert_error(post(shared, empty, service="empty", type=type_), 400, "no samples")
    assert listed(shared, service="empty") == []
    stored(shared, profile_of("a"), service="empty")
    assert shared.submit(empty, query={"service": "empty"}).status_code == 204


def test_a_merge_is_that_of_v1(shared: Server, go_profiles: list[bytes]) -> None:
    for profile in go_profiles:
        stored(shared, profile, service="merged")
    answer = get(shared, MERGE, service="merged", type="cpu")
    assert answer.content == shared.merge(query={"service": "merged"}).content
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="pprof.pb.gz"'
    ids = "+".join(profile["id"] for profile in listed(shared, service="merged"))
    assert get(shared, f"{PROFILES}/{ids}").content == answer.content
    assert get(shared, f"{PROFILES}/{ids.replace('+', '%2B')}").content == answer.content


def test_rules_play_no_part(stopped: Server) -> None:
    rules = stopped.home / "rules"
    rules.mkdir()
    (rules / "demo.rules").write_text("drop a\n")
    stopped.environment["PGOF_RULES_DIR"] = str(rules)
    stopped.start()
    stored(stopped, profile_of("a"))
    assert tally(stopped.merge(query={"service": "demo"}).content) == {}
    assert merged(stopped) == {"a": 1}


def test_services_are_listed(server: Server) -> None:
    assert_error(get(server, "/api/0/services"), 404, "nothing found")
    for service in ("b", "a", "b"):
        stored(server, profile_of("x"), service=service)
    assert get(server, "/api/0/services").json() == {"code": 200, "body": ["a", "b"]}
    assert get(server, "/api/0/services", "HEAD").status_code == 200


def test_there_is_a_version(shared: Server) -> None:
    answer = get(shared, "/api/0/version")
    assert {*answer.json()["body"]} >= {"version", "commit", "build_time"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", answer.json()["body"]["version"])
    assert get(shared, "/api/0/version", "HEAD").status_code == 200


OTHER_PATHS = ["/api/0/", "/api/0/nothing", "/api/0/services/", "/api/0/version/", f"{PROFILES}/a/b"]


@pytest.mark.parametrize("path", OTHER_PATHS)
def test_other_paths_are_not_found(shared: Server, path: str) -> None:
    assert_error(get(shared, path), 404, "nothing found")


def test_paths_of_profiles_may_end_in_a_slash(shared: Server) -> None:
    query = {"service": "slashes", "type": "cpu"}
    posted = shared.client.post(
        f"{PROFILES}/", content=profile_of("a"), params=query, headers=bearer(shared.submit_key)
    )
    profile = posted.json()["body"]
    assert get(shared, f"{PROFILES}/", **query).json()["body"] == [profile]
    for path in (f"{MERGE}/", f"{PROFILES}/{profile['id']}/"):
        assert tally(get(shared, path, **query).content) == {"a": 1}
        assert get(shared, path, "HEAD", **query).status_code == 200
    assert shared.client.get(f"{PROFILES}/", params=query).status_code == 403
    assert shared.client.post(f"{PROFILES}/", params=query).status_code == 403


def test_an_answer_is_a_line(shared: Server) -> None:
    for path, status in (("/api/0/version", 200), (f"{PROFILES}/x", 404)):
        answer = get(shared, path)
        assert (answer.status_code, answer.text.count("\n"), answer.text[-1]) == (status, 1, "\n")


@pytest.mark.parametrize("path", [PROFILES, MERGE, "/api/0/services", "/api/0/version"])
def test_other_methods_are_not_allowed(shared: Server, path: str) -> None:
    assert_error(get(shared, path, "DELETE"), 405, "Method Not Allowed")


def test_open_routes_need_no_key(stopped: Server) -> None:
    stopped.environment["PGOF_PROFEFE_OPEN"] = "true"
    stopped.start()
    answer = stopped.client.post(f"{PROFILES}?service=demo&type=cpu", content=profile_of("a"))
    id_ = answer.json()["body"]["id"]
    for path in (f"{PROFILES}?service=demo", f"{MERGE}?service=demo&type=cpu", f"{PROFILES}/{id_}"):
        assert stopped.client.get(path).status_code == 200
    for path in ("/api/0/services", "/api/0/version"):
        assert stopped.client.get(path, headers=bearer("any")).status_code == 200
    assert stopped.client.get("/v1/merge?service=demo").status_code == 403
    assert stopped.client.post("/v1/submit", content=profile_of("b")).status_code == 403


def test_the_body_of_a_list_is_json_whatever_is_in_it(shared: Server) -> None:
    labels = {"quote": '"', "backslash": "\\", "umlaut": "ü", "emoji": "🦀"}
    text = ",".join(f"{key}={value}" for key, value in labels.items())
    stored(shared, profile_of("a"), service="json", labels=text)
    (profile,) = json.loads(get(shared, PROFILES, service="json").content)["body"]
    assert {label["key"]: label["value"] for label in profile["labels"]} == labels


def test_the_store_is_that_of_v1(server: Server) -> None:
    stored(server, profile_of("a"), service="default", labels="version=1")
    assert server.submit(profile_of("a"), query={"labels": "version=1"}).status_code == 204
    assert len(server.blobs()) == 1
    assert tally(server.merge(query={"labels": "version=1"}).content) == {"a": 1}
