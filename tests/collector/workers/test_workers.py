from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pgo_collector.errors import TaskOutOfMemory, TaskTooSlow, WorkerLost, WorkersBusy
from pgo_collector.workers.pool import Workers
from pgo_collector.workers.process import Process

from tests.collector.bounds import BOUNDS
from tests.control_group import NoControlGroup, control_group
from tests.faults.stacks import profile_of, tally
from tests.processes import stat_of
from tests.server import Server, descendants

pytestmark = pytest.mark.any_store


def workers_of(server: Server) -> list[int]:
    """Return the processes that the fork server has forked."""
    return [pid for child in server.descendants() for pid in descendants(child)]


def test_a_killed_worker_costs_no_request(server: Server) -> None:
    server.submit(profile_of("a"))
    for name in ("b", "c"):
        for pid in workers_of(server):
            os.kill(pid, signal.SIGKILL)
        assert server.submit(profile_of(name)).status_code == 204
    assert server.events("worker died")
    assert tally(server.merge().content) == {"a": 1, "b": 1, "c": 1}


def test_workers_leave_ctrl_c_to_the_server(server: Server) -> None:
    server.submit(profile_of("a"))
    workers = workers_of(server)
    wait_until(lambda: all(ignores_ctrl_c(pid) for pid in workers))
    for pid in workers:
        os.kill(pid, signal.SIGINT)
    assert server.submit(profile_of("b")).status_code == 204
    # There may be another one by now: each is started with its first task.
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
    """Return whether a process runs; False for a zombie."""
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


def _forever(pid: Path) -> None:
    pid.write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)
        sum(range(1000))


def test_a_task_that_kills_its_worker_each_time_is_given_up(tmp_path: Path) -> None:
    async def run() -> int:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            with pytest.raises(WorkerLost):
                await workers.run(os._exit, 1)
            return await workers.run(os.getpid)

    assert asyncio.run(run()) != os.getpid()


@pytest.mark.parametrize("failures", [2, 3])
def test_a_worker_that_is_killed_while_it_starts_counts_as_a_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """The fork server's pipe is closed then, in the middle of what the process is told."""

    async def check() -> None:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            with suppress(WorkerLost):
                await workers.run(os._exit, 1)
            really, left = Process.start, [*range(failures)]

            async def start(*arguments: Any) -> Process:
                if left:
                    left.pop()
                    raise BrokenPipeError
                return await really(*arguments)

            monkeypatch.setattr(Process, "start", start)
            if failures == 3:
                with pytest.raises(WorkerLost, match="wasn't started"):
                    await workers.run(abs, -1)
            assert await workers.run(abs, -2) == 2

    asyncio.run(check())


def test_the_answer_of_an_abandoned_task_is_not_taken_for_another(tmp_path: Path) -> None:
    async def run() -> list[object]:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(workers.run(_late, "first"), 0.1)
            return [await workers.run(str, answer) for answer in ("second", "third")]

    assert asyncio.run(run()) == ["second", "third"]


def test_arguments_and_answers_may_be_large(tmp_path: Path) -> None:
    large = os.urandom(5_000_000)

    async def run() -> list[bytes]:
        async with Workers(2, BOUNDS, tmp_path) as workers:
            return await asyncio.gather(*(workers.run_for(str(owner), bytes, large) for owner in range(4)))

    assert asyncio.run(run()) == [large] * 4


def test_an_error_says_where_in_the_worker_it_was_raised(tmp_path: Path) -> None:
    async def run() -> None:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            with pytest.raises(FileNotFoundError) as raised:
                await workers.run(Path.read_bytes, tmp_path / "nothing")
            assert ", in read_bytes\n" in raised.value.__notes__[0]

    asyncio.run(run())


@pytest.mark.parametrize("how", [bytearray, np.ones])
def test_a_task_that_needs_too_much_memory_is_refused_and_not_tried_again(
    tmp_path: Path, how: Callable[[int], Sized]
) -> None:
    """Whether Python or NumPy allocates the memory; the next worker has all of it again."""

    async def run() -> tuple[int, int, int]:
        async with Workers(1, BOUNDS._replace(task_bytes=200 << 20, rows_bytes=1), tmp_path) as workers:
            first = await workers.run(os.getpid)
            with pytest.raises(TaskOutOfMemory, match=r"200 MiB .*PGOF_WORKER_MEGABYTES") as raised:
                await workers.run(_allocate_by, tmp_path / "runs", how, 400 << 20)
            assert ", in _allocate_by\n" in raised.value.__notes__[0]
            assert workers.replaced["out_of_memory"] == 0
            size = await workers.run(_allocate_by, tmp_path / "runs", bytearray, 150 << 20)
            assert workers.replaced["out_of_memory"] == 1
            return first, size, await workers.run(os.getpid)

    first, size, second = asyncio.run(run())
    assert size == 150 << 20
    assert first != second
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


