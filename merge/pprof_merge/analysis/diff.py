"""Shifts: what takes another share of one profile than of another, which is the base."""

from __future__ import annotations

from dataclasses import dataclass

from pprof_merge.analysis.top_table import TopOrder, TopTable


@dataclass(frozen=True, slots=True)
class Usage:
    """Values of a name in one table, and their shares of its total; 0 where that is 0."""

    flat: int
    cum: int
    flat_share: float
    cum_share: float

    def share(self, by: TopOrder) -> float:
        """One of the two."""
        return self.flat_share if by == "flat" else self.cum_share


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A name's usage now and in the base."""

    name: str
    now: Usage
    base: Usage

    def difference(self, by: TopOrder) -> float:
        """By how much the share is larger than in the base."""
        return self.now.share(by) - self.base.share(by)


def diff_tables(now: TopTable, base: TopTable, by: TopOrder) -> list[DiffRow]:
    """What there is in two tables of one column each: the largest differences first, then by name."""
    of_now, of_base, none = usages(now), usages(base), Usage(0, 0, 0.0, 0.0)
    every = [DiffRow(name, of_now.get(name, none), of_base.get(name, none)) for name in {**of_now, **of_base}]
    every.sort(key=lambda shift: (-abs(shift.difference(by)), shift.name))
    return every


def usages(table: TopTable) -> dict[str, Usage]:
    """All names of a table of one column."""
    total = int(table.total[0])
    columns = zip(table.names, table.flat[:, 0].tolist(), table.cum[:, 0].tolist(), strict=True)
    return {
        name: Usage(flat, cum, share_of(flat, total), share_of(cum, total)) for name, flat, cum in columns
    }


def share_of(value: int, total: int) -> float:
    """Of a total; 0 where that is 0."""
    return value / total if total else 0.0
