"""`track`, on what takes a known time in functions with known names."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest
from pgo_agent import track, tracked_in_flight, tracked_profile

from tests.agent.latency.waiting import MS, Sample, samples_of


@pytest.fixture(autouse=True)
def nothing_before() -> None:
    tracked_profile()


def taken() -> list[Sample]:
    return samples_of(tracked_profile())


def wait_in_block() -> None:
    with track("block"):
        time.sleep(0.02)


@track("call", threshold=0.005)
def wait_in_call() -> str:
    time.sleep(0.01)
    return "done"


@track("task", threshold=0.005)
async def wait_in_task() -> str:
    await asyncio.sleep(0.01)
    return "done"


def test_a_block_over_the_threshold_has_its_stack() -> None:
    wait_in_block()
    (sample,) = taken()
    assert sample.functions[0] == f"{__name__}.wait_in_block"
    assert f"{__name__}.test_a_block_over_the_threshold_has_its_stack" in sample.functions
    assert sample.events == 1
    assert sample.delay >= 20 * MS
    bound = int(sample.labels.pop("latency"))
    assert bound <= sample.delay < 2 * bound
    assert sample.labels == {"tracker": "track", "operation": "block", "pid": os.getpid()}
    assert taken() == []


def test_a_function_and_a_coroutine_keep_what_they_are() -> None:
    assert wait_in_call() == "done"
    assert asyncio.run(wait_in_task()) == "done"
    assert wait_in_call.__name__ == "wait_in_call"
    assert asyncio.iscoroutinefunction(wait_in_task)
    found = {sample.labels["operation"]: sample for sample in taken()}
    assert {*found} == {"call", "task"}
    assert all(sample.delay >= 10 * MS for sample in found.values())
    assert f"{__name__}.test_a_function_and_a_coroutine_keep_what_they_are" in found["task"].functions


def test_shorter_events_are_counted_by_their_latency() -> None:
    def run() -> None:
        for _ in range(5000):
            with track("short", threshold=1000.0):
                pass

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = taken()
    assert sum(sample.events for sample in found) == 20_000
    for sample in found:
        assert sample.functions == ["(below the threshold)"]
        assert sample.labels["operation"] == "short"
        bound = int(sample.labels["latency"])
        assert bound * sample.events <= sample.delay <= 2 * bound * sample.events


def test_an_exception_passes_and_is_measured() -> None:
    with pytest.raises(KeyError), track("failing", threshold=0.0):
        raise KeyError
    (sample,) = taken()
    assert sample.labels["operation"] == "failing"


def test_what_is_in_flight_is_listed_with_where_it_is() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait()

    def work() -> None:
        with track("outer"):
            hold()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    time.sleep(0.01)
    (found,) = tracked_in_flight()
    go_on.set()
    thread.join()
    key, seconds, functions = found
    assert key == "outer"
    assert seconds >= 0.01
    assert [name.rpartition(".")[2] for name in functions if name.startswith(__name__)] == ["hold", "work"]
    assert tracked_in_flight() == []


def test_a_task_that_waits_is_in_flight_in_its_function() -> None:
    async def wait() -> None:
        async with track("waiting"):
            await asyncio.sleep(1000)

    async def look() -> list[tuple[str, float, list[str]]]:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        found = tracked_in_flight()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found

    ((key, _, functions),) = asyncio.run(look())
    assert key == "waiting"
    assert functions[0].endswith("wait")


def test_a_forked_child_has_nothing_of_its_parent() -> None:
    wait_in_block()
    child = os.fork()
    if not child:
        os._exit(len(samples_of(tracked_profile())))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(taken()) == 1
