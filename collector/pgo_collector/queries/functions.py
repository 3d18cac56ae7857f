"""Functions: the weight of one function, its callers, callees and lines, in one service or in all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pprof_merge import ValueType
from pprof_merge.analysis import Call, FlameView, FunctionUse, LineUse, Place, share_of

from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.engine.view_inputs import Basis
from pgo_collector.engine.views import Around, UseResult, use_blobs
from pgo_collector.errors import NoSuchFunction
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import USUAL, Coarse, Focus, Selection
from pgo_collector.model.source_links import SourceLinks
from pgo_collector.queries import answers
from pgo_collector.queries.fleet import Fleet, chosen_type, nothing_readable, others

_ADVICE = "ask for one service"
_MAX_INLINED = 10
# The calls around a function: the largest on each side, and none that is too narrow to click on.
AROUND = FlameView(least=1 / 400, most=300)


@dataclass(frozen=True, slots=True, eq=False)
class FleetUse:
    """The use of one function in all services that measure one sample type.

    `profiles` are the stored profiles of these services, and `whole` is their total with all names. `others`
    are the services that measure something else. `around` has the calls around the function in one service,
    if they were asked for.
    """

    name: str
    sample_type: ValueType
    sample_types: tuple[ValueType, ...]
    use: FunctionUse
    profiles: int
    whole: int
    others: dict[str, str]
    coarse: Coarse
    left_out: list[LeftOut]
    basis: Basis
    around: Around | None = None


async def fleet_use(
    fleet: Fleet, selection: Selection, name: str, focus: Focus = USUAL, around: FlameView | None = None
) -> FleetUse:
    """Return the use of the functions named `name` in a part of a selection; `around` is for one service.

    Raises NoSuchFunction, NothingToMerge, AnswerTooLarge, BlobsGone or WorkerUnavailable.
    """
    found = await fleet.find(selection)
    sums: dict[ValueType, FunctionUse] = {}
    measured: dict[str, tuple[ValueType, int, int, Basis]] = {}
    kinds: dict[ValueType, tuple[ValueType, ...]] = {}
    left_out: list[LeftOut] = []
    drawn: list[Around] = []

    def add(service: str, result: UseResult) -> None:
        left_out.extend(result.left_out)
        if result.around is not None:
            drawn.append(result.around)
        if result.use is None or result.sample_type is None:
            return
        measured[service] = result.sample_type, result.profiles, result.whole, result.basis
        kinds[result.sample_type] = max(kinds.get(result.sample_type, ()), result.sample_types)
        total = sums.setdefault(result.sample_type, FunctionUse())
        total.add(result.use)
        with refuse_too_large("the function: "):
            fleet.budget.check(total.nbytes, _ADVICE)

    async for service, result in fleet.run(found, use_blobs, lambda *_: (name, focus, around)):
        await asyncio.to_thread(add, service, result)
    if not measured:
        raise nothing_readable(found, [left.reason for left in left_out])
    types = {service: sample_type for service, (sample_type, *_) in measured.items()}
    chosen = chosen_type(types, focus)
    if not sums[chosen].is_known:
        raise NoSuchFunction(name, sums[chosen].similar)
    counted = [each for each in measured.values() if each[0] == chosen]
    return FleetUse(
        name=name,
        sample_type=chosen,
        sample_types=kinds[chosen],
        use=sums[chosen],
        profiles=sum(profiles for _, profiles, _, _ in counted),
        whole=sum(whole for *_, whole, _ in counted),
        basis=reduce(Basis.joined, [basis for *_, basis in counted]),
        others=others(types, chosen),
        coarse=found.coarse,
        left_out=left_out,
        around=drawn[0] if drawn else None,
    )


def function_of(found: FleetUse, n_rows: int, links: SourceLinks, version: str = "") -> answers.Function:
    """Return the `n_rows` callers, callees and lines with the largest values.

    `version` is that of the service, for links to lines whose path doesn't name one.
    """
    use = found.use
    total = use.total
    lines = sorted(use.lines.items(), key=lambda row: (-abs(row[1].cum), -abs(row[1].flat), row[0]))
    return answers.Function(
        name=found.name,
        sample_type=answers.SampleType.of(found.sample_type),
        sample_types=[*map(answers.SampleType.of, found.sample_types)],
        basis=answers.ValuesBasis.of(found.basis, found.sample_type),
        others=found.others,
        profiles=found.profiles,
        left_out=len(found.left_out),
        coarse=len(found.coarse.blobs),
        coarse_labels=list(found.coarse.labels),
        total=total,
        whole=found.whole,
        flat=use.flat,
        cum=use.cum,
        flat_share=share_of(use.flat, total),
        cum_share=share_of(use.cum, total),
        callers=_calls(use.callers, total, n_rows),
        callees=_calls(use.callees, total, n_rows),
        lines=[_line(place, line, total, links.url(place, version)) for place, line in lines[:n_rows]],
        n_callers=len(use.callers),
        n_callees=len(use.callees),
        n_lines=len(use.lines),
    )


def names_of(answer: answers.Function) -> Sequence[str]:
    """Return the names and paths in an answer."""
    calls = [*answer.callers, *answer.callees, *(each for line in answer.lines for each in line.inlined)]
    places = [text for line in answer.lines for text in (line.file, line.source or "")]
    return [answer.name, *(call.name for call in calls), *places]


def _calls(calls: Mapping[str, Call], total: int, n_rows: int) -> list[answers.FunctionCall]:
    rows = sorted(calls.items(), key=lambda row: (-abs(row[1].value), row[0]))[:n_rows]
    return [
        answers.FunctionCall(
            name=name, value=call.value, share=share_of(call.value, total), inlined=call.is_inlined
        )
        for name, call in rows
    ]


def _line(place: Place, line: LineUse, total: int, source: str | None) -> answers.FunctionLine:
    inlined = sorted(line.inlined.items(), key=lambda row: (-abs(row[1]), row[0]))[:_MAX_INLINED]
    return answers.FunctionLine(
        file=place.file,
        line=place.line,
        source=source,
        flat=line.flat,
        cum=line.cum,
        flat_share=share_of(line.flat, total),
        cum_share=share_of(line.cum, total),
        inlined=[
            answers.Inlined(name=name, value=value, share=share_of(value, total)) for name, value in inlined
        ],
    )
