"""Selections as SQL: which rows of the catalog's blobs are meant."""

from __future__ import annotations

import sqlalchemy as sa

from pgo_collector.store.selection import EVERY_SERVICE, Matcher, Selection
from pgo_collector.store.tables import BLOBS, IS_COMBINED, LABELS, SERIES


def selected(selection: Selection) -> sa.ColumnElement[bool]:
    """Whether a row of BLOBS is live and meant."""
    series = sa.select(SERIES.c.id).where(
        of_service(selection.service),
        SERIES.c.type == selection.type,
        *map(_matched, selection.matchers),
    )
    chosen = BLOBS.c.series_id.in_(series) & BLOBS.c.live
    if selection.begin is None and selection.end is None:
        return chosen
    begin = sa.true() if selection.begin is None else BLOBS.c.time_nanos >= selection.begin
    end = sa.true() if selection.end is None else BLOBS.c.time_nanos < selection.end
    # A combined one begins before and goes on until then; there are few.
    reaching = sa.select(BLOBS.c.id).where(
        BLOBS.c.series_id.in_(series), BLOBS.c.live, IS_COMBINED, end,
        sa.false() if selection.begin is None else BLOBS.c.end_nanos >= selection.begin,
    )  # fmt: skip
    return (chosen & begin & end) | BLOBS.c.id.in_(reaching)


def reaches_over(selection: Selection) -> sa.ColumnElement[bool]:
    """Whether a selected row is of a combined blob that has profiles from out of the bounds, too."""
    begin = sa.false() if selection.begin is None else BLOBS.c.time_nanos < selection.begin
    end = sa.false() if selection.end is None else BLOBS.c.end_nanos >= selection.end
    return selected(selection) & IS_COMBINED & (begin | end)


def of_service(service: str) -> sa.ColumnElement[bool]:
    """Whether a row of SERIES is of a service, which may be EVERY_SERVICE."""
    return sa.true() if service == EVERY_SERVICE else SERIES.c.service == service


def _matched(matcher: Matcher) -> sa.ColumnElement[bool]:
    """Whether the labels of a row of series fit."""
    same_key = (LABELS.c.series_id == SERIES.c.id) & (LABELS.c.key == matcher.key)
    fits: sa.ColumnElement[bool] = sa.exists().where(same_key, LABELS.c.value.in_(matcher.values))
    if "" in matcher.values:
        fits = fits | ~sa.exists().where(same_key)
    return ~fits if matcher.is_negated else fits
