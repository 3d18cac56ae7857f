"""The overview of the fleet: two weeks of all services at one look. `/v1/fleet` and the first page show it.

The survey of each service is kept as long as its profiles are the same, so a look at a fleet reads only the
services that have sent something since the last one.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import reduce

from pprof_merge.analysis import Grouping, name_finder, share_of

from pgo_collector.catalog.catalog import Extent
from pgo_collector.engine.surveys import TOO_LARGE, Change, Survey, Weeks, survey_blobs
from pgo_collector.engine.view_inputs import ADDED_UP, Basis
from pgo_collector.errors import NoSuchRelease, ReleaseDamaged
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import Scope, Series
from pgo_collector.model.times import DAY_NANOS, format_time
from pgo_collector.queries import answers
from pgo_collector.queries.fleet import Fleet, most_common, others
from pgo_collector.releases.folder import Releases
from pgo_collector.store.store import Store

# The services that are looked at: those that sent last.
MOST_SERVICES = 100
_MOST_KEPT = 500
_MOST_SERVICES_A_ROW = 10
_WEEK = 7
# A service has stopped when nothing came for this many of its usual intervals, and for this long.
_MISSED, _SHORTEST_SILENCE = 5, 3600 * 10**9


class Overviews:
    """Makes overviews of the fleet; a release is due after `release_days` days."""

    def __init__(self, store: Store, fleet: Fleet, release_days: float) -> None:
        self._store = store
        self._fleet = fleet
        self.budget = fleet.budget
        self._release_nanos = release_days * DAY_NANOS
        self._kept: OrderedDict[Selection, tuple[str, Survey]] = OrderedDict()

    async def make(
        self, selection: Selection, scope: Scope, n_rows: int, search: str = ""
    ) -> answers.FleetOverview:
        """Return the overview of the services of a scope in a selection without times.

        Only names that contain `search` are listed. Raises WorkerUnavailable.
        """
        now = time.time_ns()
        end = now // DAY_NANOS + 1
        weeks = Weeks(end - 2 * _WEEK, end - _WEEK, end)
        wanted = replace(selection, begin=weeks.base * DAY_NANOS, end=end * DAY_NANOS)
        visible = await asyncio.to_thread(self._store.catalog.extents, wanted, scope)
        latest = sorted(visible, key=lambda service: (-visible[service].last, service))[:MOST_SERVICES]
        surveys = await self._surveys([replace(wanted, service=service) for service in latest], weeks)
        due = await asyncio.to_thread(self._due, visible, latest, now)
        types = {name: each.sample_type for name, each in surveys.items() if each.sample_type is not None}
        too_large = sorted(name for name, survey in surveys.items() if survey is TOO_LARGE)
        chosen = most_common(types) if types else None
        found = {name: surveys[name] for name in latest if types.get(name) == chosen}
        basis = reduce(Basis.joined, [survey.basis for survey in found.values()], ADDED_UP)
        services = _services({name: visible[name] for name in found}, found, due, now)
        return answers.FleetOverview(
            sample_type=None if chosen is None else answers.SampleType.of(chosen),
            basis=None if chosen is None else answers.ValuesBasis.of(basis, chosen),
            others=others(types, chosen) if chosen is not None else {},
            days=[format_time(day * DAY_NANOS)[:10] for day in range(weeks.base, weeks.end)],
            left_out=sum(len(survey.left_out) for survey in surveys.values())
            + sum(visible[name].blobs for name in too_large),
            too_large=too_large,
            unseen=len(visible) - len(latest),
            counts=_counts(services),
            services=[each for each in services if _is_found(each.service, search)],
            functions=_rows(found, "function", n_rows, search),
            packages=_rows(found, "package", n_rows, search),
        )

    async def _surveys(self, selections: Sequence[Selection], weeks: Weeks) -> dict[str, Survey]:
        """Return the survey of each selection's service: the kept one, if its profiles are the same."""
        found: dict[str, Survey] = {}
        new: dict[Selection, str] = {}
        for selection in selections:
            state = await asyncio.to_thread(self._store.catalog.state, selection)
            fingerprint, survey = self._kept.get(selection, ("", None))
            if survey is not None and fingerprint == state.fingerprint:
                self._kept.move_to_end(selection)
                found[selection.service] = survey
            else:
                new[selection] = state.fingerprint
        running = self._fleet.run_each([*new], survey_blobs, lambda *_: (weeks,), if_too_large=TOO_LARGE)
        async with aclosing(running) as results:
            async for selection, survey in results:
                found[selection.service] = survey
                if survey.left_out:
                    continue  # what can't be read now may be readable the next time
                self._kept[selection] = new[selection], survey
                self._kept.move_to_end(selection)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return found

    def _due(
        self, extents: dict[str, Extent], services: Sequence[str], now: int
    ) -> dict[str, answers.FleetRelease]:
        """Return the services with newer profiles than their release, which is as old as it may get."""
        due: dict[str, answers.FleetRelease] = {}
        for service in services:
            releases = Releases(self._store.blobs.storage, Series(service, CPU))
            with suppress(ReleaseDamaged, NoSuchRelease):
                choice = releases.choice()
                if choice is None or choice.pinned:
                    continue
                release = releases.release(choice.number)
                nanos = int(release.time.timestamp()) * 10**9
                if now - nanos > self._release_nanos and extents[service].last > nanos:
                    due[service] = answers.FleetRelease(number=release.number, time=format_time(nanos))
        return due


