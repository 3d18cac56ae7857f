"""The table of `go tool pprof -top`: the flat and cumulative values of functions, packages, files or lines.

`flat` is the sum of the samples in which the name is the leaf. `cum` is the sum of the samples in which the
name is at all; a sample counts once, however often the name is in its stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pprof_merge.analysis.grouping import Grouping, named_slots
from pprof_merge.analysis.stacks import Stacks, stacks_of
from pprof_merge.analysis.totals import totals_of
from pprof_merge.arrays import Int64s
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.profile import Profile

TopOrder = Literal["flat", "cum"]

# Memory, in bytes, of a flat and a cumulative value. A copy is made while unused names are removed.
_CELL_BYTES = 16
# Memory, in bytes, of a name besides its characters.
_NAME_BYTES = 64
_ADVICE = "select fewer profiles, or profiles with fewer sample types"


@dataclass(frozen=True, slots=True, eq=False)
class TopTable:
    """The names that are in a sample, one a row, in no order: `flat` and `cum` are (n_names, n_types).

    `total` (n_types) is that of all samples, including those without a stack, by `totals_of`; shares are of
    it.
    """

    names: list[str]
    flat: Int64s
    cum: Int64s
    total: Int64s

    @classmethod
    def of(
        cls,
        profile: Profile,
        by: Grouping = "function",
        *,
        column: int | None = None,
        budget: Budget = UNBOUNDED,
    ) -> TopTable:
        """Return the table of a profile, by function, package, file or line.

        With a `column`, the table has this sample type only. Raises OutputTooLarge if making it takes more
        than the budget.
        """
        values, total = profile.samples.values, totals_of(profile)
        if column is not None:
            values, total = values[:, column : column + 1], total[column : column + 1]
        return cls._of_stacks(stacks_of(profile, budget), values, total, by, budget)

    @classmethod
    def _of_stacks(
        cls, stacks: Stacks, values: Int64s, total: Int64s, by: Grouping, budget: Budget
    ) -> TopTable:
        stacks.check(budget)
        names, name_of = named_slots(stacks, by, budget)
        budget.check_rows(len(names) * values.shape[1], _CELL_BYTES, _ADVICE)
        flat = np.zeros((values.shape[1], len(names)), np.int64)
        cum = np.zeros_like(flat)
        is_seen = np.zeros(len(names), np.bool_)
        for chunk in stacks.chunks():
            rows, counts, of_chunk = name_of[chunk.slots], np.diff(chunk.offsets), values[chunk.samples]
            framed = np.flatnonzero(counts)
            leaf = rows[chunk.offsets[1:][framed] - 1]
            # Each pair of a name and a sample counts once, so that recursion doesn't count twice.
            pairs = np.sort(rows * len(counts) + np.repeat(np.arange(len(counts)), counts))
            name, sample = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], len(counts))
            for column in range(values.shape[1]):
                np.add.at(flat[column], leaf, of_chunk[framed, column])
                np.add.at(cum[column], name, of_chunk[sample, column])
            is_seen[name] = True
        seen = np.flatnonzero(is_seen)
        return cls([names[row] for row in seen.tolist()], flat[:, seen].T, cum[:, seen].T, total)

    @property
    def nbytes(self) -> int:
        """Return about how much memory the names and values take, in bytes."""
        return sum(map(len, self.names)) + _NAME_BYTES * len(self.names) + self.flat.nbytes + self.cum.nbytes

    def only(self, column: int) -> TopTable:
        """Return the table of one sample type."""
        one = slice(column, column + 1)
        return TopTable(self.names, self.flat[:, one], self.cum[:, one], self.total[one])

    def order(self, column: int, by: TopOrder = "flat") -> list[int]:
        """Return the rows in the order of -top: by the size of this value, of the other, by name."""
        first, second = (self.flat, self.cum) if by == "flat" else (self.cum, self.flat)
        firsts, seconds = np.abs(first[:, column]).tolist(), np.abs(second[:, column]).tolist()
        return sorted(range(len(self.names)), key=lambda row: (-firsts[row], -seconds[row], self.names[row]))


class TopSum:
    """The running sum of tables, all with the same number of sample types.

    `nbytes` is about the memory that its names and the values of all added tables take, in bytes.
    """

    def __init__(self, n_types: int) -> None:
        self._rows: dict[str, int] = {}
        self.nbytes = 0
        self._flat: Int64s = np.zeros((0, n_types), np.int64)
        self._cum: Int64s = self._flat
        self._total: Int64s = np.zeros(n_types, np.int64)

    def add(self, table: TopTable) -> Int64s:
        """Add a table. Return the row of the sum for each row of the table, (n_names)."""
        new = [name for name in table.names if name not in self._rows]
        self.nbytes += sum(map(len, new)) + _NAME_BYTES * len(new) + table.flat.nbytes + table.cum.nbytes
        rows = np.array([self._rows.setdefault(name, len(self._rows)) for name in table.names], np.int64)
        room = np.zeros((len(self._rows) - len(self._flat), len(self._total)), np.int64)
        self._flat, self._cum = np.concatenate((self._flat, room)), np.concatenate((self._cum, room))
        self._flat[rows] += table.flat  # a table has each name once, so no row repeats
        self._cum[rows] += table.cum
        self._total = self._total + table.total
        return rows

    def table(self) -> TopTable:
        """Return the current sum."""
        return TopTable(list(self._rows), self._flat, self._cum, self._total)
