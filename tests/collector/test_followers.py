from __future__ import annotations

import asyncio
from typing import NoReturn

from pgo_collector.followers import following
from structlog.testing import capture_logs


class Failing:
    async def follow(self) -> NoReturn:
        raise ZeroDivisionError


class Ending:
    async def follow(self) -> None:
        pass


class Lasting:
    def __init__(self) -> None:
        self.steps = 0
        self.is_cancelled = False

    async def follow(self) -> None:
        try:
            while True:
                self.steps += 1
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise


def test_one_that_fails_is_told_of_and_ends_no_other() -> None:
    lasting = Lasting()

    async def serve() -> int:
        async with following([Failing(), Ending(), lasting]):
            await asyncio.sleep(0)
            steps = lasting.steps
            while lasting.steps < steps + 3:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)
            assert not lasting.is_cancelled
        return lasting.steps

    with capture_logs() as log:
        steps = asyncio.run(serve())
    assert lasting.is_cancelled
    assert lasting.steps == steps
    (line,) = log
    assert (line["log_level"], line["task"]) == ("error", "Failing")
    assert line["exc_info"]
