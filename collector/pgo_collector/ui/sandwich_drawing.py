"""Drawings of one function between its callers, above it, and its callees, below: three rows of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pprof_merge import Frame, package_of, share_of

from pgo_collector.queries.answers import Function, FunctionCall
from pgo_collector.ui.amounts import amount, cut, percent, short
from pgo_collector.ui.flame_drawing import colour_of, label_of
from pgo_collector.ui.links import Links, link_of_name

ROW_HEIGHT = 22  # pixels; a box is one pixel lower
_MAX_TITLE = 160
# Narrower boxes, as shares of the width, aren't drawn; the tables have them.
_LEAST = 1 / 800


@dataclass(frozen=True, slots=True)
class CallBox:
    """A box: `left` and `width` are percentages of the width, `row` is 0 for callers and 2 for callees.

    `link` is empty for the function itself, and for names that are too long for a link.
    """

    left: str
    width: str
    row: int
    colour: str
    link: str
    title: str
    label: str


def boxes_of(function: Function, links: Links) -> list[CallBox]:
    """Return the boxes. A row is as wide as the function, or as what is in it if that is more.

    It is more where a stack has the function several times, with different callers.
    """
    callers, callees = function.callers, function.callees
    widest = max(function.cum, _sum(callers), _sum(callees) + function.flat, 1)
    width = share_of(function.cum, widest)
    title = f"{cut(function.name, _MAX_TITLE)}\n{percent(function.cum_share)}"
    own = CallBox("0", _percentage(width), 1, "all", "", title, label_of(short(function.name), width))
    return [*_row(callers, 0, widest, function, links), own, *_row(callees, 2, widest, function, links)]


def _row(
    calls: Sequence[FunctionCall], row: int, widest: int, function: Function, links: Links
) -> list[CallBox]:
    boxes: list[CallBox] = []
    left = 0.0
    for call in calls:
        width = call.value / widest
        if width < _LEAST:
            break
        value = amount(call.value, function.sample_type)
        boxes.append(
            CallBox(
                left=_percentage(left),
                width=_percentage(width),
                row=row,
                colour=colour_of(package_of(Frame(call.name, "", 0))),
                link=link_of_name(links, "function", call.name),
                title=f"{cut(call.name, _MAX_TITLE)}\n{percent(call.share)}: {value}",
                label=label_of(short(call.name), width),
            )
        )
        left += width
    return boxes


def _sum(calls: Sequence[FunctionCall]) -> int:
    return sum(call.value for call in calls)


def _percentage(share: float) -> str:
    return f"{100 * share:.5g}"
