"""The plot of the fleet: a bar a day, in which the services are stacked, in a box that is stretched to fit.

It is drawn by hand: docs/ui.md has the libraries that were tried, under "How they are drawn".
"""

from __future__ import annotations

from dataclasses import dataclass

from pgo_collector.queries.answers import FleetOverview
from pgo_collector.ui.amounts import amount

WIDTH, HEIGHT = 1000, 200
_GAP = 0.12
# Services with a colour of their own, the largest first; the rest is one band.
_MOST_BANDS = 8
_REST = "all"


@dataclass(frozen=True, slots=True)
class Band:
    """A service in the plot: its colour, its name (empty for all others together), and its total."""

    colour: str
    service: str
    total: int


@dataclass(frozen=True, slots=True)
class Bar:
    """The part of a day that a service takes, in units of the box."""

    left: float
    top: float
    width: float
    height: float
    colour: str
    title: str


@dataclass(frozen=True, slots=True)
class FleetPlot:
    """The bars, the bands from the largest on, the tallest day, and the first and the last day."""

    bars: list[Bar]
    bands: list[Band]
    highest: int
    days: list[str]


def fleet_plot_of(overview: FleetOverview) -> FleetPlot | None:
    """Return the plot of an overview; None if there is nothing to draw."""
    if overview.sample_type is None:
        return None
    columns = [[max(0, value) for value in service.days] for service in overview.services]
    largest = sorted(range(len(columns)), key=lambda at: -sum(columns[at]))
    stacks = [(overview.services[at].service, columns[at]) for at in largest[:_MOST_BANDS]]
    if rest := [columns[at] for at in largest[_MOST_BANDS:]]:
        stacks.append(("", [sum(day) for day in zip(*rest, strict=True)]))
    highest = max((sum(day) for day in zip(*(days for _, days in stacks), strict=True)), default=0)
    if not highest:
        return None
    bars, width = [], WIDTH / len(overview.days)
    bands = [
        Band(f"c{at * 2 % 24}" if service else _REST, service, _total(days, overview))
        for at, (service, days) in enumerate(stacks)
    ]
    for number, day in enumerate(overview.days):
        top = float(HEIGHT)
        for band, (service, days) in zip(bands, stacks, strict=True):
            if height := HEIGHT * days[number] / highest:
                top -= height
                value = amount(days[number], overview.sample_type)
                bars.append(
                    Bar(
                        left=round((number + _GAP / 2) * width, 2),
                        top=round(top, 2),
                        width=round((1 - _GAP) * width, 2),
                        height=round(height, 2),
                        colour=band.colour,
                        title=f"{day}, {service or 'all others'}: {value}",
                    )
                )
    return FleetPlot(bars, bands, highest, [overview.days[0], overview.days[-1]])


def _total(days: list[int], overview: FleetOverview) -> int:
    """Return the sum of a service's days; of a state, the mean of those on which anything was held."""
    if overview.basis is None or overview.basis.kind != "state":
        return sum(days)
    return sum(days) // max(sum(map(bool, days)), 1)
