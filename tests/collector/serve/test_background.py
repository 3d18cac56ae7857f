"""Background tasks: all go on when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pgo_collector import background
from pgo_collector.background import BackgroundTasks
from structlog.testing import capture_logs

pytestmark = pytest.mark.any_store


class Failing:
    """Fails a few times, then runs on."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.runs = 0

    async def run(self) -> None:
        self.runs += 1
        if self.left:
            self.left -= 1
            raise ZeroDivisionError
        await asyncio.Event().wait()


class Ending:
    runs = 0

    async def run(self) -> None:
        self.runs += 1


class Lasting:
    def __init__(self) -> None:
        self.steps = 0
        self.is_cancelled = False

    async def run(self) -> None:
        try:
            while True:
                self.steps += 1
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)


def test_a_failed_task_is_reported_and_restarted_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "_SHORTEST_SECONDS", 0.01)
    failing, ending, lasting = Failing(3), Ending(), Lasting()
    tasks = BackgroundTasks({"failing": failing, "ending": ending, "lasting": lasting})

    async def serve() -> int:
        async with tasks.running():
            await until(lambda: "failing" in tasks.failing)
            assert tasks.failing["failing"].startswith("ZeroDivisionError, started again within ")
            await until(lambda: failing.runs == 4)
            assert not tasks.failing
            steps = lasting.steps
            await until(lambda: lasting.steps > steps + 3)
            assert not lasting.is_cancelled
        return lasting.steps

    with capture_logs() as log:
        steps = asyncio.run(serve())
    assert tasks.restarts == {"failing": 3, "ending": 0, "lasting": 0}
    assert ending.runs == 1
    assert lasting.is_cancelled
    assert lasting.steps == steps
    assert [(line["log_level"], line["task"], line["seconds"]) for line in log] == [
        ("error", "failing", seconds) for seconds in (0.01, 0.02, 0.04)
    ]
    assert all(line["exc_info"] for line in log)


def test_the_pause_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_SHORTEST_SECONDS", 0.001)
    monkeypatch.setattr(background, "_LONGEST_SECONDS", 0.004)
    failing = Failing(8)

    async def serve() -> None:
        async with BackgroundTasks({"failing": failing}).running():
            await until(lambda: failing.runs == 9)

    with capture_logs() as log:
        asyncio.run(serve())
    assert [line["seconds"] for line in log][:3] == [0.001, 0.002, 0.004]
    assert max(line["seconds"] for line in log) == 0.004
