"""Bodies that were made to cost much: each costs little, and leaves little in the worker."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pgo_collector.engine.pushes import PushBody, Unpack, validate_pushes
from pgo_collector.errors import Refusal
from pgo_collector.submits.submits import SubmitBatcher
from pgo_collector.workers.pool import Workers
from pprof_merge import ENGINE, Limits, ProfileError

from tests.collector.bounds import BOUNDS
from tests.collector.routes.dense_bodies import Dense, dense_bodies
from tests.collector.routes.hostile_bodies import Make, hostile_bodies, long_key, repeated
from tests.cpu_meter import cpu_seconds_for

pytestmark = [
    pytest.mark.any_store,
    pytest.mark.skipif(ENGINE == "interpreted", reason="the times are those of the compiled engine"),
]

_SMALL = 8000
# What a body of a few kilobytes inflates to. More takes the tests long to make.
_INFLATED = 1 << 20
_SECONDS, _LARGE_SECONDS, _MEGABYTES = 0.2, 0.5, 100

_of_every_shape = pytest.mark.parametrize(
    ("make", "unpack"), [pytest.param(make, unpack, id=name) for name, make, unpack in hostile_bodies()]
)


def _spent(body: bytes, unpack: Unpack) -> tuple[float, float]:
    """Return the CPU time that a body takes, in seconds, and the memory, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    gc.freeze()  # what the tests have made is none of the body's
    before, began = _peak(), time.process_time()
    validate_pushes([PushBody(body, unpack)], Limits())
    return time.process_time() - began, _peak() - before


def _peak() -> float:
    """Return the most memory that this process had since the last reset, in MiB."""
    return _status(os.getpid(), "VmHWM")


def _status(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


@_of_every_shape
def test_a_small_body_costs_little(make: Make, unpack: Unpack) -> None:
    seconds, megabytes = _spent(repeated(make, _SMALL), unpack)
    assert seconds <= cpu_seconds_for(_SECONDS)
    assert megabytes <= _MEGABYTES


@_of_every_shape
def test_a_small_body_that_inflates_costs_little(make: Make, unpack: Unpack) -> None:
    body = gzip.compress(repeated(make, _INFLATED, small=_SMALL), 6)
    seconds, megabytes = _spent(body, unpack)
    assert seconds <= cpu_seconds_for(_SECONDS)
    assert megabytes <= _MEGABYTES


@pytest.mark.parametrize("dense", [pytest.param(dense, id=name) for name, dense in dense_bodies()])
def test_a_body_as_large_as_may_be_costs_little(dense: Dense) -> None:
    seconds, megabytes = _spent(dense.make(), dense.unpack)
    assert seconds <= cpu_seconds_for(_LARGE_SECONDS)
    assert megabytes <= dense.megabytes


def test_a_worker_has_its_memory_back_after_hostile_bodies(tmp_path: Path) -> None:
    """A worker that doesn't is replaced, as one is that ran out of memory."""
    bodies = [PushBody(repeated(make, _SMALL), unpack) for _, make, unpack in hostile_bodies()]

    async def run() -> None:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            batcher = SubmitBatcher(workers, Limits(), validate_pushes)

            async def send_all() -> tuple[int, float]:
                for body in bodies:
                    with suppress(Refusal, ProfileError):
                        await batcher.validate(body)
                pid = await workers.run(os.getpid)
                return pid, _status(pid, "RssAnon")

            first, before = await send_all()
            bodies[:] = [PushBody(*long_key(number)) for number in range(150)]
            second, after = await send_all()
            assert first != second or after - before <= 10

    asyncio.run(run())
