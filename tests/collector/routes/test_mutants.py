"""Mutated requests of each sender and reader: each is stored, answered or refused as its clients expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from tests.collector.exporting import speaks_grpc
from tests.collector.mutants import PUSH_MESSAGE, SENDERS, fill
from tests.collector.pushing import push
from tests.faults.stacks import profile_of
from tests.oracle.mutation import INTERESTING_BYTES
from tests.server import Server

pytestmark = pytest.mark.any_store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all senders, with the profiles that readers ask for."""
    settings = {"PGOF_BINARY_SECONDS": "5"}  # the reader of a damaged program may go on for ever
    with speaks_grpc(tmp_path_factory.mktemp("mutants"), settings) as server:
        fill(server)
        yield server


@pytest.mark.parametrize("name", SENDERS)
@pytest.mark.parametrize("count", [40, pytest.param(120, marks=pytest.mark.exhaustive)])
def test_a_mutated_request_is_answered_or_refused(server: Server, name: str, count: int) -> None:
    """`make campaign ARGS=senders`, which CI runs too, sends any number."""
    seen: Counter[str] = Counter()
    for seed in range(count):
        reply = SENDERS[name](server, Random(seed))  # noqa: S311 - nothing secret
        assert not reply.wrong, (seed, reply.wrong)
        seen[reply.status] += 1
    assert len(seen) > 1
    assert server.submit(profile_of("after")).status_code == 204
    assert not server.events("unexpected error")
    assert not [*(server.data / "incoming").iterdir()]


@pytest.mark.parametrize("more", INTERESTING_BYTES)
def test_what_follows_a_message_is_read_or_refused(server: Server, more: bytes) -> None:
    assert push(server, PUSH_MESSAGE + more).status_code in {200, 400}
