from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pgo_collector.engine.received import receive
from pgo_collector.engine.workers import Workers
from pgo_collector.errors import WorkerLost
from pprof_merge import Limits

from tests.faults.stacks import profile_of, tally
from tests.server import Server, descendants


def workers_of(server: Server) -> list[int]:
    """The processes that the fork server forked."""
    return [pid for child in server.descendants() for pid in descendants(child)]


def test_a_killed_worker_costs_no_request(server: Server) -> None:
    server.submit(profile_of("a"))
    for name in ("b", "c"):
        for pid in workers_of(server):
            os.kill(pid, signal.SIGKILL)
        assert server.submit(profile_of(name)).status_code == 204
    assert server.events("a worker process died, starting a new one")
    assert tally(server.merge().content) == {"a": 1, "b": 1, "c": 1}


def test_workers_leave_ctrl_c_to_the_server(server: Server) -> None:
    server.submit(profile_of("a"))
    workers = workers_of(server)
    wait_until(lambda: all(ignores_ctrl_c(pid) for pid in workers))
    for pid in workers:
        os.kill(pid, signal.SIGINT)
    assert server.submit(profile_of("b")).status_code == 204
    # There may be another one by now: each is started when it first has something to do.
    assert {*workers} <= {*workers_of(server)}
    os.kill(server.process.pid, signal.SIGINT)
    assert server.process.wait(60) == 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_server(server: Server, end: signal.Signals) -> None:
    server.submit(profile_of("a"))
    family = server.descendants()
    assert workers_of(server)
    os.kill(server.process.pid, end)
    assert server.process.wait(60) == (0 if end == signal.SIGTERM else -end)
    wait_until(lambda: not any(map(is_running, family)))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """False too for a process that has ended, but that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


def ignores_ctrl_c(pid: int) -> bool:
    ignored = re.search(r"^SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert ignored
    return bool(int(ignored[1], 16) >> (signal.SIGINT - 1) & 1)


def _late(answer: str) -> str:
    time.sleep(1)
    return answer


def test_a_task_that_kills_its_worker_each_time_is_given_up(tmp_path: Path) -> None:
    async def run() -> int:
        async with Workers(1, 1 << 30, tmp_path) as workers:
            with pytest.raises(WorkerLost):
                await workers.run(os._exit, 1)
            return await workers.run(os.getpid)

    assert asyncio.run(run()) != os.getpid()


def test_what_nobody_waits_for_any_more_is_not_taken_for_another_answer(tmp_path: Path) -> None:
    async def run() -> list[object]:
        async with Workers(1, 1 << 30, tmp_path) as workers:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(workers.run(_late, "first"), 0.1)
            return [await workers.run(str, answer) for answer in ("second", "third")]

    assert asyncio.run(run()) == ["second", "third"]


def test_arguments_and_answers_may_be_large(tmp_path: Path) -> None:
    large = os.urandom(5_000_000)

    async def run() -> list[bytes]:
        async with Workers(2, 1 << 30, tmp_path) as workers:
            return await asyncio.gather(*(workers.run_for(str(owner), bytes, large) for owner in range(4)))

    assert asyncio.run(run()) == [large] * 4


def test_an_error_says_where_in_the_worker_it_was_raised(tmp_path: Path) -> None:
    async def run() -> None:
        async with Workers(1, 1 << 30, tmp_path) as workers:
            with pytest.raises(FileNotFoundError) as raised:
                await workers.run(receive, tmp_path / "nothing", tmp_path / "gz", "cpu", Limits())
            assert ", in receive\n" in raised.value.__notes__[0]

    asyncio.run(run())
