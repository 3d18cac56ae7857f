"""The releases of a service: a pipeline gets the same bytes until a bound says that a rebuild pays off.

A request for the release compares it with the merge, if the merge has changed and the last comparison is long
enough ago. If the comparison fails, pipelines get the same release as before.

Several collectors may do so at once. A release is made from the current one as of when no release had its
number: if another collector has made it by then, all is looked at again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import structlog
from pprof_merge.formats import Format
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.blobs.storage import StoredObject
from pgo_collector.errors import (
    MergeDamaged,
    NoSuchRelease,
    NotStored,
    Refusal,
    ReleaseDamaged,
    TooManyReleaseSets,
)
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import Scope, Series
from pgo_collector.model.services import ServiceWeights, is_several, release_folder, services_of
from pgo_collector.releases import records
from pgo_collector.releases.candidates import Candidate, Candidates
from pgo_collector.releases.folder import Releases, release_sets
from pgo_collector.releases.release import Reason, ReleaseRule
from pgo_collector.releases.renditions import OpenRelease, ReleaseRenditions
from pgo_collector.releases.reports import Reports
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import Binaries
from pgo_collector.store.store import not_stored

T = TypeVar("T")

# How many sets of several services, each with its weights, may have releases.
_MOST_SETS = 100
# Attempts to make the release with a number that another collector seems to make, and the pause after each.
_TRIES, _PAUSE_SECONDS = 8, 0.25
_log = structlog.get_logger()


class ServiceReleases:
    """The releases of one service, or of several. One request of this process at a time changes them; the
    next one checks again first. The memory of past comparisons saves some, and decides nothing.
    """

    def __init__(
        self,
        service: str,
        weights: ServiceWeights,
        releases: Releases,
        candidates: Candidates,
        *,
        reports: Reports,
        binaries: Binaries,
        settings: Settings,
    ) -> None:
        self.service = service
        self._weights = weights
        self._store = reports.store
        self._releases = releases
        self._renditions = ReleaseRenditions(service, self._releases, binaries, settings.output_budget)
        self._candidates = candidates
        self._reports = reports
        self._rule = ReleaseRule(settings.release_overlap, settings.release_days)
        self._pause_seconds = settings.release_check_seconds
        self._kept = settings.releases_kept
        self._changing = asyncio.Lock()
        self._next_check = 0.0
        self._compared: tuple[int, str] | None = None

    async def current(self, wanted: Format) -> OpenRelease:
        """Return the current release. Make one first if there is none yet, or if a bound is passed.

        Raises NothingToMerge, NotOfThisProfile, RulesUnreadable, ReleaseDamaged, NotStored or
        WorkerUnavailable.
        """
        with _refusals():
            if await asyncio.to_thread(self._is_check_due):
                async with self._changing:
                    if await asyncio.to_thread(self._is_check_due):
                        await self._check()
            while True:
                release = await asyncio.to_thread(self._current)
                if release is None:
                    raise NoSuchRelease("all releases have been deleted")
                with suppress(NoSuchRelease):  # it was replaced and deleted meanwhile: take the new one
                    return await self._renditions.open(release, wanted)

    async def numbered(self, number: int, wanted: Format) -> OpenRelease:
        """Return a stored release. Raises NoSuchRelease, and as `current` does."""
        with _refusals():
            return await self._renditions.open(await self.release(number), wanted)

    async def release(self, number: int) -> records.Release:
        """Return the record of a stored release. Raises NoSuchRelease or ReleaseDamaged."""
        with _refusals():
            return await asyncio.to_thread(self._releases.release, number)

    async def all(self) -> list[records.Release]:
        """Return the records of all stored releases but damaged ones, the newest first."""
        with _refusals():
            return await asyncio.to_thread(self._releases.all)

    async def choice(self) -> records.Choice | None:
        """Return which release is current; None if there is none. Raises ReleaseDamaged."""
        with _refusals():
            return await asyncio.to_thread(self._releases.choice)

    async def make(self) -> tuple[records.Release, bool]:
        """Release the current merge. Return the release, and False if the newest one had the merge already.

        It becomes the current release, unless one is pinned. Raises as `current` does.
        """
        with _refusals():
            async with self._changing:
                return await self._first(self._make)

    async def _make(self, number: int) -> tuple[records.Release, bool] | None:
        current = None
        with suppress(ReleaseDamaged):
            current = await asyncio.to_thread(self._current)
        merge = await self._candidates.merged()
        async with self._candidates.compared(merge, self._profile(current)) as candidate:
            return await self._release(number, candidate, current, "request")

    async def pin(self, number: int) -> records.Release:
        """Make a release the current one until it is unpinned. Raises NoSuchRelease or ReleaseDamaged."""
        with _refusals():
            async with self._changing:
                release = await self.release(number)
                (await asyncio.to_thread(self._releases.open, release)).close()
                await self._store.write_area(self._releases.pin, number)
                _log.info("release pinned", release=number)
                return release

    async def unpin(self, number: int) -> records.Release:
        """Apply the bounds to a pinned release again. Raises NoSuchRelease or ReleaseDamaged."""
        with _refusals():
            async with self._changing:
                release = await self.release(number)
                if await self._store.write_area(self._releases.unpin, number):
                    self._next_check = 0.0
                    _log.info("release unpinned", release=number)
                return release

    def _current(self) -> records.Release | None:
        while (choice := self._releases.choice()) is not None:
            try:
                return self._releases.release(choice.number)
            except NoSuchRelease:
                if self._releases.choice() == choice:
                    raise ReleaseDamaged(f"release {choice.number} is the current one, and missing") from None
        return None

    def _profile(self, release: records.Release | None) -> StoredObject | None:
        return None if release is None else self._releases.profile(release.number)

    def _is_check_due(self) -> bool:
        choice = self._releases.choice()
        return choice is None or (not choice.pinned and time.monotonic() >= self._next_check)

    async def _check(self) -> None:
        """Make a release if one is due. A failure is logged if there is a release; else it is raised."""
        current = await asyncio.to_thread(self._current)
        try:
            await self._first(self._release_if_due)
        except (Refusal, MergeDamaged, OSError, SQLAlchemyError) as error:
            if current is None:
                raise
            _log.warning("release not compared", release=current.number, reason=str(error))
        self._next_check = time.monotonic() + self._pause_seconds

    async def _first(self, make: Callable[[int], Awaitable[T | None]]) -> T:
        """Return what `make` returns for the number of the next release; None if another collector was first.

        It is asked again then. If no record with that number appears, that collector has died, and the next
        number is taken.
        """
        tries = 0
        while True:
            is_patient = tries < _TRIES
            number = await asyncio.to_thread(self._releases.next_number, is_patient=is_patient)
            if (made := await make(number)) is not None:
                return made
            tries += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _release_if_due(self, number: int) -> bool | None:
        """Make a release with this number if one is due. Return None if another collector makes it."""
        current = await asyncio.to_thread(self._current)
        merge, now = await self._candidates.merged(), datetime.now(UTC)
        if current is not None:
            is_compared = self._compared == (current.number, merge.etag)
            if merge.etag == current.etag or (is_compared and not self._rule.is_over(current, now)):
                merge.file.close()
                return False
        async with self._candidates.compared(merge, self._profile(current)) as candidate:
            reason = self._rule.reason(current, candidate.stats.overlap, now)
            if reason is not None:
                return await self._release(number, candidate, current, reason) and True
            if current is not None:
                self._compared = (current.number, candidate.etag)
                _log.info("release compared", release=current.number, overlap=candidate.stats.overlap)
        return False

    async def _release(
        self, number: int, candidate: Candidate, current: records.Release | None, reason: Reason
    ) -> tuple[records.Release, bool] | None:
        """Release a candidate. Return the release, and False if the newest one has the merge already.

        Return None if another collector makes the release with this number. Raises ReleaseDamaged if it
        isn't known whether one is pinned.
        """
        await self.choice()
        newest = await asyncio.to_thread(self._releases.newest)
        if newest is not None and newest.etag == candidate.etag:
            await self._store.write_area(self._make_current, newest.number)
            return newest, False
        reported, _ = await self._reports.make(Selection(self.service, CPU), weights=self._weights)
        report = json.loads(reported.report or b"null")

        def record() -> records.Release:
            return records.Release(
                number=number,
                time=datetime.now(UTC),
                reason=reason,
                replaces=None if current is None else current.number,
                etag=candidate.etag,
                left_out=candidate.left_out,
                summary=records.Summary.of(report),
                report=report,
                **asdict(candidate.stats),
            )

        release = await asyncio.to_thread(record)  # the first one imports pydantic
        return (release, True) if await self._store.write_area(self._add, candidate.part, release) else None

    def _add(self, part: Path, release: records.Release) -> bool:
        if not self._releases.add(part, release):
            return False
        _log.info("release made", release=release.number, reason=release.reason, overlap=release.overlap)
        self._make_current()
        return True

    def _make_current(self, number: int | None = None) -> None:
        """Make a release, or the newest one, current, unless one is pinned, and delete old ones."""
        self._releases.make_current(number)
        self._releases.prune(self._kept)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn failures of the disk, the catalog or the merge into NotStored, which tells clients the reason."""
    try:
        yield
    except (OSError, SQLAlchemyError) as error:
        raise not_stored("release", error) from error
    except MergeDamaged as error:
        raise NotStored(f"the release could not be made: the merge is damaged, {error}") from error


