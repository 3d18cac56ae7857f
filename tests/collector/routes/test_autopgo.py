"""autopgo's API: it stores, merges, lists and deletes CPU profiles, and refuses invalid requests."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import pytest

from tests.collector.pushing import without_start_lines
from tests.faults.stacks import DAY, EPOCH, profile_of, tally
from tests.server import Server, bearer

PROFILES = "/api/profile"
BOTH = "a-key-of-both"


@pytest.fixture
def keyed(tmp_path: Path) -> Server:
    """Return a server, not started, that takes BOTH as a submit key and as a merge key."""
    server = Server(tmp_path)
    for file, own in ((server.submit_keys, Server.submit_key), (server.merge_keys, Server.merge_key)):
        file.write_text(f"{own}\n{BOTH}\n")
    return server


def post(server: Server, app: str, profile: bytes, key: str = Server.submit_key) -> httpx.Response:
    return server.client.post(f"{PROFILES}/{app}", content=profile, headers=bearer(key))


def delete(server: Server, app: str, key: str = BOTH) -> httpx.Response:
    return server.client.delete(f"{PROFILES}/{app}", headers=bearer(key))


def refused(answer: httpx.Response, status: int) -> str:
    """Check that an answer is an error of autopgo, and return its message."""
    assert answer.status_code == status, answer.text
    error = answer.json()
    assert error.keys() == {"message", "code"}
    assert error["code"] == status
    return str(error["message"])


@pytest.mark.parametrize("is_bare", [False, True], ids=["gzip", "bare"])
def test_a_profile_is_stored_once_and_merged(shared: Server, *, is_bare: bool) -> None:
    app = f"app-{is_bare}"
    profile = profile_of("a")
    for _ in range(2):
        answer = post(shared, app, gzip.decompress(profile) if is_bare else profile)
        assert (answer.status_code, answer.json()) == (201, {"key": f"{app}/staging/{EPOCH}"})
    answer = shared.ask(f"{PROFILES}/{app}")
    assert answer.status_code == 200
    assert tally(answer.content) == {"a": 1}
    assert answer.content == shared.merge(query={"service": app}).content


def test_services_with_cpu_profiles_are_listed(server: Server) -> None:
    assert server.ask(PROFILES).json() == {"profiles": []}
    for app, days in (("shop", 1), ("shop", 2), ("mail", 0)):
        assert post(server, app, profile_of("a", time_nanos=EPOCH + days * DAY)).status_code == 201
    server.submit(profile_of("a"), query={"service": "other", "type": "wall"})
    entries = server.ask(PROFILES).json()["profiles"]
    assert [(each["key"], each["lastModified"]) for each in entries] == [
        ("mail", "2023-11-14T22:13:20Z"),
        ("shop", "2023-11-16T22:13:20Z"),
    ]
    assert all(each["size"] > 0 for each in entries)


def test_deleted_profiles_are_gone_and_others_stay(keyed: Server) -> None:
    with keyed as server:
        for app, stack in (("shop", "a"), ("shop", "b"), ("mail", "c")):
            assert post(server, app, profile_of(stack)).status_code == 201
        server.submit(profile_of("d"), query={"service": "shop", "type": "wall"})
        assert tally(server.merge(query={"service": "shop"}).content) == {"a": 1, "b": 1}
        answer = delete(server, "shop")
        assert (answer.status_code, answer.json()) == (200, {})
        assert "no stored profile" in refused(server.ask(f"{PROFILES}/shop"), 404)
        assert "no stored profile" in refused(delete(server, "shop"), 404)
        assert len(server.blobs()) == 2
        assert tally(server.merge(query={"service": "mail"}).content) == {"c": 1}
        assert server.merge(query={"service": "shop", "type": "wall"}).status_code == 200
        assert post(server, "shop", profile_of("a")).status_code == 201
        assert tally(server.ask(f"{PROFILES}/shop").content) == {"a": 1}
        server.stop()
        server.start()
        assert tally(server.ask(f"{PROFILES}/shop").content) == {"a": 1}
        assert not server.events("unexpected error")


def test_combined_profiles_are_deleted_too(keyed: Server) -> None:
    with keyed as server:
        for stack in "ab":
            assert post(server, "shop", profile_of(stack)).status_code == 201
        assert server.combine(query={"service": "shop"}).status_code == 200
        assert delete(server, "shop").status_code == 200
        assert server.merge(query={"service": "shop"}).status_code == 404
        assert not server.blobs()


@pytest.mark.parametrize("key", [Server.submit_key, Server.merge_key, "wrong"])
def test_deleting_takes_a_key_of_both(shared: Server, key: str) -> None:
    assert post(shared, "kept", profile_of("a")).status_code == 201
    refused(delete(shared, "kept", key), 403)
    assert tally(shared.ask(f"{PROFILES}/kept").content) == {"a": 1}


@pytest.mark.parametrize("narrow", ["submit", "merge"])
def test_a_key_deletes_only_in_the_services_of_both_files(keyed: Server, narrow: str) -> None:
    file = keyed.submit_keys if narrow == "submit" else keyed.merge_keys
    file.write_text(f"{Server.submit_key}\n{Server.merge_key}\n{BOTH} name=team service=mail\n")
    with keyed as server:
        for app in ("shop", "mail"):
            assert post(server, app, profile_of("a")).status_code == 201
        assert "isn't for service 'shop'" in refused(delete(server, "shop"), 403)
        assert delete(server, "mail").status_code == 200
        assert len(server.blobs()) == 1


def test_keys_are_those_of_other_routes(shared: Server) -> None:
    refused(post(shared, "app", profile_of("a"), Server.merge_key), 403)
    refused(shared.ask(PROFILES, key=Server.submit_key), 403)
    refused(shared.ask(f"{PROFILES}/app", key="wrong"), 403)


def test_a_key_lists_its_services(stopped: Server) -> None:
    stopped.merge_keys.write_text(f"{Server.merge_key} name=team service=shop\n")
    stopped.start()
    for app in ("shop", "mail"):
        assert post(stopped, app, profile_of("a")).status_code == 201
    assert [each["key"] for each in stopped.ask(PROFILES).json()["profiles"]] == ["shop"]
    refused(stopped.ask(f"{PROFILES}/mail"), 403)


def test_a_list_has_the_budget_of_an_answer(stopped: Server) -> None:
    stopped.environment["PGOF_MAX_OUTPUT_BYTES"] = "1000"
    stopped.start()
    for number in range(8):
        assert post(stopped, f"app-{number}", profile_of("a")).status_code == 201
    assert len(stopped.ask(PROFILES).json()["profiles"]) == 8
    for number in range(8):
        assert post(stopped, f"{number}" * 100, profile_of("a")).status_code == 201
    answer = stopped.ask(PROFILES)
    assert "PGOF_MAX_OUTPUT_BYTES" in refused(answer, answer.status_code)
    assert 400 <= answer.status_code < 500


def test_routes_may_be_open(stopped: Server) -> None:
    stopped.environment["PGOF_AUTOPGO_OPEN"] = "true"
    stopped.start()
    for method, status in (("POST", 201), ("GET", 200), ("DELETE", 200), ("GET", 404)):
        answer = stopped.client.request(method, f"{PROFILES}/app", content=profile_of("a"))
        assert answer.status_code == status
    assert stopped.client.get(PROFILES).json() == {"profiles": []}
    assert stopped.client.get("/v1/merge").status_code == 403


@pytest.mark.parametrize("app", ["-a", "a%20b", "a%00", "x" * 201, ".a"])
def test_names_that_no_service_has_are_refused(shared: Server, app: str) -> None:
    assert "invalid app name" in refused(post(shared, app, profile_of("a")), 400)


@pytest.mark.parametrize(
    "body",
    [b"", b"hello", gzip.compress(b"hello"), profile_of("a", type_="wall")],
    ids=["empty", "text", "gzip", "wall"],
)
def test_what_is_no_cpu_profile_is_refused(shared: Server, body: bytes) -> None:
    answer = post(shared, "bad", body)
    assert 400 <= answer.status_code < 500
    refused(answer, answer.status_code)


def test_profiles_without_start_lines_are_cpu_profiles_as_by_submit(shared: Server) -> None:
    profile = without_start_lines(profile_of("a"))
    assert post(shared, "lineless", profile).status_code == 201
    shared.submit(profile, query={"service": "submitted-lineless"})
    assert (
        shared.ask(f"{PROFILES}/lineless").content
        == shared.merge(query={"service": "submitted-lineless"}).content
    )


@pytest.mark.parametrize("path", ["/api/health", "/api/ready"])
def test_health_says_which_parts_work(shared: Server, path: str) -> None:
    answer = shared.client.get(path)
    assert answer.status_code == 200
    state = answer.json()
    assert state["status"] == "healthy"
    assert {"name": "catalog", "status": "healthy"} in state["dependencies"]


def test_a_bomb_is_refused_by_the_limits_of_submits(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_MAX_INFLATED_BYTES": str(1 << 20)}) as server:
        answer = post(server, "bomb", gzip.compress(bytes(40 << 20)))
        assert "PGOF_MAX_INFLATED_BYTES" in refused(answer, 413)
        assert not server.blobs()