def test_a_task_that_the_kernel_ends_for_its_memory_is_not_tried_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"

    async def run() -> None:
        async with Workers(1, BOUNDS._replace(task_bytes=4 << 30), tmp_path) as workers:
            pid = await workers.run(os.getpid)
            with limited_memory(200 << 20, pid), pytest.raises(TaskOutOfMemory):
                await workers.run(_allocate_by, runs, np.ones, 80 << 20)
            assert await workers.run(os.getpid) != pid

    asyncio.run(run())
    assert runs.read_text() == "run\n"


def test_a_worker_that_hangs_is_replaced_and_its_task_done_by_another(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            hung = await workers.run(os.getpid)
            os.kill(hung, signal.SIGSTOP)
            answers = await asyncio.gather(workers.run(os.getpid), workers.run(os.getpid))
            assert workers.replaced["hung"] == 1
            assert hung not in answers
            return answers

    first, second = asyncio.run(run())
    assert first == second


def test_a_fork_server_that_hangs_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pgo_collector.workers.process._END_SECONDS", 0.5
    )  # there is no event for the end of a worker

    async def run() -> None:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            worker = await workers.run(os.getpid)
            fork_server = parent_of(worker)
            os.kill(fork_server, signal.SIGSTOP)
            os.kill(worker, signal.SIGKILL)
            assert await workers.run(os.getpid) != worker

    asyncio.run(run())


def test_a_task_that_takes_too_long_is_refused_and_what_waits_is_done(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        async with Workers(1, BOUNDS._replace(task_seconds=3), tmp_path) as workers:
            overdue = asyncio.create_task(workers.run(_forever, tmp_path / "pid"))
            await wait_for_file(tmp_path / "pid")
            assert 0 < workers.oldest_task_seconds < 60
            with pytest.raises(TaskTooSlow, match="PGOF_TASK_SECONDS"):
                await overdue
            assert workers.replaced["too_slow"] == 1
            assert workers.oldest_task_seconds == 0
            return int((tmp_path / "pid").read_text()), await workers.run(os.getpid)

    slow, next_ = asyncio.run(run())
    assert slow != next_


def test_a_task_that_waits_too_long_for_its_turn_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with Workers(1, BOUNDS._replace(task_seconds=1.5), tmp_path) as workers:
            running = asyncio.create_task(workers.run(_forever, tmp_path / "pid"))
            waiting = asyncio.create_task(workers.run(_forever, tmp_path / "other"))
            last = asyncio.create_task(workers.run(_forever, tmp_path / "last"))
            outcomes = await asyncio.gather(running, waiting, last, return_exceptions=True)
            assert {*map(type, outcomes)} == {TaskTooSlow, WorkersBusy}
            assert await workers.run(os.getpid)

    asyncio.run(run())


def test_an_abandoned_task_does_not_hold_others_up(tmp_path: Path) -> None:
    async def run() -> None:
        async with Workers(1, BOUNDS, tmp_path) as workers:
            abandoned = asyncio.create_task(workers.run(_forever, tmp_path / "pid"))
            await wait_for_file(tmp_path / "pid")
            next_ = asyncio.create_task(workers.run(os.getpid))
            abandoned.cancel()
            assert await next_ != int((tmp_path / "pid").read_text())
            assert workers.replaced["abandoned"] == 1
            assert workers.busy == 0

    asyncio.run(run())


def test_a_stopped_worker_costs_no_request_and_readyz_tells(server: Server) -> None:
    assert server.submit(profile_of("a")).status_code == 204
    server.merge()
    for pid in workers_of(server):
        os.kill(pid, signal.SIGSTOP)
    for name in ("b", "c"):
        assert server.submit(profile_of(name)).status_code == 204
    assert tally(server.merge().content) == {"a": 1, "b": 1, "c": 1}
    assert server.events("worker hung")
    assert server.client.get("/readyz").json()["tasks"] == {"oldest_seconds": 0.0, "waiting": 0}


def test_a_signal_to_all_processes_is_not_logged_as_an_error(server: Server) -> None:
    server.submit(profile_of("a"))
    family = [*server.descendants(), server.process.pid]
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    assert server.process.wait(60) == 0
    assert not [line for line in server.log if line.get("level") == "error"]


async def wait_for_file(path: Path) -> None:
    """Wait until a file has content."""
    await asyncio.to_thread(wait_until, lambda: path.exists() and path.read_text() != "")


def parent_of(pid: int) -> int:
    return int(stat_of(pid)[1])


def _allocate_by(runs: Path, how: Callable[[int], Sized], size: int) -> int:
    with runs.open("a") as file:
        file.write("run\n")
    return len(how(size))


@contextmanager
def limited_memory(limit: int, pid: int) -> Iterator[None]:
    """Limit the memory of a process within the block, at whose end it is killed if it still runs."""
    try:
        with control_group(limit) as group:
            group.add(pid)
            yield
    except NoControlGroup as reason:
        pytest.skip(f"no memory control group can be made: {reason}")
