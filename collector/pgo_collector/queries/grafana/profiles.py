"""The profiles that clients of the querier select: which there are, and what workers make of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from pgo_collector.catalog.series_index import SeriesIndex, StoredSeries
from pgo_collector.engine.sample_types import Kind, read_kinds
from pgo_collector.errors import ParameterInvalid
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.ids import ANY_ID, Ids
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import PROFILE_NAME, Scope, name_of_profile
from pgo_collector.model.series import Series as BlobSeries
from pgo_collector.queries.fleet import MAX_SERVICES
from pgo_collector.queries.grafana.matching import (
    KindKey,
    Kinds,
    Match,
    Selectors,
    Series,
    Span,
)
from pgo_collector.queries.grafana.profile_types import (
    READ,
    VARIED,
    ProfileType,
    parse_profile_type,
    types_read,
)
from pgo_collector.queries.grafana.selector import LabelMatcher, check_count, parse_selector
from pgo_collector.store.store import Store
from pgo_collector.workers.blob_tasks import check_none_is_gone, until_none_is_gone
from pgo_collector.workers.pool import Workers

# Services, with their types and names of profiles, of which one profile is read for what it measures.
_MOST_READ = 50


class QueryLimits(NamedTuple):
    """How many label values or series, calls of a flame graph and points of series an answer may have."""

    labels: int
    nodes: int
    points: int


# Grafana's data source asks for as many calls unless its user says another number.
_MOST_LABELS, _MOST_NODES, _MOST_POINTS = 10_000, 16_384, 100_000


@dataclass(frozen=True, slots=True)
class Query:
    """The query of a call: one profile type of the series that match all matchers, in a range of time.

    It reads the stacks of these profiles that begin with `calls`, the root first, and those of `ids`.
    """

    type: ProfileType
    matchers: tuple[LabelMatcher, ...]
    span: Span
    calls: tuple[str, ...] = ()
    ids: Ids = ANY_ID

    @classmethod
    def of(cls, profile_type: str, selector: str, start: int, end: int) -> Query:
        """Return the query of a call; times are in ms since 1970. Raises ParameterInvalid."""
        matchers = parse_selector(selector)
        check_count(matchers)
        return cls(parse_profile_type(profile_type), matchers, Span.of(start, end))


@dataclass(frozen=True, slots=True)
class Selected:
    """The selections, each of one service and type, with a query's profiles, and the series they are of."""

    selections: list[Selection]
    series: Series


class Profiles:
    """Finds the profiles that selectors and queries mean."""

    def __init__(self, store: Store, workers: Workers) -> None:
        self._store = store
        self._workers = workers
        self._limits = QueryLimits(_MOST_LABELS, _MOST_NODES, _MOST_POINTS)

    @property
    def limits(self) -> QueryLimits:
        """Return what an answer may have."""
        return self._limits

    async def match(self, scope: Scope, selectors: Selectors, span: Span) -> Match:
        """Return the series of a key's services that match. Raises ParameterInvalid or WorkerUnavailable."""
        index = SeriesIndex(self._store.catalog, scope)
        series = await asyncio.to_thread(Series, index, span, self._limits.labels)
        kinds = await self._read_kinds(series)
        return await asyncio.to_thread(series.match, selectors, kinds)

    async def select(self, scope: Scope, query: Query) -> Selected:
        """Return the selections of a query; none if no profile matches.

        Raises ParameterInvalid or WorkerUnavailable.
        """
        match = await self.match(scope, [query.matchers], query.span)
        selections = await asyncio.to_thread(_selections, match, query)
        if len(selections) > MAX_SERVICES:
            raise ParameterInvalid(
                f"label selector: {len(selections):,} services and types match; the limit is"
                f" {MAX_SERVICES:,}; select less with service_name"
            )
        return Selected(selections, match.names)

    async def _read_kinds(self, series: Series) -> Kinds:
        """Return the kinds of profiles that may measure more than is listed, from the newest of each service.

        Where there are too many services, at least one is read of each name that nothing is listed for.
        """
        last: dict[KindKey, StoredSeries] = {
            series.kind_key(each): each for each in series.stored if each.type in READ | VARIED
        }
        if not last:
            return Kinds({})
        unlisted = {(key.type, key.name): key for key in last if key.type in READ}
        first = dict.fromkeys([*reversed(unlisted.values()), *reversed(last)])
        chosen = [*islice(first, _MOST_READ)]
        selections = [_selection(last[key], key.name, series.span) for key in chosen]
        kinds = await until_none_is_gone(lambda: self._kinds_of_newest(series.index, selections))
        found = {}
        for of_blob, kind in kinds:
            name = name_of_profile(of_blob.type, dict(of_blob.labels).get(PROFILE_NAME, ""))
            found[KindKey(of_blob.service, of_blob.type, name)] = types_read(of_blob.type, name, kind)
        return Kinds(found)

    async def _kinds_of_newest(
        self, index: SeriesIndex, selections: Sequence[Selection]
    ) -> list[tuple[BlobSeries, Kind]]:
        """Return the kind of the newest profile of each selection, where it can be read, and its series."""
        blobs = await asyncio.to_thread(index.newest, selections)
        names = [str(blob.name) for blob in blobs]
        kinds = await self._workers.run(read_kinds, self._store.blobs.storage, names)
        unread = [name for name, kind in zip(names, kinds, strict=True) if kind is None]
        left_out = [LeftOut(name, "it can't be read", is_damaged=True) for name in unread]
        await check_none_is_gone(self._store.catalog, left_out)
        found = zip(blobs, kinds, strict=True)
        return [(blob.name.series, kind) for blob, kind in found if kind is not None]


def _selections(match: Match, query: Query) -> list[Selection]:
    """Return the selections of those matching series whose profiles are of the query's type."""
    measuring = {
        series: types
        for series, types in match.series.items()
        if any(query.type.measures_as(each) for each in types)
    }
    selections = match.names.selections(query.matchers, Match(measuring, match.names))
    return [replace(each, ids=query.ids) for each in selections]


def _selection(series: StoredSeries, name: str, span: Span) -> Selection:
    matchers: Sequence[Matcher] = [Matcher(PROFILE_NAME, frozenset([name]))] if name else []
    return Selection(series.service, series.type, tuple(matchers), span.begin, span.end)
