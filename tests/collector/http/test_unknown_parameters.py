"""Unknown parameters on /v1 are refused, since a misspelled selection would select everything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.faults.stacks import profile_of, tally
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

ALL = {
    "focus",
    "hide",
    "ignore",
    "latency_from",
    "latency_to",
    "service",
    "type",
    "labels",
    "profile_id",
    "trace_id",
    "span_id",
    "from",
    "to",
    "last",
    "format",
    "binary",
    "weight",
    "half_life",
    "weights",
    "trim_path",
    "sample_labels",
    "symbolize",
    "and_combine",
}


def refused(answer: httpx.Response) -> str:
    """Return the detail of a refusal."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    return str(answer.json()["detail"])


def requests(server: Server) -> Iterator[tuple[str, str, dict[str, str], list[dict[str, Any]]]]:
    """Return the method, path, key and parameters of every route on /v1."""
    for path, methods in server.client.get("/v1/openapi.json").json()["paths"].items():
        for method, entry in methods.items():
            is_submit = path in {"/v1/submit", "/v1/symbols"} or (method, path) in {
                ("post", "/v1/binaries"),
                ("get", "/v1/binaries/{build_id}"),
            }
            key = server.submit_key if is_submit else server.merge_key
            parameters = [of for of in entry.get("parameters", []) if of["in"] == "query"]
            if path.startswith("/v1/"):
                yield (
                    method.upper(),
                    path.replace("{number}", "1").replace("{build_id}", "a1"),
                    bearer(key),
                    parameters,
                )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("label", "labels"), ("lables", "labels"), ("LABELS", "labels"), ("svc", "service"),
        ("Service", "service"), ("formt", "format"), ("half-life", "half_life"), ("combine", "and_combine"),
    ],
)  # fmt: skip
def test_what_may_be_meant_is_said(shared: Server, name: str, meant: str) -> None:
    detail = refused(shared.merge(query={name: "x"}))
    assert repr(name) in detail
    assert f"did you mean {meant!r}?" in detail


@pytest.mark.parametrize("name", ["version", "", "x" * 5000, "\n\u2028<>", "é"])
def test_if_nothing_is_near_all_are_named(shared: Server, name: str) -> None:
    detail = refused(shared.merge(query={name: "1.4", "service": "shop"}))
    assert detail.startswith(f"unknown parameter {name[:50]!r}; this route takes ")
    assert {*detail.partition("this route takes ")[2].split(", ")} == ALL


def test_a_misspelled_selection_selects_nothing(server: Server) -> None:
    for version in ("1.4", "1.5"):
        answer = server.submit(profile_of(version), query={"labels": f"version={version}"})
        assert answer.status_code == 204
    assert tally(server.merge(query={"labels": "version=1.4"}).content) == {"1.4": 1}
    for method in ("GET", "POST"):
        refused(server.merge(method, query={"label": "version=1.4"}))
    assert server.merge("HEAD", query={"label": "version=1.4"}).status_code == 400
    refused(server.combine(query={"label": "version=1.4"}))
    assert len(server.blobs()) == 2


def test_every_route_refuses_what_it_does_not_declare(shared: Server) -> None:
    seen = set()
    for method, path, headers, _ in requests(shared):
        detail = refused(shared.client.request(method, path, params={"nonsense": ""}, headers=headers))
        assert detail.startswith("unknown parameter 'nonsense'"), path
        seen.add(path)
    assert len(seen) > 10


def test_every_route_refuses_a_second_value_where_only_one_counts(shared: Server) -> None:
    several = set()
    for method, path, headers, parameters in requests(shared):
        for parameter in parameters:
            name = parameter["name"]
            answer = shared.client.request(method, path, params={name: ["a", "a"]}, headers=headers)
            if parameter["schema"]["type"] == "array":
                several.add(name)
                assert "give it once" not in answer.text
            else:
                assert refused(answer) == f"{name}: give it once, not 2 times"
    assert several == {"labels", "base_labels", "service", "profile_id", "trace_id", "span_id"}


def test_labels_may_be_given_several_times(server: Server) -> None:
    query = {"labels": ["region=eu", "version=1"]}
    headers = bearer(Server.submit_key)
    assert server.client.post("/v1/submit", params=query, headers=headers, content=profile_of("a")).is_success
    assert server.submit(profile_of("b"), query={"labels": "region=eu"}).status_code == 204
    merged = server.client.get("/v1/merge", params=query, headers=bearer(Server.merge_key))
    assert tally(merged.content) == {"a": 1}


def test_a_submit_is_refused_before_its_body_is_read(server: Server) -> None:
    address = urlsplit(server.base_url)
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=60) as connection:
        head = f"Host: x\r\nAuthorization: Bearer {server.submit_key}\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(f"POST /v1/submit?label=version=1.4 HTTP/1.1\r\n{head}".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert "labels" in refused(server.submit(profile_of("a"), query={"label": "version=1.4"}))
    assert server.blobs() == []
    assert server.merge().status_code == 404


def test_the_key_is_checked_before_and_its_scope_after(server: Server) -> None:
    assert server.merge(key="wrong", query={"label": "a"}).status_code == 403
    assert server.submit(b"", key="wrong", query={"label": "a"}).status_code == 403
    server.merge_keys.write_text("scoped name=ci service=shop,mail\n")
    server.restart()
    assert server.merge(key="scoped").status_code == 403
    assert "did you mean 'service'?" in refused(server.merge(key="scoped", query={"servise": "shop"}))


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/ui/sign-in"])
def test_other_routes_pass_over_it(shared: Server, path: str) -> None:
    assert shared.client.get(f"{path}?label=a&label=b").status_code == 200


def test_profefe_passes_over_it(shared: Server) -> None:
    query = "service=passing&service=x&type=cpu&type=heap&cluster=eu"
    headers = bearer(Server.submit_key)
    submitted = shared.client.post(f"/api/0/profiles?{query}", content=profile_of("a"), headers=headers)
    assert submitted.status_code == 200
    for path in ("/api/0/profiles", "/api/0/profiles/merge", "/api/0/services", "/api/0/version"):
        assert shared.client.get(f"{path}?{query}", headers=bearer(Server.merge_key)).status_code == 200
    assert shared.merge(query={"service": "passing"}).status_code == 200
    assert shared.merge(query={"service": "x"}).status_code == 404


def test_metrics_pass_over_it(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_METRICS_OPEN": "true"}) as server:
        assert server.client.get("/metrics?label=a&label=b").status_code == 200
