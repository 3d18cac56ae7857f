"""A cache of selections' fingerprints and coarse flags, as the catalog last read them.

An entry is valid for one version of its service's and type's blobs: see `changes`. A selection that begins
later, as `last=7d` does with every request, has the same state as long as no blob lies between the two
begins.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import sqlalchemy as sa

from pgo_collector.catalog.selection_sql import (
    has_others_than,
    is_coarse,
    selected,
    selected_parts,
    straddles_begin,
)
from pgo_collector.catalog.tables import BLOBS
from pgo_collector.model.selection import EVERY_SERVICE, Coarse, Selection

# Entries for selections that differ in their begin only, and selections apart from that.
_MOST_BEGINS = 4
_MOST_SELECTIONS = 1000


@dataclass(frozen=True, slots=True)
class SelectionState:
    """The state of a selection: the fingerprint of its live blobs, and how it is finer than they are.

    The state is the same for every later begin up to `until`, in ns since 1970.
    """

    fingerprint: str
    coarse: Coarse
    until: float = inf


class _Entry(NamedTuple):
    version: Hashable
    begin: int | None
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
        begin = selection.begin
        for kept in self._entries.get(_beginless(selection), ()):
            if kept.version == version and _is_between(begin, kept.begin, kept.state.until):
                return kept.state
        return None

    def put(self, selection: Selection, version: Hashable, state: SelectionState) -> None:
        """Cache a state that was read after `version` was asked for."""
        if selection.service == EVERY_SERVICE:  # changes are counted by service only
            return
        key, kept = _beginless(selection), _Entry(version, selection.begin, state)
        with self._lock:
            others = self._entries.pop(key, ())
            current = [other for other in others if other.version == version]
            self._entries[key] = (kept, *current[: _MOST_BEGINS - 1])
            if len(self._entries) > _MOST_SELECTIONS:
                del self._entries[next(iter(self._entries))]


def read_state(connection: sa.Connection, selection: Selection) -> SelectionState:
    """Return the state of a selection in this transaction."""
    return SelectionState(
        read_fingerprint(connection, selection),
        _coarse(connection, selection),
        _holds_until(connection, selection),
    )


def read_fingerprint(connection: sa.Connection, selection: Selection) -> str:
    """Return the fingerprint of a selection: the number of its live blobs, and the sums of their marks."""
    parts = (sa.select(BLOBS.c.mark, BLOBS.c.second_mark).where(part) for part in selected_parts(selection))
    marks = sa.union_all(*parts).subquery()
    sums = sa.select(sa.func.count(), sa.func.sum(marks.c.mark), sa.func.sum(marks.c.second_mark))
    return "-".join(str(total) for total in connection.execute(sums).one())


def _coarse(connection: sa.Connection, selection: Selection) -> Coarse:
    found = frozenset(connection.execute(sa.select(BLOBS.c.id).where(is_coarse(selection))).scalars())
    keys = {
        matcher.key
        for matcher in (selection.matchers if found else ())
        if connection.execute(sa.select(sa.exists().where(has_others_than(selection, matcher)))).scalar_one()
    }
    return Coarse(found, tuple(sorted(keys)))


def _holds_until(connection: sa.Connection, selection: Selection) -> float:
    """Return the latest begin with which the state is the same, in ns since 1970; inf if there is no bound.

    It is the earliest of two times: when the first selected blob begins that begins with the selection or
    after it, and when the first combined blob ends that began before it.
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
