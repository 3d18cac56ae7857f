from __future__ import annotations

import socket
import subprocess
from urllib.parse import urlsplit

import httpx
import pytest

from tests.faults.stacks import profile_of
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"]


def assert_problem(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["type"]) == (status, "about:blank")
    assert problem["title"]
    assert problem["detail"]


@pytest.mark.parametrize("method", METHODS)
def test_health_answers_any_method_without_a_key(shared: Server, method: str) -> None:
    answer = shared.client.request(method, "/healthz")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert answer.content == (b"" if method == "HEAD" else b"OK")


@pytest.mark.parametrize("method", sorted({*METHODS} - {"POST", "HEAD"}))
def test_the_method_is_checked_before_the_key(shared: Server, method: str) -> None:
    answer = shared.client.request(method, "/v1/submit")
    assert_problem(answer, 405)
    assert answer.headers["Allow"] == "POST"


@pytest.mark.parametrize("method", sorted({*METHODS} - {"POST", "GET", "HEAD"}))
def test_merge_allows_post_get_and_head(shared: Server, method: str) -> None:
    answer = shared.client.request(method, "/v1/merge")
    assert_problem(answer, 405)
    assert {*answer.headers["Allow"].split(", ")} == {"POST", "GET", "HEAD"}


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/0/profiles", "GET, HEAD, POST"),
        ("/api/0/profiles/merge", "GET, HEAD"),
        ("/api/0/profiles/an-id", "GET, HEAD"),
        ("/v1/report", "GET, HEAD, POST"),
        ("/v1/releases", "GET, HEAD, POST"),
        ("/v1/releases/1", "GET, HEAD"),
        ("/v1/releases/1/pin", "DELETE, PUT"),
    ],
)
def test_all_methods_of_a_path_are_allowed(shared: Server, path: str, methods: str) -> None:
    answer = shared.client.patch(path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, methods)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("headers", [{}, bearer(Server.merge_key)], ids=["without key", "with key"])
def test_a_combine_needs_post(shared: Server, method: str, headers: dict[str, str]) -> None:
    answer = shared.client.request(method, "/v1/merge?and_combine=true", headers=headers)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/v1", "/v1/submit/", "/v1/merge/", "/healthz/", "/docs", "/openapi.json"])
def test_paths_are_exact(shared: Server, path: str) -> None:
    assert_problem(shared.client.post(path, headers=bearer(Server.submit_key)), 404)


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer wrong",
        f"Basic {Server.submit_key}",
        "Basic bm86bm8=",
        Server.submit_key,
    ],
)
@pytest.mark.parametrize("path", ["/v1/submit", "/v1/merge"])
def test_without_a_right_key_it_is_403(shared: Server, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    assert_problem(shared.client.post(path, content=profile_of("a"), headers=headers), 403)


def test_keys_of_one_route_are_refused_on_the_other(shared: Server) -> None:
    assert shared.submit(profile_of("a"), Server.merge_key).status_code == 403
    assert shared.merge(key=Server.submit_key).status_code == 403


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_of_any_case(shared: Server, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {Server.submit_key}"}
    answer = shared.client.post("/v1/submit", content=profile_of("a"), headers=headers)
    assert answer.status_code == 204


def test_a_wrong_key_is_refused_before_the_body_is_read(shared: Server) -> None:
    address = urlsplit(shared.base_url)
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=60) as connection:
        connection.sendall(
            b"POST /v1/submit HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nAuthorization: Bearer no\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 403 ")


def test_curl_submits_as_pgo_fleet_documents_it(shared: Server, go_profiles: list[bytes]) -> None:
    key = f"Authorization: Bearer {Server.submit_key}"
    command = [
        "curl",
        "-sS",
        "-w",
        "%{http_code}",
        "-H",
        key,
        "--data-binary",
        "@-",
        f"{shared.base_url}/v1/submit",
    ]
    answers = [
        subprocess.run([*command, *options], input=go_profiles[0], capture_output=True, check=True).stdout
        for options in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"])
    ]
    assert answers == [b"204"] * 3


def test_the_server_does_not_say_what_it_runs_on(shared: Server) -> None:
    assert "Server" not in shared.client.get("/healthz").headers
