"""Keys with a scope: the requests that they allow, and the service that a request is about."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.faults.stacks import profile_of, tally
from tests.server import Server, bearer, fingerprint

LINES = """\
key-of-any
key-of-star service=*
key-of-shop name=shop-ci service=shop
key-of-pays service=pay-*,till
"""
ROUTES = [
    "/v1/merge",
    "/v1/report",
    "/v1/release",
    "/v1/releases",
    "/v1/releases/1",
    "/v1/releases/1/profile",
]


def with_scopes(server: Server) -> Server:
    """Return a collector whose default service is `pay-eu`, with the same keys for all routes."""
    for file in (server.submit_keys, server.merge_keys):
        file.write_text(LINES)
    server.environment["PGOF_DEFAULT_SERVICE"] = "pay-eu"
    return server


@pytest.fixture
def scoped(stopped: Server) -> Server:
    """Start a collector of one's own."""
    with_scopes(stopped).start()
    return stopped


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a running collector for tests that store nothing in it."""
    with with_scopes(Server(tmp_path_factory.mktemp("scoped"))) as server:
        yield server


def test_a_key_is_for_the_services_of_its_scope(scoped: Server) -> None:
    def statuses(query: str) -> list[int]:
        keys = ("any", "star", "shop", "pays")
        every = [bearer(f"key-of-{key}") for key in keys]
        path = f"/v1/submit?{query}"
        return [scoped.client.post(path, content=profile_of("a"), headers=key).status_code for key in every]

    assert statuses("") == [204, 204, 204, 204]
    assert statuses("service=") == [204, 204, 204, 204]
    assert statuses("service=shop") == [204, 204, 204, 403]
    assert statuses("service=pay-eu") == [204, 204, 403, 204]
    assert statuses("service=till") == [204, 204, 403, 204]
    assert statuses("service=till&service=shop") == [400, 400, 400, 400]
    assert statuses("service=Shop") == [204, 204, 403, 403]
    assert statuses("service=pay-/../shop") == [400, 400, 403, 400]
    assert statuses("service=*")[2:] == [403, 403]


def test_who_names_no_service_means_that_of_the_key_or_the_default(scoped: Server) -> None:
    for function, key in (("a", "any"), ("b", "star"), ("c", "shop"), ("d", "pays")):
        assert scoped.submit(profile_of(function), f"key-of-{key}").status_code == 204
    default, shop = {"a": 1, "b": 1, "d": 1}, {"c": 1}
    for path in ("/v1/merge", "/v1/release", "/v1/releases/1/profile"):
        for key, query, expected in (
            ("any", "", default),
            ("pays", "", default),
            ("any", "?service=pay-eu", default),
            ("any", "?service=shop", shop),
            ("shop", "", shop),
            ("shop", "?service=shop", shop),
        ):
            answer = scoped.client.get(f"{path}{query}", headers=bearer(f"key-of-{key}"))
            assert (path, key, tally(answer.content)) == (path, key, expected)


@pytest.mark.parametrize("path", ROUTES)
def test_a_key_of_another_service_is_refused_on_every_route(empty: Server, path: str) -> None:
    assert empty.client.get(path, headers=bearer("key-of-pays")).status_code in {200, 404}
    answer = empty.client.get(path, params={"service": "pay-eu"}, headers=bearer("key-of-shop"))
    assert (answer.status_code, answer.headers["Content-Type"]) == (403, "application/problem+json")
    assert answer.json()["detail"] == "this key, shop-ci, isn't for service 'pay-eu'"


def test_the_default_service_has_to_be_in_the_scope_too(stopped: Server) -> None:
    stopped.submit_keys.write_text("a-key service=pay-*\n")
    stopped.start()
    answer = stopped.submit(profile_of("a"), "a-key")
    assert answer.status_code == 403
    assert answer.json()["detail"] == f"this key, {fingerprint('a-key')}, isn't for service 'default'"


def test_the_access_log_has_the_name_beside_the_fingerprint(scoped: Server) -> None:
    for key in ("key-of-any", "key-of-shop"):
        scoped.submit(profile_of("a"), key)
    scoped.client.post("/v1/submit?service=till", headers=bearer("key-of-shop"))
    scoped.stop()
    assert [(line["status"], line["key"], line.get("key_name")) for line in scoped.events("request")] == [
        (204, fingerprint("key-of-any"), None),
        (204, fingerprint("key-of-shop"), "shop-ci"),
        (403, fingerprint("key-of-shop"), "shop-ci"),
    ]


def test_a_key_of_another_service_is_refused_before_the_body_is_read(empty: Server) -> None:
    address = urlsplit(empty.base_url)
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=60) as connection:
        connection.sendall(
            b"POST /v1/submit?service=till HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
            b"Authorization: Bearer key-of-shop\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 403 ")


def test_the_scope_of_a_key_changes_with_its_line(scoped: Server) -> None:
    scoped.submit_keys.write_text("key-of-shop service=till\n")
    scoped.wait_for_log("keys read")
    for service, status in (("shop", 403), ("till", 204)):
        path = f"/v1/submit?service={service}"
        answer = scoped.client.post(path, content=profile_of("a"), headers=bearer("key-of-shop"))
        assert answer.status_code == status


@pytest.mark.parametrize(
    "path", ["/v1/top", "/v1/profiles", "/v1/series?function=f", "/v1/diff?base_labels=a=1"]
)
def test_questions_about_all_services_are_for_keys_of_all(empty: Server, path: str) -> None:
    for key, status in {
        "key-of-any": 404,
        "key-of-star": 404,
        "key-of-shop": 403,
        "key-of-pays": 403,
    }.items():
        bare, _, query = path.partition("?")
        answer = empty.ask(bare, key=key, service="*", **dict(parse_qsl(query)))
        assert answer.status_code == (200 if (bare, status) == ("/v1/profiles", 404) else status)


def test_a_base_of_another_service_is_for_keys_of_both(empty: Server) -> None:
    for key, service, base, status in (
        ("key-of-any", "shop", "till", 404),
        ("key-of-shop", "shop", "till", 403),
        ("key-of-pays", "pay-eu", "till", 404),
        ("key-of-pays", "pay-eu", "shop", 403),
    ):
        answer = empty.ask("/v1/diff", key=key, service=service, base_service=base)
        assert answer.status_code == status


def test_services_are_those_of_the_key(scoped: Server) -> None:
    for service in ("shop", "till"):
        assert scoped.submit(profile_of("a"), "key-of-any", {"service": service}).status_code == 204

    def names(key: str, **query: str) -> list[str]:
        return [each["service"] for each in scoped.ask("/v1/services", key=key, **query).json()["services"]]

    assert names("key-of-any") == names("key-of-star") == ["shop", "till"]
    assert names("key-of-shop") == ["shop"]
    assert names("key-of-pays", service="till") == names("key-of-any", service="till") == ["till"]
    assert scoped.ask("/v1/services", key="key-of-pays").status_code == 403
    assert scoped.ask("/v1/services", key="key-of-shop", service="*").status_code == 403
