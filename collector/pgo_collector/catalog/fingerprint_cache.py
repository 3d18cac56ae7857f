"""A cache of selections' fingerprints and coarse flags, as the catalog last read them.

An entry is valid for one version of its service's and type's blobs: see `database.Changes`. A selection that
begins and ends later, as `last=7d` does with every request, has the same state as long as no blob lies
between the two begins, or the two ends.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import sqlalchemy as sa

from pgo_collector.catalog.selection_sql import (
    has_combined,
    has_others_than,
    is_coarse,
    selected_parts,
    straddles_begin,
)
from pgo_collector.catalog.tables import BLOBS
from pgo_collector.model.selection import Coarse, Selection
from pgo_collector.model.series import EVERY_SERVICE

# Entries for selections that differ in their times only, and selections apart from that.
_MOST_TIMES = 16
_MOST_SELECTIONS = 1000


@dataclass(frozen=True, slots=True)
class SelectionState:
    """The state of a selection: the fingerprint of its live blobs, and how it is finer than they are.

    The state is the same for every later begin up to `until`, and every later end up to `end_until`, in ns
    since 1970.
    """

    fingerprint: str
    coarse: Coarse
    until: float = inf
    end_until: float = inf


class _Entry(NamedTuple):
    version: Hashable
    begin: int | None
    end: int | None
    state: SelectionState


class FingerprintCache:
    """The states that were read last, each with the version of the blobs of its service and type.

    Ask for the version before you read a state, and `put` it with that. If a blob comes or goes meanwhile,
    the entry is of an old version, and `get` never returns it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[Selection, tuple[_Entry, ...]] = {}

    def get(self, selection: Selection, version: Hashable) -> SelectionState | None:
        """Return the state of a selection at a version; None if it isn't cached."""
        for kept in self._entries.get(_timeless(selection), ()):
            if (
                kept.version == version
                and _is_as_at(kept.begin, selection.begin, kept.state.until)
                and _is_as_at(kept.end, selection.end, kept.state.end_until)
            ):
                return kept.state
        return None

    def put(self, selection: Selection, version: Hashable, state: SelectionState) -> None:
        """Cache a state that was read after `version` was asked for."""
        if selection.service == EVERY_SERVICE:  # changes are counted by service only
            return
        key, kept = _timeless(selection), _Entry(version, selection.begin, selection.end, state)
        with self._lock:
            others = self._entries.pop(key, ())
            current = [other for other in others if other.version == version]
            self._entries[key] = (kept, *current[: _MOST_TIMES - 1])
            if len(self._entries) > _MOST_SELECTIONS:
                del self._entries[next(iter(self._entries))]


def _timeless(selection: Selection) -> Selection:
    return replace(selection, begin=None, end=None)


def _is_as_at(kept: int | None, asked: int | None, until: float) -> bool:
    """Return whether a state that was kept for one bound is that for another."""
    return kept == asked or (kept is not None and asked is not None and kept <= asked <= until)


def read_state(connection: sa.Connection, selection: Selection) -> SelectionState:
    """Return the state of a selection in this transaction."""
    fingerprint, first = _read_fingerprint(connection, selection)
    end_until = _next_after(connection, selection)
    if not connection.execute(sa.select(has_combined(selection))).scalar_one():
        return SelectionState(fingerprint, Coarse(frozenset(), ()), first, end_until)
    until = min(first, _first_end(connection, selection))
    return SelectionState(fingerprint, _coarse(connection, selection), until, end_until)


def _next_after(connection: sa.Connection, selection: Selection) -> float:
    """Return when the first profile after a selection's end was taken, in ns; inf if there is none.

    A combined blob from before the end counts by its end.
    """
    if selection.end is None:
        return inf
    end = selection.end
    parts = selected_parts(replace(selection, begin=end, end=None))
    time_nanos = sa.case((BLOBS.c.time_nanos >= end, BLOBS.c.time_nanos), else_=BLOBS.c.end_nanos)
    found = (
        connection.execute(sa.select(sa.func.min(time_nanos)).where(part)).scalar_one() for part in parts
    )
    return min((time for time in found if time is not None), default=inf)


def _read_fingerprint(connection: sa.Connection, selection: Selection) -> tuple[str, float]:
    """Return the fingerprint of a selection: the number of its live blobs, and the sums of their marks.

    Return with it when the first of them begins that begins with the selection or after it, in ns since 1970;
    inf if there is none, or the selection has no begin.
    """
    columns = (BLOBS.c.mark, BLOBS.c.second_mark, BLOBS.c.time_nanos)
    found = sa.union_all(*(sa.select(*columns).where(part) for part in selected_parts(selection))).subquery()
    begin, time_nanos = selection.begin, found.c.time_nanos
    later = sa.null() if begin is None else sa.case((time_nanos >= begin, time_nanos))
    totals = sa.func.count(), sa.func.sum(found.c.mark), sa.func.sum(found.c.second_mark)
    *sums, first = connection.execute(sa.select(*totals, sa.func.min(later))).one()
    return "-".join(map(str, sums)), inf if first is None else first


def _coarse(connection: sa.Connection, selection: Selection) -> Coarse:
    found = frozenset(connection.execute(sa.select(BLOBS.c.id).where(is_coarse(selection))).scalars())
    keys = {
        matcher.key
        for matcher in (selection.matchers if found else ())
        if connection.execute(sa.select(sa.exists().where(has_others_than(selection, matcher)))).scalar_one()
    }
    return Coarse(found, tuple(sorted(keys)))


def _first_end(connection: sa.Connection, selection: Selection) -> float:
    """Return when the first combined blob ends that began before the selection, in ns; inf if none did."""
    if selection.begin is None:
        return inf
    ends = sa.select(sa.func.min(BLOBS.c.end_nanos)).where(straddles_begin(selection, selection.begin))
    end: int | None = connection.execute(ends).scalar_one()
    return inf if end is None else end
