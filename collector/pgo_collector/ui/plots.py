"""Plots: shares over time as SVG paths in a box of 1,000 by 100, which is stretched to fit the page.

They are drawn by hand: docs/ui.md has the libraries that were tried, under "How they are drawn".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgo_collector.queries.answers import SeriesPoint
from pgo_collector.ui.amounts import percent

WIDTH, HEIGHT = 1000, 100
# The top of the scale is one of these numbers times a power of ten.
_ROUND = (1, 1.5, 2, 3, 5, 7.5)


@dataclass(frozen=True, slots=True)
class Column:
    """A step of time: its distance from the left, its width, and its tooltip."""

    left: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Two lines: the cumulative and the flat share of a function or package.

    `top` is the share at the top of the scale. `times` are the first, the middle and the last step.
    """

    cum: str
    cum_area: str
    flat: str
    dots: str
    columns: list[Column]
    top: float
    times: list[str]


def plot_of(points: Sequence[SeriesPoint]) -> Plot:
    """Return the plot of one step or more. A step without a profile is a gap."""
    top = _top(max(point.cum_share for point in points))
    width = WIDTH / len(points)
    runs = _runs(points)

    def x(at: int) -> float:
        return (at + 0.5) * width

    def line(run: Sequence[int], shares: Sequence[float]) -> str:
        return "M" + "L".join(f"{x(at):.1f},{HEIGHT * (1 - shares[at] / top):.2f}" for at in run)

    cum = [point.cum_share for point in points]
    flat = [point.flat_share for point in points]
    areas = [f"{line(run, cum)}L{x(run[-1]):.1f},{HEIGHT}L{x(run[0]):.1f},{HEIGHT}Z" for run in runs]
    # A step between two gaps has no line to a neighbour: a line of length 0 is drawn as a dot.
    alone = [at for run in runs if len(run) == 1 for at in run]
    dots = "".join(f"{line([at], shares)}h0" for at in alone for shares in (cum, flat))
    middle = points[len(points) // 2].time
    return Plot(
        cum="".join(line(run, cum) for run in runs),
        cum_area="".join(areas),
        flat="".join(line(run, flat) for run in runs),
        dots=dots,
        columns=[
            Column(
                round(at * width, 2),
                round(width, 2),
                f"{moment(point.time)}: {percent(point.cum_share)} cumulative,"
                f" {percent(point.flat_share)} flat",
            )
            for run in runs
            for at in run
            for point in (points[at],)
        ],
        top=top,
        times=[
            moment(points[0].time),
            *([moment(middle)] if len(points) > 2 else []),
            moment(points[-1].time),
        ],
    )


def moment(time: str) -> str:
    """Return a step's time: its date, and its time of day unless it is midnight."""
    return time[:10] if time[11:16] == "00:00" else f"{time[:10]} {time[11:16]}"


def _runs(points: Sequence[SeriesPoint]) -> list[list[int]]:
    """Return the steps with profiles as lists of consecutive steps."""
    runs: list[list[int]] = []
    for at, point in enumerate(points):
        if not point.total:
            continue
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _top(largest: float) -> float:
    """Return the smallest round share that is at least `largest`."""
    scales = (factor * 10.0**power for power in range(-4, 0) for factor in _ROUND)
    return next((scale for scale in scales if scale >= largest), 1.0)
