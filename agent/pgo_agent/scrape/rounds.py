"""Scrapes a fleet that comes and goes, round after round."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from pgo_agent.scrape.scraper import Scraper
from pgo_agent.scrape.shard import Shard, next_moment
from pgo_agent.scrape.tally import Failure, Tally
from pgo_agent.scrape.target import Target

_log = logging.getLogger(__name__)


class Rounds:
    """Each target of the shard is scraped once in `every` seconds, at a moment of its own.

    A target that is there already when its source says so again keeps that moment; one that goes is left out
    from its next. Sources are told apart by names of their own, and each says what it knows.
    """

    def __init__(self, scraper: Scraper, shard: Shard, every: float) -> None:
        self._scraper = scraper
        self._shard = shard
        self._every = every
        # Rounds go by a clock that doesn't step, and begin where those of other agents do.
        self._offset = time.time() - time.monotonic()
        self._targets: dict[str, dict[str, Target]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._scraping: set[str] = set()
        self._stopped = False
        self._said: dict[str, frozenset[tuple[str, str]]] = {}
        self.tally = Tally()

    def __len__(self) -> int:
        """How many targets there are."""
        return sum(map(len, self._targets.values()))

    def replace(self, source: str, targets: Iterable[Target]) -> None:
        """These are all that the source has."""
        self._targets[source] = {}
        for target in targets:
            self.put(source, target)

    def put(self, source: str, target: Target) -> None:
        """The source has this one, new or changed."""
        if target.name not in self._shard:
            return
        self._targets.setdefault(source, {})[target.name] = target
        if target.name not in self._tasks:
            task = asyncio.create_task(self._follow(source, target.name))
            self._tasks[target.name] = task

    def remove(self, source: str, name: str) -> None:
        """The source has it no more."""
        self._targets.get(source, {}).pop(name, None)

    async def stop(self, patience: float) -> None:
        """Begins no scrape any more; those under way have `patience` seconds, and are dropped then."""
        self._stopped = True
        for name in self._tasks.keys() - self._scraping:
            self._tasks[name].cancel()
        if under_way := [self._tasks[name] for name in self._scraping]:
            await asyncio.wait(under_way, timeout=patience)
        if self._scraping:
            _log.warning("scrapes dropped before they ended: %d", len(self._scraping))
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, source: str, name: str) -> None:
        """Scrapes one target, never twice at a time, until its moment comes and it isn't there any more."""
        moment = next_moment(name, self._every, self._now())
        try:
            while not self._stopped:
                await asyncio.sleep(moment - self._now())
                async with self._scraper.slots:
                    if name not in self._targets[source]:
                        return
                    await self._scrape(source, name)
                # Never the same moment again, should a timer have been early.
                after = max(self._now(), moment + self._every / 2)
                last, moment = moment, next_moment(name, self._every, after)
                self.tally.late += round((moment - last) / self._every) - 1
        finally:
            del self._tasks[name]
            self._said.pop(name, None)

    async def _scrape(self, source: str, name: str) -> None:
        target = self._targets[source][name]
        self._scraping.add(name)
        try:
            failures = await self._scraper.scrape(target)
        finally:
            self._scraping.discard(name)
        scraped = len(target.profiles) - len(failures)
        # Of a pod that ended meanwhile no more was to be expected.
        expected = failures if name in self._targets[source] else []
        self.tally.add(scraped, expected)
        self._say(name, expected)

    def _say(self, name: str, failures: Iterable[Failure]) -> None:
        """Logs what didn't fail in the round before: of thousands of targets, some fail for long."""
        before = self._said.get(name, frozenset())
        self._said[name] = frozenset((failure.type, failure.error.reason) for failure in failures)
        for failure in failures:
            if (failure.type, failure.error.reason) not in before:
                _log.warning("%s", failure)

    def _now(self) -> float:
        return time.monotonic() + self._offset
