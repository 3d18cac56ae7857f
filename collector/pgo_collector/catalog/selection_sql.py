"""Selections as SQL: conditions on the rows of BLOBS and SERIES, for the queries of this room."""

from __future__ import annotations

from functools import lru_cache

import sqlalchemy as sa

from pgo_collector.catalog.statements import fits_pattern, is_found
from pgo_collector.catalog.tables import BLOBS, IS_COMBINED, IS_LIVE, LABELS, ORIGINS, SERIES
from pgo_collector.model.ids import DIGITS
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import EVERY_SERVICE, Scope
from pgo_collector.model.services import is_several, services_of

# The time of a combined blob. An expression and not the column: there are few combined blobs, and SQLite
# would otherwise use the index of all times.
_BEGINS = BLOBS.c.time_nanos + 0


def selected(selection: Selection) -> sa.ColumnElement[bool]:
    """Return the condition that a row of BLOBS is live and in the selection."""
    chosen = _chosen(selection)
    return chosen | _combined(selection) if _can_be_coarse(selection) else chosen


def selected_parts(selection: Selection) -> list[sa.ColumnElement[bool]]:
    """Return the condition of `selected` in parts, of which a row fulfils one at most.

    For the first part, databases search an index that has the times and the marks, too. They read the table
    where both parts are joined by OR.
    """
    chosen = _chosen(selection)
    return [chosen, _combined(selection) & ~chosen] if _can_be_coarse(selection) else [chosen]


def _chosen(selection: Selection) -> sa.ColumnElement[bool]:
    """Return the condition that a row is live, and of a selected series and time."""
    chosen = is_found(BLOBS.c.series_id, selected_series(selection)) & IS_LIVE
    if selection.begin is not None:
        chosen &= BLOBS.c.time_nanos >= selection.begin
    if selection.end is not None:
        chosen &= BLOBS.c.time_nanos < selection.end
    return chosen & _has_id(selection)


def _has_id(selection: Selection) -> sa.ColumnElement[bool]:
    """Return the condition that a row has one of the selected ids, if the selection has any."""
    profiles = selection.ids.profiles
    return sa.func.substr(BLOBS.c.digest, 1, DIGITS).in_(profiles) if profiles else sa.true()


def has_combined(selection: Selection) -> sa.ColumnElement[bool]:
    """Return the condition that a combined blob is selected, if the selection may be finer than it."""
    found = _combined(selection) if _can_be_coarse(selection) else sa.false()
    return sa.exists(sa.select(BLOBS.c.id).where(found))


def straddles_begin(selection: Selection, begin: int) -> sa.ColumnElement[bool]:
    """Return the condition that a row is a selected combined blob from before the selection's `begin`."""
    return _combined(selection) & (BLOBS.c.time_nanos < begin)


def straddles_end(selection: Selection, end: int) -> sa.ColumnElement[bool]:
    """Return the condition that a row is a selected combined blob that ends after the selection's `end`."""
    return _combined(selection) & (BLOBS.c.end_nanos >= end)


def is_coarse(selection: Selection) -> sa.ColumnElement[bool]:
    """Return the condition that a row is a selected combined blob with profiles outside the selection."""
    if not _can_be_coarse(selection):
        return sa.false()
    begin = sa.false() if selection.begin is None else BLOBS.c.time_nanos < selection.begin
    end = sa.false() if selection.end is None else BLOBS.c.end_nanos >= selection.end
    others = ORIGINS.c.series_id.not_in(selected_series(selection))
    labels = sa.exists().where(ORIGINS.c.blob_id == BLOBS.c.id, others) if selection.matchers else sa.false()
    return _combined(selection) & (begin | end | labels)


def has_others_than(selection: Selection, matcher: Matcher) -> sa.ColumnElement[bool]:
    """Return the condition that a row is a selected combined blob with profiles that don't match."""
    other = (ORIGINS.c.blob_id == BLOBS.c.id) & (ORIGINS.c.series_id == SERIES.c.id) & ~_matched(matcher)
    return _combined(selection) & sa.exists().where(other)


def _can_be_coarse(selection: Selection) -> bool:
    return bool(selection.matchers) or selection.begin is not None or selection.end is not None


def _combined(selection: Selection) -> sa.ColumnElement[bool]:
    """Return the condition that a row is a live combined blob in the selection; there are few.

    The blob's time overlaps with the selection's. Where a roll-up dropped labels, the series of the profiles
    inside decide, besides the blob's own.
    """
    meant = [IS_LIVE, IS_COMBINED, _has_id(selection)]
    if selection.begin is not None:
        meant.append(BLOBS.c.end_nanos >= selection.begin)
    if selection.end is not None:
        meant.append(selection.end > _BEGINS)
    blobs = sa.select(BLOBS.c.id).where(*meant)
    series = selected_series(selection)
    by_series = is_found(BLOBS.c.id, blobs.where(BLOBS.c.series_id.in_(series)))
    if not selection.matchers:
        return by_series
    inside = sa.select(ORIGINS.c.blob_id).where(ORIGINS.c.series_id.in_(series))
    return by_series | is_found(BLOBS.c.id, blobs.where(BLOBS.c.id.in_(inside)))


def in_scope(scope: Scope) -> sa.ColumnElement[bool]:
    """Return the condition that a row of SERIES is of a service that a key is for.

    Each query across services has it, so that no answer, bound or refusal depends on others.
    """
    if scope.is_every:
        return sa.true()
    names = [pattern for pattern in scope.patterns if "*" not in pattern]
    patterns = [pattern for pattern in scope.patterns if "*" in pattern]
    fits = SERIES.c.service.in_(names)
    return fits | fits_pattern(SERIES.c.service, patterns) if patterns else fits


def series_in_scope(scope: Scope) -> sa.Select[tuple[int]]:
    """Return the query for the ids of the series of services that a key is for."""
    return sa.select(SERIES.c.id).where(in_scope(scope))


def _of_service(service: str) -> sa.ColumnElement[bool]:
    """Return the condition that a row of SERIES is of a service, of several, or of EVERY_SERVICE."""
    if is_several(service):
        return SERIES.c.service.in_(services_of(service))
    return sa.true() if service == EVERY_SERVICE else SERIES.c.service == service


def selected_series(selection: Selection) -> sa.Select[tuple[int]]:
    """Return the query for the ids of the selected series.

    If there are matchers, a series whose labels a roll-up dropped isn't selected: ORIGINS has its inputs.
    """
    return _series(selection.service, selection.type, selection.matchers)


@lru_cache(maxsize=16)
def _series(service: str, type_: str, matchers: tuple[Matcher, ...]) -> sa.Select[tuple[int]]:
    """Return the query of `selected_series`: one object for all statements about a selection.

    SQLAlchemy takes longer to build this part than all others, and finds a statement in its cache sooner
    where the same object is in it several times.
    """
    return sa.select(SERIES.c.id).where(
        _of_service(service),
        SERIES.c.type == type_,
        ~SERIES.c.rolled_up if matchers else sa.true(),
        *map(_matched, matchers),
    )


def _matched(matcher: Matcher) -> sa.ColumnElement[bool]:
    """Return the condition that the labels of a row of SERIES match."""
    same_key = (LABELS.c.series_id == SERIES.c.id) & (LABELS.c.key == matcher.key)
    fits: sa.ColumnElement[bool] = sa.exists().where(same_key, LABELS.c.value.in_(matcher.values))
    if "" in matcher.values:
        fits = fits | ~sa.exists().where(same_key)
    return ~fits if matcher.is_negated else fits
