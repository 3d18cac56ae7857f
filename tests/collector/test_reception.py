"""Bodies that are checked together: what comes of each is what would have come of it alone."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.engine.validation import SubmittedBody, ValidatedBody, validate_bodies
from pgo_collector.errors import WorkerLost
from pgo_collector.workers.batcher import SubmitBatcher
from pgo_collector.workers.pool import Workers
from pprof_merge import Limits, decode

from tests.collector.bounds import BOUNDS
from tests.faults.stacks import profile_of
from tests.merge.malformed import MALFORMED

_LIMITS = Limits(inflated_bytes=100_000)
_BODIES = [
    *(SubmittedBody(profile_of(stack), "cpu") for stack in "abc"),
    SubmittedBody(gzip.decompress(profile_of("bare")), "cpu"),
    SubmittedBody(profile_of("a", type_="inuse_space"), "heap"),
    SubmittedBody(profile_of("a", type_="inuse_space"), "cpu"),
    SubmittedBody(gzip.compress(bytes(200_000)), "cpu"),
    SubmittedBody(profile_of("a")[:-4], "cpu"),
    *(SubmittedBody(malformed.profile, "other") for malformed in MALFORMED[::20]),
]


class _Deadly:
    """A body of which a worker dies."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (1,)


def said(outcome: object) -> object:
    """Errors are the same if they say the same."""
    return (type(outcome), str(outcome)) if isinstance(outcome, Exception) else outcome


async def received(folder: Path, bodies: Sequence[SubmittedBody]) -> list[ValidatedBody | BaseException]:
    """What comes of them if the only worker is busy until all have come."""
    async with Workers(1, BOUNDS, folder) as workers:
        reception = SubmitBatcher(workers, _LIMITS)
        return await asyncio.gather(*map(reception.receive, bodies), return_exceptions=True)


@given(st.lists(st.sampled_from(_BODIES), max_size=20))
def test_together_bodies_are_received_as_they_are_alone(bodies: list[SubmittedBody]) -> None:
    together = validate_bodies(bodies, _LIMITS)
    assert not any(outcome.__traceback__ for outcome in together if isinstance(outcome, Exception))
    assert [*map(said, together)] == [said(*validate_bodies([body], _LIMITS)) for body in bodies]


def test_bodies_that_come_at_once_get_each_its_own_answer(tmp_path: Path) -> None:
    bodies = [SubmittedBody(profile_of(f"stack {number}"), "cpu") for number in range(40)] + _BODIES
    outcomes = asyncio.run(received(tmp_path, bodies))
    assert [*map(said, outcomes)] == [said(*validate_bodies([body], _LIMITS)) for body in bodies]
    digests = [outcome.facts.digest for outcome in outcomes[:40] if isinstance(outcome, ValidatedBody)]
    assert digests == [decode(body.content).digest.hex() for body in bodies[:40]]


def test_nobody_is_left_waiting_whenever_a_body_comes(tmp_path: Path) -> None:
    """Each of several senders sends its next body the moment that it has its answer."""

    async def send(reception: SubmitBatcher, count: int) -> None:
        for _ in range(count):
            await reception.receive(_BODIES[0])

    async def run() -> None:
        async with Workers(2, BOUNDS, tmp_path) as workers:
            reception = SubmitBatcher(workers, _LIMITS)
            senders = [send(reception, 10 + number) for number in range(40)]
            await asyncio.wait_for(asyncio.gather(*senders), 120)

    asyncio.run(run())


def test_a_body_that_kills_its_worker_is_refused_alone(tmp_path: Path) -> None:
    deadly = SubmittedBody(_Deadly(), "cpu")  # type: ignore[arg-type]  # no bytes are known that do it
    bodies = [*_BODIES[:3], deadly, *_BODIES[:3]]
    outcomes = asyncio.run(received(tmp_path, bodies))
    assert isinstance(outcomes.pop(3), WorkerLost)
    assert [outcome.facts.digest for outcome in outcomes if isinstance(outcome, ValidatedBody)] == [
        decode(body.content).digest.hex() for body in [*_BODIES[:3], *_BODIES[:3]]
    ]
