"""Diffs: which functions, packages or files take a different share of a selection than of its base."""

from __future__ import annotations

from pprof_merge.analysis import CONFIDENCE, Grouping, TopOrder, Usage, diff_tables, difference_interval

from pgo_collector.errors import NotComparable
from pgo_collector.queries import answers
from pgo_collector.queries.fleet_tables import FleetTable


def diff_of(now: FleetTable, base: FleetTable, by: Grouping, sort: TopOrder, n_rows: int) -> answers.Diff:
    """Return the `n_rows` rows whose shares differ most. Raises NotComparable if the sample types differ."""
    if now.sample_type != base.sample_type:
        raise NotComparable(f"the selection measures {now.sample_type}, the base {base.sample_type}")
    rows = diff_tables(now.table, base.table, sort)
    return answers.Diff(
        by=by,
        sort=sort,
        sample_type=answers.SampleType.of(now.sample_type),
        sample_types=[*map(answers.SampleType.of, now.sample_types)],
        now=_side(now),
        base=_side(base),
        confidence=CONFIDENCE,
        names=len(rows),
        rows=[
            answers.DiffRow(
                name=row.name,
                now=_values(row.now),
                base=_values(row.base),
                flat_difference=row.difference("flat"),
                cum_difference=row.difference("cum"),
                flat_interval=interval_of(row.now.flat_share, now.samples, row.base.flat_share, base.samples),
                cum_interval=interval_of(row.now.cum_share, now.samples, row.base.cum_share, base.samples),
            )
            for row in rows[:n_rows]
        ],
    )


def interval_of(
    now: float, now_samples: int | None, base: float, base_samples: int | None
) -> answers.SharesInterval | None:
    """Return the interval of the difference of two shares; None if samples are 0 or unknown."""
    found = difference_interval(now, now_samples, base, base_samples)
    return found and answers.SharesInterval(low=found.low, high=found.high, noise=found.is_noise)


def _side(side: FleetTable) -> answers.DiffSide:
    return answers.DiffSide(
        total=side.total,
        whole=side.whole,
        profiles=side.profiles,
        samples=side.samples,
        left_out=len(side.left_out),
        coarse=len(side.coarse.blobs),
        coarse_labels=list(side.coarse.labels),
        basis=answers.ValuesBasis.of(side.basis, side.sample_type),
    )


def _values(usage: Usage) -> answers.Values:
    return answers.Values(
        flat=usage.flat, cum=usage.cum, flat_share=usage.flat_share, cum_share=usage.cum_share
    )
