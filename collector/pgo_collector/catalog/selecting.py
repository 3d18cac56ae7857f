"""Selections as SQL: which rows of the catalog's blobs are meant."""

from __future__ import annotations

import sqlalchemy as sa

from pgo_collector.catalog.tables import BLOBS, IS_COMBINED, IS_LIVE, LABELS, ORIGINS, SERIES
from pgo_collector.model.selection import EVERY_SERVICE, Matcher, Selection

# The time of a combined blob, of which there are few: not a column, lest SQLite take the index of all times.
_BEGINS = BLOBS.c.time_nanos + 0


def selected(selection: Selection) -> sa.ColumnElement[bool]:
    """Whether a row of BLOBS is live and meant."""
    chosen = BLOBS.c.series_id.in_(_series(selection)) & IS_LIVE
    if selection.begin is not None:
        chosen &= BLOBS.c.time_nanos >= selection.begin
    if selection.end is not None:
        chosen &= BLOBS.c.time_nanos < selection.end
    return chosen | _combined(selection) if _can_be_coarse(selection) else chosen


def straddles(selection: Selection, begin: int) -> sa.ColumnElement[bool]:
    """Whether a selected row is of a combined blob that begins before the selection does, which is then."""
    return _combined(selection) & (BLOBS.c.time_nanos < begin)


def reaches_over(selection: Selection) -> sa.ColumnElement[bool]:
    """Whether a selected row is of a combined blob that has profiles which aren't meant, too."""
    if not _can_be_coarse(selection):
        return sa.false()
    begin = sa.false() if selection.begin is None else BLOBS.c.time_nanos < selection.begin
    end = sa.false() if selection.end is None else BLOBS.c.end_nanos >= selection.end
    others = ORIGINS.c.series_id.not_in(_series(selection))
    labels = sa.exists().where(ORIGINS.c.blob_id == BLOBS.c.id, others) if selection.matchers else sa.false()
    return _combined(selection) & (begin | end | labels)


def mixes(selection: Selection, matcher: Matcher) -> sa.ColumnElement[bool]:
    """Whether a selected row is of a blob with profiles, too, that this matcher doesn't fit."""
    other = (ORIGINS.c.blob_id == BLOBS.c.id) & (ORIGINS.c.series_id == SERIES.c.id) & ~_matched(matcher)
    return _combined(selection) & sa.exists().where(other)


def _can_be_coarse(selection: Selection) -> bool:
    return bool(selection.matchers) or selection.begin is not None or selection.end is not None


def _combined(selection: Selection) -> sa.ColumnElement[bool]:
    """Whether a row is of a combined blob that is live and meant; there are few.

    It begins before and goes on until then. Its own labels don't tell all where a roll-up dropped some.
    """
    meant = [IS_LIVE, IS_COMBINED]
    if selection.begin is not None:
        meant.append(BLOBS.c.end_nanos >= selection.begin)
    if selection.end is not None:
        meant.append(selection.end > _BEGINS)
    blobs = sa.select(BLOBS.c.id).where(*meant)
    series = _series(selection)
    by_series = BLOBS.c.id.in_(blobs.where(BLOBS.c.series_id.in_(series)))
    if not selection.matchers:
        return by_series
    inside = sa.select(ORIGINS.c.blob_id).where(ORIGINS.c.series_id.in_(series))
    return by_series | BLOBS.c.id.in_(blobs.where(BLOBS.c.id.in_(inside)))


def of_service(service: str) -> sa.ColumnElement[bool]:
    """Whether a row of SERIES is of a service, which may be EVERY_SERVICE."""
    return sa.true() if service == EVERY_SERVICE else SERIES.c.service == service


def _series(selection: Selection) -> sa.Select[tuple[int]]:
    """The series that are meant. By labels none is whose profiles had more of them."""
    return sa.select(SERIES.c.id).where(
        of_service(selection.service),
        SERIES.c.type == selection.type,
        ~SERIES.c.rolled_up if selection.matchers else sa.true(),
        *map(_matched, selection.matchers),
    )


def _matched(matcher: Matcher) -> sa.ColumnElement[bool]:
    """Whether the labels of a row of series fit."""
    same_key = (LABELS.c.series_id == SERIES.c.id) & (LABELS.c.key == matcher.key)
    fits: sa.ColumnElement[bool] = sa.exists().where(same_key, LABELS.c.value.in_(matcher.values))
    if "" in matcher.values:
        fits = fits | ~sa.exists().where(same_key)
    return ~fits if matcher.is_negated else fits
