"""The profiles that clients of the querier select: which there are, and what workers make of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from pgo_collector.catalog.series_index import SeriesIndex, StoredSeries
from pgo_collector.engine.sample_types import read_kinds
from pgo_collector.http.keys import Scope
from pgo_collector.model.profile_types import OTHER
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.routes.pyroscope.matching import PROFILE_NAME, Kinds, Match, Selectors, Series, Span
from pgo_collector.routes.pyroscope.profile_types import READ, types_of_kind
from pgo_collector.store.store import Store

# Names of profiles of which one is read for what it measures.
_MOST_READ = 50


class QueryLimits(NamedTuple):
    """How many label values or series an answer or a selection may have."""

    labels: int


class Profiles:
    """Finds the profiles that selectors mean."""

    def __init__(self, store: Store, limits: QueryLimits) -> None:
        self._store = store
        self._limits = limits

    @property
    def most_labels(self) -> int:
        """Return how many label values or series an answer may have."""
        return self._limits.labels

    async def match(self, scope: Scope, selectors: Selectors, span: Span) -> Match:
        """Return the series of a key's services that match. Raises ParameterInvalid or WorkerUnavailable."""
        index = SeriesIndex(self._store.catalog)
        series = await asyncio.to_thread(Series, index, scope, span, self._limits.labels)
        kinds = await self._read_kinds(series)
        return await asyncio.to_thread(series.match, selectors, kinds)

    async def _read_kinds(self, series: Series) -> Kinds:
        """Return the kinds of types whose profiles may measure anything, from the newest of each name."""
        last: dict[tuple[str, str], StoredSeries] = {
            series.kind_key(each): each for each in series.stored if each.type in READ
        }
        if not last:
            return Kinds({})
        named = [*last.items()][-_MOST_READ:]
        selections = [_selection(each, name, series.span) for (_, name), each in named]
        blobs = await asyncio.to_thread(series.index.newest, selections)
        folder = self._store.folder.blobs
        paths = [folder / str(blob.name) for blob in blobs]
        kinds = await self._store.workers.run(read_kinds, paths)
        found = {}
        for blob, kind in zip(blobs, kinds, strict=True):
            if kind is not None:
                type_, name = blob.name.series.type, dict(blob.name.series.labels).get(PROFILE_NAME, "")
                key = (type_, name if type_ == OTHER else "")
                every = types_of_kind(key[1] or type_, *kind)
                found[key] = tuple(each for each in every if not any(":" in part for part in each))
        return Kinds(found)


def _selection(series: StoredSeries, name: str, span: Span) -> Selection:
    matchers: Sequence[Matcher] = [Matcher(PROFILE_NAME, frozenset([name]))] if name else []
    return Selection(series.service, series.type, tuple(matchers), span.begin, span.end)
