"""Scrape each target of a changing fleet again and again, each at a time of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from pgo_agent.logs import EventLogger
from pgo_agent.scrape.scraper import Failure, RoundResults, Scraper
from pgo_agent.scrape.target import Shard, Target, next_scrape_time

_log = EventLogger(__name__)


class TargetSource(Protocol):
    """A list of targets that may change: a file, or the pods of a Kubernetes cluster.

    `unreadable` says whether the last call of `targets` returned a part of them, since others couldn't be
    read.
    """

    unreadable: bool

    async def targets(self) -> Sequence[Target]:
        """Return the targets that exist now. Raises AgentError."""

    async def follow(self, schedule: ScrapeSchedule) -> None:
        """Give the schedule all targets and every change, until cancelled or nothing can change."""


class ScrapeSchedule:
    """Scrape each target of the shard once in `every` seconds, at a time of its own.

    Sources add and remove targets, each under a source name of its own. A target that is put again keeps its
    time. A target that is removed isn't scraped any more from its next time on. `results` counts the current
    round.
    """

    def __init__(self, scraper: Scraper, shard: Shard, every: float) -> None:
        self._scraper = scraper
        self._shard = shard
        self._every = every
        # Rounds use a clock that never steps, but begin at the same times as other agents' rounds.
        self._offset = time.time() - time.monotonic()
        self._targets: dict[str, dict[str, Target]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._scraping: set[str] = set()
        self._stopped = False
        self._reported: dict[str, frozenset[tuple[str, str]]] = {}
        self.results = RoundResults()

    def __len__(self) -> int:
        """Return the number of targets."""
        return sum(map(len, self._targets.values()))

    def replace(self, source: str, targets: Iterable[Target]) -> None:
        """Set all targets of a source."""
        self._targets[source] = {}
        for target in targets:
            self.put(source, target)

    def put(self, source: str, target: Target) -> None:
        """Add or change a target of a source."""
        if target.name not in self._shard:
            return
        self._targets.setdefault(source, {})[target.name] = target
        if target.name not in self._tasks:
            task = asyncio.create_task(self._follow(source, target.name))
            self._tasks[target.name] = task

    def remove(self, source: str, name: str) -> None:
        """Remove a target of a source."""
        self._targets.get(source, {}).pop(name, None)

    async def stop(self, patience: float) -> None:
        """Start no more scrapes; give the running ones `patience` seconds, then drop them."""
        self._stopped = True
        for name in self._tasks.keys() - self._scraping:
            self._tasks[name].cancel()
        if running := [self._tasks[name] for name in self._scraping]:
            await asyncio.wait(running, timeout=patience)
        if self._scraping:
            _log.warning("scrapes dropped", count=len(self._scraping))
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, source: str, name: str) -> None:
        """Scrape one target at each of its times, until it has been removed. Its scrapes never overlap."""
        due = next_scrape_time(name, self._every, self._now())
        try:
            while not self._stopped:
                await asyncio.sleep(due - self._now())
                async with self._scraper.slots:
                    if name not in self._targets[source]:
                        return
                    await self._scrape(source, name)
                # A timer may fire early; this never picks the same time twice.
                after = max(self._now(), due + self._every / 2)
                last, due = due, next_scrape_time(name, self._every, after)
                self.results.late += round((due - last) / self._every) - 1
        finally:
            del self._tasks[name]
            self._reported.pop(name, None)

    async def _scrape(self, source: str, name: str) -> None:
        target = self._targets[source][name]
        self._scraping.add(name)
        try:
            failures = await self._scraper.scrape(target)
        finally:
            self._scraping.discard(name)
        scraped = len(target.profiles) - len(failures)
        # Failures of a target that was removed meanwhile, such as a pod that ended, don't count.
        expected = failures if name in self._targets[source] else []
        self.results.add(scraped, expected)
        self._log_new(name, expected)

    def _log_new(self, name: str, failures: Iterable[Failure]) -> None:
        """Log failures that the previous round didn't have: in a fleet some targets fail all the time."""
        before = self._reported.get(name, frozenset())
        self._reported[name] = frozenset((failure.type, failure.error.reason) for failure in failures)
        for failure in failures:
            if (failure.type, failure.error.reason) not in before:
                _log.warning("scrape failed", target=name, type=failure.type, reason=failure.error)

    def _now(self) -> float:
        return time.monotonic() + self._offset
