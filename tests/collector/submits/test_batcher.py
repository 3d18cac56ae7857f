"""The batcher: a body that is validated with others has the result that it would have alone."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.engine.validation import SubmittedBody, ValidatedBody, validate_bodies
from pgo_collector.errors import WorkerLost
from pgo_collector.submits.submits import SubmitBatcher
from pgo_collector.workers.pool import Workers
from pprof_merge import Limits, decode

from tests.collector.bounds import BOUNDS
from tests.faults.stacks import profile_of
from tests.merge.malformed import MALFORMED

pytestmark = pytest.mark.any_store

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


def content_of(body: SubmittedBody) -> bytes:
    return body.content if isinstance(body.content, bytes) else body.content.read_bytes()


class _Deadly:
    """A body that kills the worker which reads it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (1,)


def said(outcome: object) -> object:
    """Return an outcome in a form that compares errors by their messages."""
    return (type(outcome), str(outcome)) if isinstance(outcome, Exception) else outcome


async def validated(folder: Path, bodies: Sequence[SubmittedBody]) -> list[ValidatedBody | BaseException]:
    """Validate bodies with a worker that is busy until all have arrived; return the outcomes."""
    async with Workers(1, BOUNDS, folder) as workers:
        batcher = SubmitBatcher(workers, _LIMITS, validate_bodies)
        return await asyncio.gather(*map(batcher.validate, bodies), return_exceptions=True)


@given(st.lists(st.sampled_from(_BODIES), max_size=20))
def test_a_batch_has_the_results_of_its_single_bodies(bodies: list[SubmittedBody]) -> None:
    together = validate_bodies(bodies, _LIMITS)
    assert not any(outcome.__traceback__ for outcome in together if isinstance(outcome, Exception))
    assert [*map(said, together)] == [said(*validate_bodies([body], _LIMITS)) for body in bodies]


def test_bodies_that_come_at_once_get_each_its_own_answer(tmp_path: Path) -> None:
    bodies = [SubmittedBody(profile_of(f"stack {number}"), "cpu") for number in range(40)] + _BODIES
    outcomes = asyncio.run(validated(tmp_path, bodies))
    assert [*map(said, outcomes)] == [said(*validate_bodies([body], _LIMITS)) for body in bodies]
    digests = [outcome.facts.digest for outcome in outcomes[:40] if isinstance(outcome, ValidatedBody)]
    assert digests == [decode(content_of(body)).digest.hex() for body in bodies[:40]]


def test_every_body_gets_an_answer_whenever_it_comes(tmp_path: Path) -> None:
    """Each of several senders sends its next body as soon as it has its answer."""

    async def send(batcher: SubmitBatcher[SubmittedBody, ValidatedBody], count: int) -> None:
        for _ in range(count):
            await batcher.validate(_BODIES[0])

    async def run() -> None:
        async with Workers(2, BOUNDS, tmp_path) as workers:
            batcher = SubmitBatcher(workers, _LIMITS, validate_bodies)
            senders = [send(batcher, 10 + number) for number in range(40)]
            await asyncio.wait_for(asyncio.gather(*senders), 120)

    asyncio.run(run())


def test_a_body_that_kills_its_worker_is_refused_alone(tmp_path: Path) -> None:
    deadly = SubmittedBody(_Deadly(), "cpu")  # type: ignore[arg-type]  # no bytes are known that do it
    bodies = [*_BODIES[:3], deadly, *_BODIES[:3]]
    outcomes = asyncio.run(validated(tmp_path, bodies))
    assert isinstance(outcomes.pop(3), WorkerLost)
    assert [outcome.facts.digest for outcome in outcomes if isinstance(outcome, ValidatedBody)] == [
        decode(content_of(body)).digest.hex() for body in [*_BODIES[:3], *_BODIES[:3]]
    ]


def test_a_body_in_a_file_is_validated_as_one_in_memory_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            batcher = SubmitBatcher(workers, _LIMITS, validate_bodies)
            for number, body in enumerate(_BODIES):
                part = tmp_path / f"{number}.part"
                part.write_bytes(content_of(body))
                (in_memory,) = validate_bodies([body], _LIMITS)
                validating = batcher.validate(SubmittedBody(part, body.type))
                (in_file,) = await asyncio.gather(validating, return_exceptions=True)
                if isinstance(in_memory, ValidatedBody):
                    assert in_file == ValidatedBody(in_memory.facts, None)
                    assert part.read_bytes() == (in_memory.packed or content_of(body))
                else:
                    assert said(in_file) == said(in_memory)
                    assert part.read_bytes() == content_of(body)

    asyncio.run(run())


def test_a_file_that_is_gone_is_an_os_error(tmp_path: Path) -> None:
    async def run() -> None:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            batcher = SubmitBatcher(workers, _LIMITS, validate_bodies)
            await batcher.validate(SubmittedBody(tmp_path / "gone.part", "cpu"))

    with pytest.raises(FileNotFoundError):
        asyncio.run(run())
