"""profefe's known faults, by number, which this collector must not have; and errors that pass."""

from __future__ import annotations

import asyncio
import gzip
import resource
import socket
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from pgo_collector.errors import BodyTooSlow, NotStored, Refusal, WorkerLost
from pgo_collector.http import problems
from pgo_collector.routes.protocols import DIALECTS

from tests.collector.profefe import (
    MERGE,
    PROFILES,
    WHOLE_RANGE,
    assert_error,
    get,
    listed,
    merged,
    post,
    stored,
)
from tests.faults.stacks import EPOCH, SECOND, profile_of, tally
from tests.server import Server, bearer


def test_fault_1_labels_find_what_came_out_of_time_order(server: Server) -> None:
    for number in reversed(range(20)):
        profile = profile_of(f"{number}", time_nanos=EPOCH + number * SECOND)
        stored(server, profile, labels=f"a={number % 2}")
    for parity in (0, 1):
        found = listed(server, labels=f"a={parity}", **WHOLE_RANGE)
        assert [profile["created_at"] for profile in found] == [
            f"2023-11-14T22:13:{20 + number}Z" for number in range(parity, 20, 2)
        ]
        expected = {f"{number}": 1 for number in range(parity, 20, 2)}
        assert merged(server, labels=f"a={parity}", **WHOLE_RANGE) == expected


def test_fault_2_a_merge_covers_all_that_match(server: Server) -> None:
    expected = {f"{number}": 1 for number in range(230)}
    for number, stack in enumerate(expected):
        stored(server, profile_of(stack, time_nanos=EPOCH + number * SECOND))
    assert merged(server) == merged(server, **WHOLE_RANGE) == expected
    assert len(listed(server)) == 230


def test_fault_2_a_merge_says_what_it_left_out(server: Server) -> None:
    for stack in ("a", "b"):
        stored(server, profile_of(stack, time_nanos=EPOCH + ord(stack)))
    server.blobs()[0].write_bytes(b"damaged")
    server.forget_decoded()
    answer = get(server, MERGE, service="demo", type="cpu")
    assert tally(answer.content) == {"b": 1}
    assert server.blobs()[0].name in answer.headers["PGO-Left-Out"]


def test_fault_4_there_are_keys_and_limits(shared: Server) -> None:
    for key in ("none", shared.merge_key):
        answer = shared.client.post(
            f"{PROFILES}?service=demo&type=cpu", content=profile_of("a"), headers=bearer(key)
        )
        why = "no key" if key == "none" else "a merge key"
        assert_error(answer, 403, why)
    for path in (PROFILES, MERGE, f"{PROFILES}/x", "/api/0/services", "/api/0/version"):
        assert_error(shared.client.get(path, headers=bearer(shared.submit_key)), 403, "a submit key")
    assert_error(post(shared, gzip.compress(bytes(64 << 20))), 413, "too large")
    assert_error(post(shared, bytes(9 << 20)), 413, "larger than")


def test_fault_4_a_key_is_for_the_services_of_its_scope(server: Server) -> None:
    for file in (server.submit_keys, server.merge_keys):
        file.write_text(f"{file.name} service=pay-*\n{server.submit_key}\n{server.merge_key}\n")
    server.wait_for_log("keys read", 2)
    ids = {}
    for service in ("pay-eu", "shop"):
        ids[service] = stored(server, profile_of("a"), service=service)["id"]
    submit, read = bearer("submit_keys"), bearer("merge_keys")
    for service, status in (("pay-eu", 200), ("shop", 403)):
        query = f"?service={service}&type=cpu"
        answers = [server.client.post(f"{PROFILES}{query}", content=profile_of("a"), headers=submit)]
        paths = (query, f"/merge{query}", f"/{ids[service]}", f"/{ids['pay-eu']}+{ids[service]}")
        answers += [server.client.get(f"{PROFILES}{path}", headers=read) for path in paths]
        assert [answer.status_code for answer in answers] == [status] * 5
        if status == 403:
            for answer in answers:
                assert_error(answer, 403, "isn't for service 'shop'")
    assert server.client.get("/api/0/services", headers=read).json()["body"] == ["pay-eu"]
    assert get(server, "/api/0/services").json()["body"] == ["pay-eu", "shop"]
    assert server.client.get("/api/0/version", headers=read).status_code == 200


def test_fault_5_what_is_sent_again_is_stored_once(server: Server) -> None:
    first = stored(server, profile_of("a"), labels="version=1")
    assert stored(server, profile_of("a"), labels="version=1") == first
    assert stored(server, gzip.decompress(profile_of("a")), labels="version=1") == first
    assert len(listed(server)) == len(server.blobs()) == 1
    other = {
        "content": stored(server, profile_of("b"), labels="version=1"),
        "labels": stored(server, profile_of("a"), labels="version=2"),
        "service": stored(server, profile_of("a"), labels="version=1", service="other"),
        "type": stored(server, profile_of("a"), labels="version=1", type="other"),
        "time": stored(server, profile_of("a", time_nanos=EPOCH + 1), labels="version=1"),
    }
    assert len({first["id"], *(profile["id"] for profile in other.values())}) == 6
    assert merged(server, labels="version=1") == {"a": 2, "b": 1}
    timeless = profile_of("c", time_nanos=0)
    at = {"created_at": "2023-11-15T00:00:00"}
    assert stored(server, timeless, **at) == stored(server, timeless, **at) == stored(server, timeless)


@pytest.mark.parametrize("type_", ["cpuu", "unknown", "trace", "CPU"])
def test_fault_6_an_unknown_type_is_refused(shared: Server, type_: str) -> None:
    stored(shared, profile_of("a"))
    for path in (PROFILES, MERGE):
        answer = get(shared, path, service="demo", type=type_, **WHOLE_RANGE)
        assert_error(answer, 400, "give one of cpu, heap")
    assert_error(post(shared, profile_of("a"), type=type_), 400, "give one of cpu, heap")


@pytest.fixture
def impatient(stopped: Server) -> Server:
    stopped.environment["PGOF_BODY_TIMEOUT"] = "0.5"
    stopped.start()
    return stopped


@pytest.mark.folder
def test_a_full_disk_is_temporary(server: Server) -> None:
    """A limit on the size of files stands for a full disk."""
    stored(server, profile_of("a"))
    unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    answer = post(server, profile_of("b"))
    assert_error(answer, 503, "could not be stored")
    assert int(answer.headers["Retry-After"]) > 0
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
    stored(server, profile_of("b"))
    assert merged(server) == {"a": 1, "b": 1}


def test_a_slow_body_is_temporary(impatient: Server) -> None:
    address = urlsplit(impatient.base_url)
    request = (
        f"POST {PROFILES}?service=demo&type=cpu HTTP/1.1\r\nHost: collector\r\nContent-Length: 100\r\n"
        f"Authorization: Bearer {impatient.submit_key}\r\n\r\nx"
    )
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=60) as connection:
        connection.sendall(request.encode())
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: " in answer.lower()


@pytest.mark.parametrize("kind", [WorkerLost, NotStored, BodyTooSlow])
def test_what_is_temporary_is_503_and_says_when_to_come_again(kind: type[Refusal]) -> None:
    app = FastAPI()
    problems.install_error_handlers(app, DIALECTS, lambda _service, _scope: None)

    @app.get(PROFILES)
    async def refuse() -> None:
        raise kind("trouble")

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return await client.get(PROFILES)

    answer = asyncio.run(ask())
    assert_error(answer, 503, "trouble")
    assert int(answer.headers["Retry-After"]) > 0
