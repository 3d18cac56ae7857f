"""Diffs: what takes another share of one selection than of another."""

from __future__ import annotations

from pprof_merge import Grouping, TopOrder, Usage, diff_tables

from pgo_collector.errors import NotComparable
from pgo_collector.queries.answers import Diff, DiffRow, DiffSide, SampleType, Values
from pgo_collector.queries.tables import FleetTable


def diff_of(now: FleetTable, base: FleetTable, by: Grouping, sort: TopOrder, most: int) -> Diff:
    """The rows whose shares differ most. Raises NotComparable."""
    if now.sample_type != base.sample_type:
        raise NotComparable(f"one measures {now.sample_type}, the base {base.sample_type}")
    every = diff_tables(now.table, base.table, sort)
    return Diff(
        by=by,
        sort=sort,
        sample_type=SampleType.of(now.sample_type),
        now=_side(now),
        base=_side(base),
        names=len(every),
        rows=[
            DiffRow(
                name=shift.name,
                now=_values(shift.now),
                base=_values(shift.base),
                flat_difference=shift.difference("flat"),
                cum_difference=shift.difference("cum"),
            )
            for shift in every[:most]
        ],
    )


def _side(found: FleetTable) -> DiffSide:
    return DiffSide(
        total=found.total,
        profiles=found.profiles,
        left_out=len(found.left_out),
        coarse=len(found.coarse.blobs),
        coarse_labels=list(found.coarse.labels),
    )


def _values(usage: Usage) -> Values:
    return Values(flat=usage.flat, cum=usage.cum, flat_share=usage.flat_share, cum_share=usage.cum_share)
