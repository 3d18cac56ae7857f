"""/v1/traces: each key reads the traces of its services, in all forms, within bounds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_collector.traces.forms import FORMS
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.signing import new_origin, sign
from pgo_collector.traces.spans import Span, new_id
from pgo_collector.traces.trace_store import FILE, TraceStore

from tests.collector.tracing import KEY, kept, signed, tracing, wait_until_counted
from tests.faults.stacks import profile_of
from tests.server import Server, bearer

pytestmark = pytest.mark.any_store

KEYS = """\
key-of-any
key-of-shop service=shop
key-of-pays service=pay-*,till
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = tracing(tmp_path_factory.mktemp("routes"))
    server.merge_keys.write_text(KEYS)
    with server:
        yield server


@pytest.fixture(scope="module")
def traces(server: Server) -> dict[str, str]:
    """Return the id of a kept trace for each service; the empty one is about none."""
    found = {}
    for service in ("shop", "pay-eu", "till", ""):
        found[service], headers = signed()
        if service:
            _submit(server, service, headers)
        else:
            assert server.client.get("/healthz", headers=headers).status_code == 200
    for trace in found.values():
        kept(server, trace)
    return found


def _submit(server: Server, service: str, headers: dict[str, str]) -> None:
    answer = server.client.post(
        "/v1/submit",
        params={"service": service},
        content=profile_of(service),
        headers=bearer(server.submit_key) | headers,
    )
    assert answer.status_code == 204, answer.text


def _listed(server: Server, key: str = "key-of-any", **query: str) -> list[str]:
    answer = server.ask("/v1/traces", key=key, **{"limit": "1000", **query})
    assert answer.status_code == 200, answer.text
    return [each["trace"] for each in answer.json()["traces"]]


@pytest.mark.parametrize(
    ("key", "services"),
    [
        ("key-of-any", {"shop", "pay-eu", "till", ""}),
        ("key-of-shop", {"shop"}),
        ("key-of-pays", {"pay-eu", "till"}),
    ],
)
def test_a_key_reads_the_traces_of_its_services(
    server: Server, traces: dict[str, str], key: str, services: set[str]
) -> None:
    listed = _listed(server, key)
    assert {service for service, trace in traces.items() if trace in listed} == services
    for service, trace in traces.items():
        answer = server.ask(f"/v1/traces/{trace}", key=key)
        assert answer.status_code == (200 if service in services else 404)
        if service:
            status = server.ask("/v1/traces", key=key, service=service).status_code
            assert status == (200 if service in services else 403)
    assert server.ask("/v1/traces", key=key, service="*").status_code == (200 if "" in services else 403)


def test_a_trace_of_several_requests_has_those_of_the_key(server: Server) -> None:
    trace = new_origin().trace
    before = time.time()
    for service in ("shop", "till", "till"):
        _submit(server, service, sign(KEY.encode(), trace, new_id(), int(before)))
    names = {"key-of-any": 3, "key-of-shop": 1, "key-of-pays": 2}
    wait_until_counted(server, "traces_total", 3, outcome="kept", outlet="store")
    deadline = time.monotonic() + 120
    while _listed(server).count(trace) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for key, count in names.items():
        text = server.ask(f"/v1/traces/{trace}", key=key, form="text").text
        assert text.count("POST /v1/submit") == count


def test_each_form_is_answered_as_the_command_prints_it(server: Server, traces: dict[str, str]) -> None:
    trace = traces["shop"]
    requests = [kept(server, trace)]
    for name, form in FORMS.items():
        answer = server.ask(f"/v1/traces/{trace.upper()}", key="key-of-shop", form=name)
        assert answer.text == form.write(trace, requests)
        assert answer.headers["Content-Type"].startswith(form.media_type)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    (default,) = json.loads(server.ask(f"/v1/traces/{trace}", key="key-of-shop").text)["resourceSpans"]
    assert default["scopeSpans"]


def test_the_list_is_narrowed_down(server: Server, traces: dict[str, str]) -> None:
    failed, headers = signed()
    assert server.merge(key="key-of-any", query={"service": "nobody"}, **headers).status_code == 404
    kept(server, failed)
    assert failed in _listed(server, errors="true")
    assert traces["shop"] not in _listed(server, errors="true")
    assert {traces["shop"]} <= {*_listed(server, service="shop")}
    assert traces["till"] not in _listed(server, service="shop")
    assert _listed(server, to="2020-01-01") == []
    assert traces["shop"] in _listed(server, last="1d")
    assert len(_listed(server, limit="1")) == 1
    for order, name in (("slowest", "duration_nanos"), ("newest", "time")):
        rows = server.ask("/v1/traces", key="key-of-any", order=order).json()["traces"]
        values = [row[name] for row in rows]
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "1001"},
        {"order": "oldest"},
        {"errors": "yes"},
        {"from": "2026-01-02", "to": "2026-01-01"},
        {"service": "sh[o]p"},
        {"service": "pay-*"},
        {"servce": "shop"},
    ],
)
def test_wrong_parameters_are_refused(server: Server, query: dict[str, str]) -> None:
    answer = server.ask("/v1/traces", key="key-of-any", **query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")


@pytest.mark.parametrize("trace", ["0" * 32, "a", "x" * 32, "..%2f", "%00", "é"])
def test_an_unknown_trace_is_404(server: Server, traces: dict[str, str], trace: str) -> None:
    answer = server.ask(f"/v1/traces/{trace}", key="key-of-any")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert traces


def test_who_has_no_merge_key_reads_nothing(server: Server, traces: dict[str, str]) -> None:
    for path in ("/v1/traces", f"/v1/traces/{traces['shop']}"):
        for headers in ({}, bearer(KEY), bearer(server.submit_key)):
            assert server.client.get(path, headers=headers).status_code == 403


def test_a_trace_beyond_the_budget_is_refused(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_MAX_OUTPUT_BYTES": "1000000"}) as server:
        assert server.ask("/v1/traces").json() == {"traces": []}
        store, start = TraceStore(server.data / FILE, 7, 64), time.time_ns()
        for number, trace in enumerate(("a" * 32, "b" * 32, "b" * 32)):
            spans = [Span(new_id(), "", "http", "GET /", start, start + 1, {}) for _ in range(400)]
            store.write([RequestTrace(trace, f"shop-{number}", 200, spans)])
        store.close()
        assert server.ask(f"/v1/traces/{'a' * 32}").status_code == 200
        answer = server.ask(f"/v1/traces/{'b' * 32}")
        assert answer.status_code == 422
        assert "PGOF_MAX_OUTPUT_BYTES" in answer.json()["detail"]


def test_a_damaged_store_is_503(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        (server.data / FILE).write_bytes(b"no database" * 1000)
        for path in ("/v1/traces", f"/v1/traces/{'a' * 32}"):
            answer = server.ask(path)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
            assert str(server.data) not in answer.text
