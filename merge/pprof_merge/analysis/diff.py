"""Diff: which functions, packages or files take a different share of a profile than of its base."""

from __future__ import annotations

from dataclasses import dataclass

from pprof_merge.analysis.top_table import TopOrder, TopTable


@dataclass(frozen=True, slots=True)
class Usage:
    """The values of a name in one table, and their shares of the table's total (0 if the total is 0)."""

    flat: int
    cum: int
    flat_share: float
    cum_share: float

    def share(self, by: TopOrder) -> float:
        """Return the share of the flat or of the cumulative value."""
        return self.flat_share if by == "flat" else self.cum_share


@dataclass(frozen=True, slots=True)
class DiffRow:
    """The usage of one name, now and in the base."""

    name: str
    now: Usage
    base: Usage

    def difference(self, by: TopOrder) -> float:
        """Return the share now minus the share in the base, from -1 to 1."""
        return self.now.share(by) - self.base.share(by)


def diff_tables(now: TopTable, base: TopTable, by: TopOrder) -> list[DiffRow]:
    """Return a row for each name in two tables of one column: the largest difference first.

    Of equal ones, those with the larger difference of the other values come first, then it goes by name. All
    waits have the same leaf, so the functions that wait differ only in their cumulative values.
    """
    of_now, of_base, none = usage_by_name(now), usage_by_name(base), Usage(0, 0, 0.0, 0.0)
    rows = [DiffRow(name, of_now.get(name, none), of_base.get(name, none)) for name in {**of_now, **of_base}]
    other: TopOrder = "cum" if by == "flat" else "flat"
    rows.sort(key=lambda row: (-abs(row.difference(by)), -abs(row.difference(other)), row.name))
    return rows


def usage_by_name(table: TopTable) -> dict[str, Usage]:
    """Return the usage of each name in a table of one column."""
    total = int(table.total[0])
    columns = zip(table.names, table.flat[:, 0].tolist(), table.cum[:, 0].tolist(), strict=True)
    return {
        name: Usage(flat, cum, share_of(flat, total), share_of(cum, total)) for name, flat, cum in columns
    }


def share_of(value: int, total: int) -> float:
    """Return the share of a value, whatever its sign, of a total; 0 if the total is 0."""
    return abs(value / total) if total else 0.0
