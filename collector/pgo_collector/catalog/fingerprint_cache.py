"""A cache of selections' fingerprints and coarse flags, as the catalog last read them.

An entry is valid for one version of its service's and type's blobs: see `database.Changes`. A selection that
begins and ends later, as `last=7d` does with every request, has the same state as long as no blob lies
between the two begins, or the two ends.
"""

from __future__ import annotations

import threading
import time
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
    straddles_end,
)
from pgo_collector.catalog.tables import BLOBS
from pgo_collector.model.selection import Coarse, Selection
from pgo_collector.model.series import EVERY_SERVICE

# Entries for selections that differ in their times only, and selections apart from that.
_MOST_TIMES = 16
_MOST_SELECTIONS = 1000
_PAST_NANOS = 60 * 10**9


@dataclass(frozen=True, slots=True)
class SelectionState:
    """The state of a selection: the fingerprint of its live blobs and ids, and how it is finer than they are.

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
        for kept in self._entries.get(replace(selection, begin=None, end=None), ()):
            bounds = (
                (kept.begin, selection.begin, kept.state.until),
                (kept.end, selection.end, kept.state.end_until),
            )
            if kept.version == version and all(
                then == asked or (then is not None and asked is not None and then <= asked <= until)
                for then, asked, until in bounds
            ):
                return kept.state
        return None

    def put(self, selection: Selection, version: Hashable, state: SelectionState) -> None:
        """Cache a state that was read after `version` was asked for."""
        if selection.service == EVERY_SERVICE:  # changes are counted by service only
            return
        key = replace(selection, begin=None, end=None)
        kept = _Entry(version, selection.begin, selection.end, state)
        with self._lock:
            others = self._entries.pop(key, ())
            current = [other for other in others if other.version == version]
            self._entries[key] = (kept, *current[: _MOST_TIMES - 1])
            if len(self._entries) > _MOST_SELECTIONS:
                del self._entries[next(iter(self._entries))]


def read_state(connection: sa.Connection, selection: Selection) -> SelectionState:
    """Return the state of a selection in this transaction."""
    fingerprint, until, end_until = _read_fingerprint(connection, selection)
    fingerprint = f"{fingerprint} {selection.ids.text}".rstrip()
    if not connection.execute(sa.select(has_combined(selection))).scalar_one():
        return SelectionState(fingerprint, Coarse(frozenset(), ()), until, end_until)
    if selection.begin is not None:
        until = min(until, _first_end(connection, straddles_begin(selection, selection.begin)))
    if selection.end is not None:
        end_until = min(end_until, _first_end(connection, straddles_end(selection, selection.end)))
    return SelectionState(fingerprint, _coarse(connection, selection), until, end_until)


def _read_fingerprint(connection: sa.Connection, selection: Selection) -> tuple[str, float, float]:
    """Return the fingerprint of a selection: the number of its live blobs, and the sums of their marks.

    Return with it, in ns since 1970, when the first blob begins that doesn't begin before the selection, and
    when the first one begins after its end; inf where there is none, or no such bound.

    Few blobs are after an end that moves with the clock, so they are read, too. An end of more than a minute
    ago stays, and is returned itself: a client asks for it again as it is.
    """
    begin, end = selection.begin, selection.end
    moves = end is not None and end >= time.time_ns() - _PAST_NANOS
    parts = selected_parts(replace(selection, end=None) if moves else selection)
    columns = (BLOBS.c.mark, BLOBS.c.second_mark, BLOBS.c.time_nanos)
    found = sa.union_all(*(sa.select(*columns).where(part) for part in parts)).subquery()
    begins = found.c.time_nanos
    inside = begins < end if moves else sa.true()
    totals = (
        each.filter(inside)
        for each in (sa.func.count(), *map(sa.func.sum, (found.c.mark, found.c.second_mark)))
    )
    first = sa.null() if begin is None else sa.func.min(begins).filter(begins >= begin)
    after = sa.func.min(begins).filter(begins >= end) if moves else sa.literal(end)
    *sums, until, end_until = connection.execute(sa.select(*totals, first, after)).one()
    return "-".join(map(str, sums)), _or_inf(until), _or_inf(end_until)


def _coarse(connection: sa.Connection, selection: Selection) -> Coarse:
    found = frozenset(connection.execute(sa.select(BLOBS.c.id).where(is_coarse(selection))).scalars())
    keys = {
        matcher.key
        for matcher in (selection.matchers if found else ())
        if connection.execute(sa.select(sa.exists().where(has_others_than(selection, matcher)))).scalar_one()
    }
    return Coarse(found, tuple(sorted(keys)))


def _first_end(connection: sa.Connection, straddles: sa.ColumnElement[bool]) -> float:
    """Return when the first combined blob ends that straddles a bound, in ns; inf if none does."""
    ends = sa.select(sa.func.min(BLOBS.c.end_nanos)).where(straddles)
    return _or_inf(connection.execute(ends).scalar_one())


def _or_inf(nanos: int | None) -> float:
    return inf if nanos is None else nanos
