"""Flame graphs: where a service spends its time, call by call, on its own or compared with a base."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pprof_merge import ALL_LATENCIES, FlameGraph, FlameView, LatencyRange, ValueType

from pgo_collector.engine.queries import StacksResult, draw_blobs, weigh_blobs
from pgo_collector.errors import NotComparable
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import Coarse, Selection
from pgo_collector.queries.fleet import Fleet, Found, nothing_readable
from pgo_collector.store.store import not_stored

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Flame:
    """A flame graph of `profiles` profiles; with a base it has two sides: the selection and the base."""

    sample_type: ValueType
    graph: FlameGraph
    profiles: int
    coarse: Coarse
    left_out: list[LeftOut]


async def flame_of(
    fleet: Fleet,
    selection: Selection,
    view: FlameView,
    base: Selection | None = None,
    latencies: LatencyRange = ALL_LATENCIES,
) -> Flame:
    """Return the flame graph of these latencies of one service's selection, compared with a base if given.

    Raises NothingToMerge, NotComparable, AnswerTooLarge, NotStored or WorkerUnavailable.
    """
    try:
        async with fleet.part() as part:
            weighed = None if base is None else await _weighed_base(fleet, base, latencies, part)
            found = await fleet.find(selection)
            written = None if weighed is None else part
            drawn = await _only_result(fleet, found, draw_blobs, latencies, view, written)
    except OSError as error:
        raise not_stored("base of the flame graph", error) from error
    if drawn.graph is None or drawn.sample_type is None:
        raise nothing_readable(found, [left.reason for left in drawn.left_out])
    if weighed is not None and weighed.sample_type != drawn.sample_type:
        raise NotComparable(f"the selection measures {drawn.sample_type}, the base {weighed.sample_type}")
    left_out = [*drawn.left_out, *(() if weighed is None else weighed.left_out)]
    return Flame(drawn.sample_type, drawn.graph, drawn.profiles, found.coarse, left_out)


async def _weighed_base(fleet: Fleet, base: Selection, latencies: LatencyRange, part: Path) -> StacksResult:
    """Write the stacks of the base to the file `part`. Return what they measure."""
    found = await fleet.find(base)
    weighed = await _only_result(fleet, found, weigh_blobs, latencies, part)
    if weighed.sample_type is None:
        raise nothing_readable(found, [left.reason for left in weighed.left_out])
    return weighed


async def _only_result(fleet: Fleet, found: Found, task: Callable[..., T], *arguments: object) -> T:
    """Return the result of a task for the one service that was found."""
    (result,) = [result async for _, result in fleet.run(found, task, lambda _: arguments)]
    return result
