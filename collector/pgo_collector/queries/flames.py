"""Flame graphs: where a service spends its time, call by call, also beside another selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pprof_merge import FlameGraph, FlameView, ValueType

from pgo_collector.engine.queries import StacksResult, draw_blobs, weigh_blobs
from pgo_collector.errors import NotComparable
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import Coarse, Selection
from pgo_collector.queries.fleet import Fleet, Found, nothing_readable
from pgo_collector.store.store import not_stored

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Flame:
    """A flame graph of so many profiles; with a base it has two sides, of now and of that."""

    sample_type: ValueType
    graph: FlameGraph
    profiles: int
    coarse: Coarse
    left_out: list[LeftOut]


async def flame_of(
    fleet: Fleet, selection: Selection, view: FlameView, base: Selection | None = None
) -> Flame:
    """The flame graph of a selection of one service, beside that of a base if there is one.

    Raises NothingToMerge, NotComparable, AnswerTooLarge, NotStored or WorkerUnavailable.
    """
    try:
        async with fleet.part() as part:
            weighed = None if base is None else await _weighed(fleet, base, part)
            found = await fleet.find(selection)
            drawn = await _only(fleet, found, draw_blobs, view, None if weighed is None else part)
    except OSError as error:
        raise not_stored("base of the flame graph", error) from error
    if drawn.graph is None or drawn.sample_type is None:
        raise nothing_readable(found, [left.reason for left in drawn.left_out])
    if weighed is not None and weighed.sample_type != drawn.sample_type:
        raise NotComparable(f"one measures {drawn.sample_type}, the base {weighed.sample_type}")
    left_out = [*drawn.left_out, *(() if weighed is None else weighed.left_out)]
    return Flame(drawn.sample_type, drawn.graph, drawn.profiles, found.coarse, left_out)


async def _weighed(fleet: Fleet, base: Selection, part: Path) -> StacksResult:
    found = await fleet.find(base)
    weighed = await _only(fleet, found, weigh_blobs, part)
    if weighed.sample_type is None:
        raise nothing_readable(found, [left.reason for left in weighed.left_out])
    return weighed


async def _only(fleet: Fleet, found: Found, task: Callable[..., T], *arguments: object) -> T:
    """What a task says of the one service that was found."""
    (answer,) = [answer async for _, answer in fleet.ask(found, task, lambda _: arguments)]
    return answer
