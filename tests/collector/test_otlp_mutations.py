"""Mutated requests of OTLP: each is stored or refused, and never the server's fault."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.collector.exporting import JSON, Export, as_json, export
from tests.collector.test_push_mutations import change_json
from tests.faults.stacks import profile_of
from tests.oracle.mutation import Schema, mutate_bytes, mutate_fields
from tests.server import Server

_PAIR: Schema = {2: {5: {1: {}}}}
_PROFILE: Schema = {1: {}, 2: {}, 5: {}}
_SCHEMA: Schema = {
    1: {1: {1: _PAIR}, 2: {1: {3: _PAIR}, 2: _PROFILE}},
    2: {1: {}, 2: {3: {}}, 3: {}, 6: {2: {}}, 7: {}},
}


def _request(*, before: bool) -> Export:
    request = Export(before=before)
    for service in ("mutants", "others"):
        request.resource({"service.name": service, "service.version": "1", "process.pid": 7})
        request.profile(attributes={"pprof.profile.comment": "c"})
        binary = request.mapping("main", "abc")
        for stack in (["a", "b"], ["a", "c"]):
            frames = [(name, f"/{name}.go", 7) for name in stack]
            request.sample(
                frames, timestamps=2, values=[3, 4], mapping=binary, attributes={"thread.name": "t"}
            )
    original = request.profile()
    original.original_payload_format, original.original_payload = "pprof", profile_of("z")
    return request


_CURRENT, _BEFORE = _request(before=False), _request(before=True)


def _protobuf(server: Server, random: Random) -> httpx.Response:
    message = random.choice((_CURRENT, _BEFORE)).body
    mutate = random.randrange(3)
    mutant = mutate_fields(random, message, _SCHEMA) if mutate else mutate_bytes(random, message)
    if random.randrange(4):
        return export(server, mutant)
    packed = mutate_bytes(random, gzip.compress(mutant)) if random.randrange(2) else gzip.compress(mutant)
    return export(server, packed, Content_Encoding="gzip")


def _json(server: Server, random: Random) -> httpx.Response:
    if random.randrange(3) == 0:
        return export(server, mutate_bytes(random, as_json(_CURRENT.request)), **JSON)
    message = json.loads(as_json(_CURRENT.request))
    change_json(random, message)
    return export(server, json.dumps(message).encode(), **JSON)


@pytest.mark.parametrize("send", [_protobuf, _json])
@pytest.mark.parametrize("count", [100, pytest.param(2_500, marks=pytest.mark.exhaustive)])
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
            assert answer.headers["Content-Type"] == answer.request.headers["Content-Type"], seed
        assert len(seen) > 1
        assert server.submit(profile_of("after")).status_code == 204
        assert not server.events("unexpected error")
        assert not [*(server.data / "incoming").iterdir()]
