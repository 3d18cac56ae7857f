"""Flame graphs: where a service spends its time, call by call, on its own or compared with a base."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pprof_merge import ValueType
from pprof_merge.analysis import FlameGraph, FlameView, share_of

from pgo_collector.engine.view_inputs import Basis
from pgo_collector.engine.views import StackReading, StacksResult, draw_blobs, weigh_blobs
from pgo_collector.errors import NotComparable
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import Coarse, Selection
from pgo_collector.queries import answers
from pgo_collector.queries.fleet import Fleet, Found, Result, nothing_readable
from pgo_collector.store.store import not_stored

T = TypeVar("T", bound=Result)

_PLAIN = StackReading()


@dataclass(frozen=True, slots=True, eq=False)
class Flame:
    """A flame graph of `profiles` profiles; with a base it has two sides: the selection and the base.

    `whole` is the value of the selection with all names, `sample_types` are all that the profiles measure.
    `unnamed` is the value of the selection's samples whose leaf has no function.
    """

    sample_type: ValueType
    graph: FlameGraph
    profiles: int
    whole: int
    coarse: Coarse
    left_out: list[LeftOut]
    basis: Basis
    sample_types: tuple[ValueType, ...] = ()
    unnamed: int = 0

    @property
    def values_basis(self) -> answers.ValuesBasis:
        """Return how the values of the selection were brought together, in words, too."""
        return answers.ValuesBasis.of(self.basis, self.sample_type)

    @property
    def unnamed_share(self) -> float:
        """Return the share of the selection that ends in an address without a function, from 0 to 1."""
        return share_of(self.unnamed, int(self.graph.size[0][0]))

    @property
    def matched_share(self) -> float:
        """Return the share of the whole that the search found, from 0 to 1: the mean over the sides."""
        sides = zip(self.graph.matched.tolist(), self.graph.size[0].tolist(), strict=True)
        shares = [share_of(found, whole) for found, whole in sides if whole]
        return sum(shares) / max(len(shares), 1)


async def flame_of(
    fleet: Fleet,
    selection: Selection,
    view: FlameView,
    base: Selection | None = None,
    reading: StackReading = _PLAIN,
) -> Flame:
    """Return the flame graph of a part of one service's selection, compared with a base if given.

    Raises NothingToMerge, NotComparable, AnswerTooLarge, BlobsGone, NotStored or WorkerUnavailable.
    """
    sides = [selection] if base is None else [selection, base]
    return await fleet.kept.answer(
        ("flame", view, reading),
        sides,
        lambda: _drawn(fleet, selection, view, base, reading),
        lambda flame: not flame.left_out,
    )


async def _drawn(
    fleet: Fleet, selection: Selection, view: FlameView, base: Selection | None, reading: StackReading
) -> Flame:
    try:
        async with fleet.part() as part:
            weighed = None if base is None else await _weighed_base(fleet, base, reading, part)
            found = await fleet.find(selection)
            written = None if weighed is None else part
            drawn = await _only_result(fleet, found, draw_blobs, reading, view, written)
    except OSError as error:
        raise not_stored("base of the flame graph", error) from error
    if drawn.graph is None or drawn.sample_type is None:
        raise nothing_readable(found, [left.reason for left in drawn.left_out])
    if weighed is not None and weighed.sample_type != drawn.sample_type:
        raise NotComparable(f"the selection measures {drawn.sample_type}, the base {weighed.sample_type}")
    left_out = [*drawn.left_out, *(() if weighed is None else weighed.left_out)]
    return Flame(
        drawn.sample_type,
        drawn.graph,
        drawn.profiles,
        drawn.whole,
        found.coarse,
        left_out,
        drawn.basis,
        drawn.sample_types,
        drawn.unnamed,
    )


async def _weighed_base(fleet: Fleet, base: Selection, reading: StackReading, part: Path) -> StacksResult:
    """Write the stacks of the base to the file `part`. Return what they measure."""
    found = await fleet.find(base)
    weighed = await _only_result(fleet, found, weigh_blobs, reading, part)
    if weighed.sample_type is None:
        raise nothing_readable(found, [left.reason for left in weighed.left_out])
    return weighed


async def _only_result(fleet: Fleet, found: Found, task: Callable[..., T], *arguments: object) -> T:
    """Return the result of a task for the one service that was found."""
    (result,) = [result async for _, result in fleet.run(found, task, lambda *_: arguments)]
    return result


def flame_answer(flame: Flame, reading: StackReading, search: str) -> answers.FlameGraphAnswer:
    """Return a flame graph as an answer: its calls, callers before callees, and what a search found."""
    graph, (whole, *base) = flame.graph, flame.graph.size[0].tolist()
    columns = zip(
        graph.names,
        graph.parent.tolist(),
        graph.key.tolist(),
        graph.own.tolist(),
        graph.total.tolist(),
        graph.is_match.tolist(),
        strict=True,
    )
    return answers.FlameGraphAnswer(
        by=reading.by,
        sample_type=answers.SampleType.of(flame.sample_type),
        sample_types=[*map(answers.SampleType.of, flame.sample_types)],
        basis=flame.values_basis,
        others={},
        profiles=flame.profiles,
        left_out=len(flame.left_out),
        coarse=len(flame.coarse.blobs),
        coarse_labels=list(flame.coarse.labels),
        total=whole,
        whole=flame.whole,
        unnamed=flame.unnamed,
        base_total=base[0] if base else None,
        root=graph.root,
        found=_matches(flame) if search else None,
        calls=[
            answers.FlameCall(
                name=name,
                parent=parent,
                key=key_text(key),
                flat=own[0],
                cum=total[0],
                base_flat=own[1] if base else None,
                base_cum=total[1] if base else None,
                is_match=is_match,
            )
            for name, parent, key, own, total, is_match in columns
        ],
    )


def _matches(flame: Flame) -> answers.FlameMatches:
    value, *base = flame.graph.matched.tolist()
    return answers.FlameMatches(
        names=flame.graph.n_matches,
        value=value,
        share=flame.matched_share,
        base_value=base[0] if base else None,
    )


def key_text(key: int) -> str:
    """Return the key of a call as text; the key of the whole is `0`."""
    return f"{key:016x}" if key else "0"
