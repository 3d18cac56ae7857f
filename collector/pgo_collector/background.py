"""Background tasks: what the server does besides answering requests. A task that fails is started again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

# The pause before a failed task is started again. It doubles with each failure, and is short again after the
# task has run for _LONGEST_SECONDS.
_SHORTEST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0
_log = structlog.get_logger()


class BackgroundTask(Protocol):
    """A task that runs in the background. It handles the failures that it expects."""

    async def run(self) -> None:
        """Run until there is nothing more to do or the call is cancelled. It may be called again."""


class BackgroundTasks:
    """The background tasks by name. A task that raises is logged and started again."""

    def __init__(self, tasks: Mapping[str, BackgroundTask]) -> None:
        self._tasks = tasks
        # Why each task failed that now waits to be started again.
        self.failing: dict[str, str] = {}
        self.restarts: Counter[str] = Counter(dict.fromkeys(tasks, 0))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all tasks until the block ends."""
        running = [asyncio.create_task(self._supervise(name, task)) for name, task in self._tasks.items()]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    async def _supervise(self, name: str, task: BackgroundTask) -> None:
        pause = _SHORTEST_SECONDS
        while True:
            begin = time.monotonic()
            try:
                await task.run()
            except Exception as error:  # noqa: BLE001 - whatever it is, the task has to go on
                if time.monotonic() - begin > _LONGEST_SECONDS:
                    pause = _SHORTEST_SECONDS
                _log.exception("background task failed", task=name, seconds=pause)
                self.failing[name] = f"{type(error).__name__}, started again within {pause:g} seconds"
            else:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)
            del self.failing[name]
            self.restarts[name] += 1
