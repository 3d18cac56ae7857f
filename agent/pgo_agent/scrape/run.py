"""Runs scrapes until all targets had theirs, or until a signal."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from pgo_agent.scrape.cluster import Cluster
from pgo_agent.scrape.dispatch import Dispatch
from pgo_agent.scrape.pod import PodLabels
from pgo_agent.scrape.rounds import Rounds
from pgo_agent.scrape.scraper import Scraper
from pgo_agent.scrape.source import Source
from pgo_agent.scrape.static import StaticTargets, read_targets
from pgo_agent.scrape.tally import Tally, in_words
from pgo_agent.scrape.target import Target, Wanted

ALL, SOME, NONE = 0, 1, 2
_SEND_SECONDS = 60.0
# Together less than the half minute after which Kubernetes ends a process.
_STOP_SECONDS, _LAST_SEND_SECONDS = 10.0, 5.0
_log = logging.getLogger(__name__)


def sources(options: argparse.Namespace, wanted: Wanted, pod_labels: dict[str, str]) -> list[Source]:
    """What the options name. Raises AgentError or ValueError."""
    found: list[Source] = []
    if options.targets is not None:
        found.append(StaticTargets(read_targets(options.targets, wanted)))
    if options.kubernetes:
        found.append(Cluster(options.namespace, options.selector, wanted, PodLabels(pod_labels)))
    return found


async def once(options: argparse.Namespace, known: Sequence[Source], dispatch: Dispatch) -> int:
    """Scrapes each target once. 0 if the collector has all of it, 1 if some, 2 if there was nothing to have.

    A signal ends it early; what was scraped by then stays in the spool. Raises AgentError if nobody says
    which targets there are.
    """
    _log_to_stderr(logging.WARNING)
    stopping = _stopping()
    everywhere = [target for source in known for target in await source.targets()]
    targets = [target for target in everywhere if target.name in options.shard]
    tally = Tally()
    if await _done_before(stopping, _scrape_each(targets, _scraper(options, dispatch), tally)):
        if not await _done_before(stopping, asyncio.to_thread(dispatch.close, _SEND_SECONDS)):
            dispatch.hurry()
    else:
        await asyncio.to_thread(dispatch.close, _LAST_SEND_SECONDS)
    summary = tally.summary(len(targets), dispatch)
    if options.json:
        failures = [failure.as_json() for failure in tally.failures]
        print(json.dumps(summary | {"failures": failures}))
    else:
        for failure in tally.failures:
            print(f"pgo-agent: {failure}", file=sys.stderr)
        print(in_words(summary))
    if not everywhere or (targets and not tally.scraped):
        return NONE
    partly = stopping.is_set() or tally.failures or summary["waiting"] or summary["dropped"]
    return SOME if partly else ALL


async def follow(options: argparse.Namespace, known: Sequence[Source], dispatch: Dispatch) -> int:
    """Scrapes all targets round after round. A signal ends it, within a bound, and then it returns 0."""
    _log_to_stderr(logging.INFO)
    stopping = _stopping()
    rounds = Rounds(_scraper(options, dispatch), options.shard, options.every)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(source.follow(rounds)) for source in known]
        tasks.append(group.create_task(_report(options, rounds, dispatch)))
        await stopping.wait()
        for task in tasks:
            task.cancel()
    await rounds.stop(_STOP_SECONDS)
    await asyncio.to_thread(dispatch.close, _LAST_SEND_SECONDS)
    _say(options, rounds.tally.summary(len(rounds), dispatch))
    return ALL


def _scraper(options: argparse.Namespace, dispatch: Dispatch) -> Scraper:
    limit = options.max_megabytes << 20
    return Scraper(dispatch, slots=options.concurrency, limit=limit, labels=dict(options.label))


async def _scrape_each(targets: Sequence[Target], scraper: Scraper, tally: Tally) -> None:
    """With a progress bar where a person is watching."""
    from tqdm import tqdm  # noqa: PLC0415 - who scrapes for ever has no use for it

    with tqdm(total=len(targets), unit="target", leave=False, disable=None) as bar:

        async def scrape(target: Target) -> None:
            async with scraper.slots:
                failures = await scraper.scrape(target)
            tally.add(len(target.profiles) - len(failures), failures)
            bar.update()

        await asyncio.gather(*map(scrape, targets))


async def _report(options: argparse.Namespace, rounds: Rounds, dispatch: Dispatch) -> None:
    while True:
        await asyncio.sleep(options.every)
        tally, rounds.tally = rounds.tally, Tally()
        _say(options, tally.summary(len(rounds), dispatch))


def _say(options: argparse.Namespace, summary: dict[str, Any]) -> None:
    _log.info("%s", in_words(summary))
    if options.json:
        print(json.dumps(summary), flush=True)


async def _done_before(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work was done before the signal; if not, it is cancelled."""
    working, stop = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    await asyncio.wait({working, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if working.done():
        working.result()
        return True
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    return False


def _stopping() -> asyncio.Event:
    """Set by SIGTERM, and by what a person types to end a program."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


def _log_to_stderr(level: int) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("httpx", "httpx2"):  # they have a line for each request
        logging.getLogger(name).setLevel(logging.WARNING)
