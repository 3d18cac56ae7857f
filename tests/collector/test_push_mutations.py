"""Mutated requests of Pyroscope's clients: each is stored or refused, and never the server's fault."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.collector.pushing import JSON, PUSH, as_json, form, ingest, push, push_request
from tests.faults.stacks import profile_of
from tests.oracle.mutation import INTERESTING_BYTES, PROFILE, mutate_bytes, mutate_fields
from tests.server import Server, bearer

_PUSH_SCHEMA = {1: {1: {}, 2: {1: PROFILE}}}
_REQUEST = push_request(
    (
        {"__name__": "process_cpu", "service_name": "mutants", "region": "eu"},
        [gzip.decompress(profile_of("a")), gzip.decompress(profile_of("b"))],
    ),
    (
        {"__name__": "memory", "service_name": "mutants", "__delta__": "false"},
        [gzip.decompress(profile_of("c"))],
    ),
)
_MESSAGE = _REQUEST.SerializeToString()
_FORM, _FORM_TYPE = form(
    profile=gzip.decompress(profile_of("a")), sample_type_config=b'{"cpu": {"units": "x"}}'
)
_QUERY = "name=mutants{region=eu,zone=1}&from=1700000000&format=pprof&spyName=gospy"


def _protobuf(server: Server, random: Random) -> httpx.Response:
    if random.randrange(2):
        mutant = mutate_fields(random, _MESSAGE, _PUSH_SCHEMA)
    else:
        mutant = mutate_bytes(random, _MESSAGE)
    if random.randrange(4):
        return push(server, mutant)
    packed = mutate_bytes(random, gzip.compress(mutant)) if random.randrange(2) else gzip.compress(mutant)
    return push(server, packed, Content_Encoding="gzip")


def _json(server: Server, random: Random) -> httpx.Response:
    if random.randrange(2):
        return push(server, mutate_bytes(random, as_json(_REQUEST)), **JSON)
    message = json.loads(as_json(_REQUEST))
    change_json(random, message)
    return push(server, json.dumps(message).encode(), **JSON)


def change_json(random: Random, node: object) -> None:
    """Replace a value somewhere in a JSON document."""
    while isinstance(node, dict | list) and node:
        keys = [*node] if isinstance(node, dict) else [*range(len(node))]
        key = random.choice(keys)
        if random.randrange(4) and isinstance(node[key], dict | list):
            node = node[key]
            continue
        node[key] = random.choice([None, 0, -1, 1e300, "", "x", "\ud800", [], [[]], {}, {"a": 1}, True])
        return


def _ingest(server: Server, random: Random) -> httpx.Response:
    if random.randrange(2):
        spy = random.choice(["", "dotnetspy"])  # profiles of .NET are repaired
        body = mutate_bytes(random, _FORM)
        return ingest(server, body, content_type=_FORM_TYPE, name="mutants", spyName=spy)
    query = mutate_bytes(random, _QUERY.encode()).decode("latin-1")
    mutant = mutate_bytes(random, _FORM_TYPE.encode())
    content_type = "".join(chr(byte) for byte in mutant if 0x20 <= byte < 0x7F).strip()
    headers = bearer(server.submit_key) | {"Content-Type": content_type}
    return server.client.post("/ingest", params=query, content=_FORM, headers=headers)


@pytest.mark.parametrize("send", [_protobuf, _json, _ingest])
@pytest.mark.parametrize("count", [150, pytest.param(2_500, marks=pytest.mark.exhaustive)])
def test_a_mutated_request_is_stored_or_refused(
    tmp_path: Path, send: Callable[[Server, Random], httpx.Response], count: int
) -> None:
    """Takes over 20 s with 2,500 requests."""
    with Server(tmp_path) as server:
        seen: dict[int, int] = {}
        for seed in range(count):
            answer = send(server, Random(seed))  # noqa: S311 - nothing secret
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, (seed, answer.text)
            if answer.status_code != 200:
                assert answer.json().keys() == {"code", "message"}, (seed, answer.text)
        assert len(seen) > 1
        assert server.submit(profile_of("after")).status_code == 204
        assert not server.events("unexpected error")
        assert not [*(server.data / "incoming").iterdir()]


@pytest.mark.parametrize("more", INTERESTING_BYTES)
def test_what_follows_a_message_is_read_or_refused(shared: Server, more: bytes) -> None:
    assert shared.client.post(
        PUSH,
        content=_MESSAGE + more,
        headers=bearer(shared.submit_key) | {"Content-Type": "application/proto"},
    ).status_code in {200, 400}
