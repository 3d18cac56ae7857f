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

from pgo_collector.catalog.selecting import mixes, reaches_over, selected, straddles
from pgo_collector.catalog.tables import BLOBS
from pgo_collector.model.selection import EVERY_SERVICE, Coarse, Selection

# Selections that differ in when they begin, or in more than that.
_MOST_BEGINS = 4
_MOST_SELECTIONS = 1000


@dataclass(frozen=True, slots=True)
class State:
    """What is selected: one text for the same live blobs, and where the selection is finer than they are.

    It is the same for every later begin up to `until`, in ns since 1970.
    """

    fingerprint: str
    coarse: Coarse
    until: float = inf


class _Kept(NamedTuple):
    changes: int
    begin: int | None
    state: State


class FingerprintCache:
    """Those that were read last. Whoever reads one asks first how often there was a change: if there is
    another one meanwhile, what was read is never found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: Counter[tuple[str, str]] = Counter()
        self._kept: dict[Selection, tuple[_Kept, ...]] = {}

    def changes(self, selection: Selection) -> int:
        """How often what is stored of its service and type has changed."""
        return self._changes[selection.service, selection.type]

    def changed(self, service: str, type_: str) -> None:
        """Blobs of these have come or gone, or may have: to be told before anybody may rely on it."""
        with self._lock:
            self._changes[service, type_] += 1

    def find(self, selection: Selection) -> State | None:
        """The state that it has now, if it is known."""
        changes, begin = self.changes(selection), selection.begin
        for kept in self._kept.get(_beginless(selection), ()):
            if kept.changes == changes and _is_between(begin, kept.begin, kept.state.until):
                return kept.state
        return None

    def keep(self, selection: Selection, changes: int, state: State) -> None:
        """The state was read after so many changes."""
        if selection.service == EVERY_SERVICE:  # whose changes nobody counts
            return
        key, kept = _beginless(selection), _Kept(changes, selection.begin, state)
        with self._lock:
            others = self._kept.pop(key, ())
            current = [other for other in others if other.changes == changes]
            self._kept[key] = (kept, *current[: _MOST_BEGINS - 1])
            if len(self._kept) > _MOST_SELECTIONS:
                del self._kept[next(iter(self._kept))]


def read_state(connection: sa.Connection, selection: Selection) -> State:
    """The state as of a transaction."""
    return State(
        read_fingerprint(connection, selection),
        _coarse(connection, selection),
        _holds_until(connection, selection),
    )


def read_fingerprint(connection: sa.Connection, selection: Selection) -> str:
    """That of the state."""
    sums = sa.select(sa.func.count(), sa.func.sum(BLOBS.c.mark), sa.func.sum(BLOBS.c.second_mark))
    return "-".join(str(total) for total in connection.execute(sums.where(selected(selection))).one())


def _coarse(connection: sa.Connection, selection: Selection) -> Coarse:
    found = frozenset(connection.execute(sa.select(BLOBS.c.id).where(reaches_over(selection))).scalars())
    keys = {
        matcher.key
        for matcher in (selection.matchers if found else ())
        if connection.execute(sa.select(sa.exists().where(mixes(selection, matcher)))).scalar_one()
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
    ends = sa.select(sa.func.min(BLOBS.c.end_nanos)).where(straddles(selection, begin))
    bounds = [connection.execute(query).scalar_one() for query in (first, ends)]
    return min((bound for bound in bounds if bound is not None), default=inf)


def _beginless(selection: Selection) -> Selection:
    return replace(selection, begin=None)


def _is_between(begin: int | None, first: int | None, last: float) -> bool:
    if begin is None or first is None:
        return begin is first
    return first <= begin <= last
