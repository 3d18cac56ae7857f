"""Plots: shares over time as paths of SVG, in a box of 1,000 by 100 that is stretched to the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgo_collector.queries.answers import SeriesPoint
from pgo_collector.ui.amounts import percent

WIDTH, HEIGHT = 1000, 100
# The top of the scale is one of these, times a power of ten.
_ROUND = (1, 1.5, 2, 3, 5, 7.5)


@dataclass(frozen=True, slots=True)
class Column:
    """A step of time: where it is from the left, how wide, and what is to be said of it."""

    left: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Two lines: of what a function takes with all that it calls, and by itself. `top` is the scale's end, a
    share; `times` are the first, the middle and the last step.
    """

    cum: str
    cum_area: str
    flat: str
    dots: str
    columns: list[Column]
    top: float
    times: list[str]


def plot_of(points: Sequence[SeriesPoint]) -> Plot:
    """The plot of at least one step. A step without a profile is a gap."""
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
    # A step between gaps has no line; a dot is one without a length.
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
                f"{moment(point.time)}: {percent(point.cum_share)} with what it calls,"
                f" {percent(point.flat_share)} by itself",
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
    """A step's time, without what is 0 in it."""
    return time[:10] if time[11:16] == "00:00" else f"{time[:10]} {time[11:16]}"


def _runs(points: Sequence[SeriesPoint]) -> list[list[int]]:
    """The steps that have profiles, those together between which there is no gap."""
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
    """A round share that is as large at least."""
    scales = (factor * 10.0**power for power in range(-4, 0) for factor in _ROUND)
    return next((scale for scale in scales if scale >= largest), 1.0)