class AllReleases:
    """The releases of each service, made on first use."""

    def __init__(
        self,
        merges: Merges,
        reports: Reports,
        rules: RulesFolder,
        binaries: Binaries,
        settings: Settings,
    ) -> None:
        self._merges = merges
        self._reports = reports
        self._rules = rules
        self._binaries = binaries
        self._settings = settings
        self._of_folder: dict[str, ServiceReleases] = {}

    async def of(self, service: str, weights: ServiceWeights = ()) -> ServiceReleases:
        """Return the releases of a service, or of several with these weights.

        They are kept in memory unless a service is unknown. Raises TooManyReleaseSets if there are none of
        these services yet, and of as many other sets as may be.
        """
        folder = release_folder(service, weights)
        if folder in self._of_folder:
            return self._of_folder[folder]
        releases = Releases(self._merges.store.blobs.storage, Series(folder, CPU))
        candidates = Candidates(self._merges, service, weights, self._rules)
        made = ServiceReleases(
            service,
            weights,
            releases,
            candidates,
            reports=self._reports,
            binaries=self._binaries,
            settings=self._settings,
        )
        is_known = await asyncio.to_thread(self._is_known, service, releases)
        return self._of_folder.setdefault(folder, made) if is_known else made

    def _is_known(self, service: str, releases: Releases) -> bool:
        store = self._merges.store
        if releases.numbers():
            return True
        if is_several(service) and len(release_sets(store.blobs.storage)) >= _MOST_SETS:
            raise TooManyReleaseSets(
                f"there are releases of {_MOST_SETS:,} sets of services, the limit, and none of"
                " these services with these weights"
            )
        services = services_of(service)
        return len(store.catalog.services(scope=Scope(tuple(services)))) == len(services)