def _services(
    extents: dict[str, Extent], surveys: dict[str, Survey], due: dict[str, answers.FleetRelease], now: int
) -> list[answers.FleetService]:
    """Return the services, the largest total of this week first."""
    found = []
    for service, survey in surveys.items():
        found.append(
            answers.FleetService(
                service=service,
                profiles=extents[service].blobs,
                every=survey.every,
                newest=format_time(extents[service].last),
                days=survey.days.tolist(),
                total=survey.total,
                base_total=survey.base_total,
                change=None if survey.change is None else _change(survey.change),
                stopped=_has_stopped(extents[service], now),
                release_due=due.get(service),
            )
        )
    found.sort(key=lambda each: (-each.total, -each.base_total, each.service))
    return found


def _counts(services: Sequence[answers.FleetService]) -> answers.FleetCounts:
    return answers.FleetCounts(
        services=len(services),
        changed=sum(each.change is not None for each in services),
        stopped=sum(each.stopped for each in services),
        release_due=sum(each.release_due is not None for each in services),
    )


def _change(change: Change) -> answers.FleetChange:
    interval = change.interval
    return answers.FleetChange(
        name=change.name,
        now_share=change.now_share,
        base_share=change.base_share,
        difference=change.now_share - change.base_share,
        interval=None
        if interval is None
        else answers.SharesInterval(**interval._asdict(), noise=interval.is_noise),
    )


def _has_stopped(extent: Extent, now: int) -> bool:
    """Return whether a service that sent several profiles has missed several of its usual intervals."""
    if extent.blobs < 2:  # one profile has no interval
        return False
    usual = (extent.last - extent.first) // (extent.blobs - 1)
    return now - extent.last > max(_SHORTEST_SILENCE, _MISSED * usual)


def _rows(surveys: dict[str, Survey], by: Grouping, n_rows: int, search: str) -> list[answers.FleetRow]:
    """Return the names with the largest values of this week in all services."""
    total = sum(survey.total for survey in surveys.values())
    sums: Counter[str] = Counter()
    for survey in surveys.values():
        sums.update(survey.tables.get(by, {}))
    system_names = (each for survey in surveys.values() for each in survey.system_names.items())
    names = [*filter(name_finder(search, system_names), sums)]
    names.sort(key=lambda name: (-abs(sums[name]), name))
    return [
        answers.FleetRow(
            name=name,
            flat=sums[name],
            flat_share=share_of(sums[name], total),
            services=sorted(
                (
                    answers.FleetValue(service=service, flat=value)
                    for service, survey in surveys.items()
                    if (value := survey.tables.get(by, {}).get(name, 0))
                ),
                key=lambda each: (-abs(each.flat), each.service),
            )[:_MOST_SERVICES_A_ROW],
        )
        for name in names[:n_rows]
    ]


def _is_found(name: str, search: str) -> bool:
    return search.casefold() in name.casefold()
