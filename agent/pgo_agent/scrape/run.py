"""Run `pgo-agent scrape`: once over all targets, or round after round until a signal."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from pgo_agent.logs import EventLogger
from pgo_agent.scrape.catalog import CatalogTargets
from pgo_agent.scrape.kubernetes import KubernetesTargets
from pgo_agent.scrape.nomad_consul import Consul, Nomad
from pgo_agent.scrape.pod import PodLabels
from pgo_agent.scrape.schedule import ScrapeSchedule, TargetSource
from pgo_agent.scrape.scraper import RoundResults, Scraper, counts_text, summary_text
from pgo_agent.scrape.submit_queue import SubmitQueue
from pgo_agent.scrape.target import Target, TargetDefaults
from pgo_agent.scrape.targets_file import FileTargets, read_targets
from pgo_agent.streams import say

ALL, SOME, NONE = 0, 1, 2  # exit statuses
_SEND_SECONDS = 60.0
# Together less than 30 s, after which Kubernetes kills a process.
_STOP_SECONDS, _LAST_SEND_SECONDS = 10.0, 5.0
_log = EventLogger(__name__)


def sources(
    options: argparse.Namespace, defaults: TargetDefaults, pod_labels: dict[str, str]
) -> list[TargetSource]:
    """Return the sources that the options ask for. Raises AgentError or ValueError."""
    found: list[TargetSource] = []
    if options.targets is not None:
        found.append(FileTargets(read_targets(options.targets, defaults)))
    if options.kubernetes:
        labels = PodLabels(pod_labels)
        found.append(KubernetesTargets(options.namespace, options.selector, defaults, labels))
    if options.nomad is not None:
        files = (options.nomad_token_file, options.nomad_ca_file)
        found.append(CatalogTargets(Nomad(options.nomad_namespace), options.nomad, defaults, *files))
    if options.consul is not None:
        files = (options.consul_token_file, options.consul_ca_file)
        found.append(CatalogTargets(Consul(options.consul_datacenter), options.consul, defaults, *files))
    return found


async def once(options: argparse.Namespace, known: Sequence[TargetSource], queue: SubmitQueue) -> int:
    """Scrape each target once, and return the exit status.

    The status is 0 if the collector has every profile, 1 if it has some, and 2 if none could be scraped. A
    signal ends the run early; profiles scraped by then stay in the spool. Raises AgentError if a source
    can't list its targets.
    """
    _log_to_stderr(logging.WARNING if options.trace is None else logging.INFO)
    stopping = _stopping()
    everywhere = [target for source in known for target in await source.targets()]
    targets = [target for target in everywhere if target.name in options.shard]
    results = RoundResults()
    if await _done_before(stopping, _scrape_each(targets, _scraper(options, queue), results)):
        if not await _done_before(stopping, asyncio.to_thread(queue.close, _SEND_SECONDS)):
            queue.abort()
    else:
        await asyncio.to_thread(queue.close, _LAST_SEND_SECONDS)
    summary = results.summary(len(targets), queue)
    if options.json:
        failures = [failure.as_json() for failure in results.failures]
        print(json.dumps(summary | {"failures": failures}))
    else:
        for failure in results.failures:
            say(f"pgo-agent: {failure}")
        print(summary_text(summary))
    if not everywhere or (targets and not results.scraped):
        return NONE
    partly = (
        stopping.is_set()
        or any(source.unreadable for source in known)
        or results.failures
        or summary["waiting"]
        or summary["dropped"]
    )
    return SOME if partly else ALL


async def follow(options: argparse.Namespace, known: Sequence[TargetSource], queue: SubmitQueue) -> int:
    """Scrape all targets round after round until a signal, then return 0 within about 15 s."""
    _log_to_stderr(logging.INFO)
    stopping = _stopping()
    schedule = ScrapeSchedule(_scraper(options, queue), options.shard, options.every)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(source.follow(schedule)) for source in known]
        tasks.append(group.create_task(_report(options, schedule, queue)))
        await stopping.wait()
        for task in tasks:
            task.cancel()
    await schedule.stop(_STOP_SECONDS)
    await asyncio.to_thread(queue.close, _LAST_SEND_SECONDS)
    _report_round(options, schedule.results.summary(len(schedule), queue))
    return ALL


def _scraper(options: argparse.Namespace, queue: SubmitQueue) -> Scraper:
    limit = options.max_megabytes << 20
    return Scraper(queue, slots=options.concurrency, limit=limit, labels=dict(options.label))


async def _scrape_each(targets: Sequence[Target], scraper: Scraper, results: RoundResults) -> None:
    """Scrape the targets, with a progress bar on a terminal."""
    from tqdm import tqdm  # noqa: PLC0415 - only --once shows a progress bar

    with tqdm(total=len(targets), unit="target", leave=False, disable=None) as bar:

        async def scrape(target: Target) -> None:
            async with scraper.slots:
                failures = await scraper.scrape(target)
            results.add(len(target.profiles) - len(failures), failures)
            bar.update()

        await asyncio.gather(*map(scrape, targets))


async def _report(options: argparse.Namespace, schedule: ScrapeSchedule, queue: SubmitQueue) -> None:
    while True:
        await asyncio.sleep(options.every)
        results, schedule.results = schedule.results, RoundResults()
        _report_round(options, results.summary(len(schedule), queue))


def _report_round(options: argparse.Namespace, summary: dict[str, Any]) -> None:
    _log.info(
        "round ended",
        targets=summary["targets"],
        scraped=summary["scraped"],
        failed=counts_text(summary["failed"]),
        late=summary["late"],
        sent=summary["sent"],
        waiting=summary["waiting"],
        key_refused=summary["key_refused"],
        dropped=counts_text(summary["dropped"]),
    )
    if options.json:
        print(json.dumps(summary), flush=True)


async def _done_before(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Return True if the work ended before a signal came; cancel it otherwise."""
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
    """Return an event that SIGTERM and SIGINT (Ctrl-C) set."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


def _log_to_stderr(level: int) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("httpx", "httpx2"):  # they log a line for each request
        logging.getLogger(name).setLevel(logging.WARNING)
