"""Mutated uploads of Datadog's tracers: each is stored or refused, and never the server's fault."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

import httpx
import pytest
from backports import zstd

from tests.collector.datadog import event, lz4_of, send, tracer_profile
from tests.collector.pushing import form
from tests.collector.test_push_mutations import change_json
from tests.faults.stacks import profile_of
from tests.oracle.mutation import PROFILE, mutate_bytes, mutate_fields
from tests.server import Server

_PYTHON = tracer_profile(
    [
        ("work", {"cpu-time": 30, "cpu-samples": 3, "wall-time": 40, "wall-samples": 4}, 1),
        ("keep", {"alloc-samples": 2, "alloc-space": 512, "heap-space": 256}, 2),
    ]
)
_EVENT = event("mutants", version="1.4", region="eu")
_PACKINGS = (bytes, gzip.compress, zstd.compress, lz4_of)


def _mutant(server: Server, random: Random) -> httpx.Response:
    what = random.randrange(4)
    part, named = _PYTHON, _EVENT
    if what == 0:
        part = mutate_fields(random, part, PROFILE) if random.randrange(2) else mutate_bytes(random, part)
    part = random.choice(_PACKINGS)(part)
    if what == 1:
        part = mutate_bytes(random, part)
    if what == 2 and random.randrange(2):
        changed = json.loads(named)
        change_json(random, changed)
        named = json.dumps(changed).encode()
    elif what == 2:
        named = mutate_bytes(random, named)
    name = random.choice(["profile.pprof", "cpu.pprof", "delta-heap.pprof", "wall.pprof"])
    body, content_type = form(**{"event": named, name: part})
    if what == 3 and random.randrange(3):
        body = mutate_bytes(random, body)
    elif what == 3:
        mutated = mutate_bytes(random, content_type.encode())
        content_type = "".join(chr(byte) for byte in mutated if 0x20 <= byte < 0x7F).strip()
    headers = {"X_Datadog_Additional_Tags": "host:a,default_env:b"} if random.randrange(2) else {}
    return send(server, body, content_type, **headers)


@pytest.mark.parametrize("count", [300, pytest.param(2_500, marks=pytest.mark.exhaustive)])
def test_a_mutated_upload_is_stored_or_refused(tmp_path: Path, count: int) -> None:
    """Takes half a minute with 2,500 uploads."""
    with Server(tmp_path) as server:
        seen: dict[int, int] = {}
        for seed in range(count):
            answer = _mutant(server, Random(seed))  # noqa: S311 - nothing secret
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, (seed, answer.text)
            keys = answer.json().keys()
            assert keys == ({"errors"} if answer.status_code != 200 else set()), (seed, answer.text)
        assert len(seen) > 1
        assert server.submit(profile_of("after")).status_code == 204
        assert not server.events("unexpected error")
        assert not [*(server.data / "incoming").iterdir()]
