"""States of selections, as the catalog last told them, for as long as they hold.

That is until a blob of the service and type comes or goes, and all of that goes through this process: no
other one changes a catalog that is being served. A selection that begins later, as `last=7d` does with every
request, is in the same state as long as no blob lies in between.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import sqlalchemy as sa

from pgo_collector.catalog.selection_sql import has_others_than, is_coarse, selected, straddles_begin
from pgo_collector.catalog.tables import BLOBS
from pgo_collector.model.selection import EVERY_SERVICE, Coarse, Selection

# Selections that differ in when they begin, or in more than that.
_MOST_BEGINS = 4
_MOST_SELECTIONS = 1000


@dataclass(frozen=True, slots=True)
class SelectionState:
    """What is selected: one text for the same live blobs, and where the selection is finer than they are.

    It is the same for every later begin up to `until`, in ns since 1970.
    """

    fingerprint: str
    coarse: Coarse
    until: float = inf


class _Entry(NamedTuple):
    generation: int
    begin: int | None
    state: SelectionState


class FingerprintCache:
    """Those that were read last. Whoever reads one asks first how often there was a change: if there is
    another one meanwhile, what was read is never found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generations: Counter[tuple[str, str]] = Counter()
        self._entries: dict[Selection, tuple[_Entry, ...]] = {}

    def generation(self, selection: Selection) -> int:
        """How often what is stored of its service and type has changed."""
        return self._generations[selection.service, selection.type]

    def invalidate(self, service: str, type_: str) -> None:
        """Blobs of these have come or gone, or may have: to be told before anybody may rely on it."""
        with self._lock:
            self._generations[service, type_] += 1

    def get(self, selection: Selection) -> SelectionState | None:
        """The state that it has now, if it is known."""
        generation, begin = self.generation(selection), selection.begin
        for kept in self._entries.get(_beginless(selection), ()):
            if kept.generation == generation and _is_between(begin, kept.begin, kept.state.until):
                return kept.state
        return None

    def put(self, selection: Selection, generation: int, state: SelectionState) -> None:
        """The state was read after so many generation."""
        if selection.service == EVERY_SERVICE:  # whose generation nobody counts
            return
        key, kept = _beginless(selection), _Entry(generation, selection.begin, state)
        with self._lock:
            others = self._entries.pop(key, ())
            current = [other for other in others if other.generation == generation]
            self._entries[key] = (kept, *current[: _MOST_BEGINS - 1])
            if len(self._entries) > _MOST_SELECTIONS:
                del self._entries[next(iter(self._entries))]


def read_state(connection: sa.Connection, selection: Selection) -> SelectionState:
    """The state as of a transaction."""
    return SelectionState(
        read_fingerprint(connection, selection),
        _coarse(connection, selection),
        _holds_until(connection, selection),
    )


def read_fingerprint(connection: sa.Connection, selection: Selection) -> str:
    """That of the state."""
    sums = sa.select(sa.func.count(), sa.func.sum(BLOBS.c.mark), sa.func.sum(BLOBS.c.second_mark))
    return "-".join(str(total) for total in connection.execute(sums.where(selected(selection))).one())


def _coarse(connection: sa.Connection, selection: Selection) -> Coarse:
    found = frozenset(connection.execute(sa.select(BLOBS.c.id).where(is_coarse(selection))).scalars())
    keys = {
        matcher.key
        for matcher in (selection.matchers if found else ())
        if connection.execute(sa.select(sa.exists().where(has_others_than(selection, matcher)))).scalar_one()
    }
    return Coarse(found, tuple(sorted(keys)))


def _holds_until(connection: sa.Connection, selection: Selection) -> float:
    """The latest begin with which the same blobs are selected, and the same ones reach over it: where the
    first begins of those that don't, or the first ends of those that do.
    """
    begin = selection.begin
    if begin is None:
        return inf
    first = sa.select(sa.func.min(BLOBS.c.time_nanos)).where(selected(selection), BLOBS.c.time_nanos >= begin)
    ends = sa.select(sa.func.min(BLOBS.c.end_nanos)).where(straddles_begin(selection, begin))
    bounds = [connection.execute(query).scalar_one() for query in (first, ends)]
    return min((bound for bound in bounds if bound is not None), default=inf)


def _beginless(selection: Selection) -> Selection:
    return replace(selection, begin=None)


def _is_between(begin: int | None, first: int | None, last: float) -> bool:
    if begin is None or first is None:
        return begin is first
    return first <= begin <= last
