"""Tables of the fleet: the sum of the tables of all services, and each service's part of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import reduce

from pprof_merge import ValueType
from pprof_merge.analysis import Grouping, TopSum, TopTable
from pprof_merge.arrays import Int64s

from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.engine.view_inputs import Basis
from pgo_collector.engine.views import TableResult, table_blobs
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import USUAL, Coarse, Focus, Selection
from pgo_collector.queries.fleet import Fleet, chosen_type, nothing_readable, others

_ADVICE = "ask for one service, or for packages in place of functions"


@dataclass(frozen=True, slots=True, eq=False)
class ServicePart:
    """The part of one service in the sum: its profiles, its total, and its values in `rows` of the sum.

    `samples` is the number of samples that its profilers took; None if that isn't known. `whole` is the total
    with all names.
    """

    service: str
    profiles: int
    samples: int | None
    total: int
    whole: int
    rows: Int64s
    flat: Int64s
    cum: Int64s
    basis: Basis


@dataclass(frozen=True, slots=True, eq=False)
class FleetTable:
    """The sum, in one column, of the tables of all services that measure one sample type.

    `sample_types` are all that such a service measures. `parts` are sorted by the services' names. `others`
    are the services that measure another sample type.
    """

    sample_type: ValueType
    sample_types: tuple[ValueType, ...]
    table: TopTable
    parts: list[ServicePart]
    others: dict[str, str]
    coarse: Coarse
    left_out: list[LeftOut]

    @property
    def total(self) -> int:
        """Return the sum of all samples."""
        return int(self.table.total[0])

    @property
    def whole(self) -> int:
        """Return the sum of all samples, also of those that patterns left out."""
        return sum(part.whole for part in self.parts)

    @property
    def profiles(self) -> int:
        """Return the number of profiles in the table."""
        return sum(part.profiles for part in self.parts)

    @property
    def basis(self) -> Basis:
        """Return how the values were brought together."""
        return reduce(Basis.joined, [part.basis for part in self.parts])

    @property
    def samples(self) -> int | None:
        """Return the number of samples that the profilers took; None if it isn't known of all services."""
        known = [part.samples for part in self.parts if part.samples is not None]
        return sum(known) if len(known) == len(self.parts) else None


async def fleet_table(
    fleet: Fleet, selection: Selection, grouping: Grouping, focus: Focus = USUAL
) -> FleetTable:
    """Return the table of a part of a selection.

    Raises NothingToMerge, AnswerTooLarge, BlobsGone or WorkerUnavailable.
    """
    found = await fleet.find(selection)
    sums: dict[ValueType, TopSum] = {}
    parts: dict[ValueType, list[ServicePart]] = {}
    types: dict[str, ValueType] = {}
    kinds: dict[ValueType, tuple[ValueType, ...]] = {}
    left_out: list[LeftOut] = []

    def add(service: str, tabled: TableResult) -> None:
        left_out.extend(tabled.left_out)
        if tabled.table is None or tabled.sample_type is None:
            return
        types[service] = tabled.sample_type
        kinds[tabled.sample_type] = max(kinds.get(tabled.sample_type, ()), tabled.sample_types)
        table = tabled.table
        rows = sums.setdefault(tabled.sample_type, TopSum(1)).add(table)
        with refuse_too_large("the table: "):
            fleet.budget.check(sum(each.nbytes for each in sums.values()), _ADVICE)
        part = ServicePart(
            service,
            tabled.profiles,
            tabled.samples,
            int(table.total[0]),
            tabled.whole,
            rows,
            table.flat[:, 0],
            table.cum[:, 0],
            tabled.basis,
        )
        parts.setdefault(tabled.sample_type, []).append(part)

    async for service, tabled in fleet.run(found, table_blobs, lambda *_: (grouping, focus)):
        await asyncio.to_thread(add, service, tabled)
    if not types:
        raise nothing_readable(found, [left.reason for left in left_out])
    chosen = chosen_type(types, focus)
    return FleetTable(
        sample_type=chosen,
        sample_types=kinds[chosen],
        table=sums[chosen].table(),
        parts=sorted(parts[chosen], key=lambda part: part.service),
        others=others(types, chosen),
        coarse=found.coarse,
        left_out=left_out,
    )
