"""Weighed stacks: the stacks of one profile, or of two, as names with values; flame graphs are drawn of them.

`of` reads them by function, package, file or line, with recursion or without.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Self

import numpy as np

from pprof_merge.analysis.demangling import shown_name
from pprof_merge.analysis.grouping import Grouping, named_slots
from pprof_merge.analysis.stacks import FRAME_BYTES, stacks_of
from pprof_merge.arrays import Int32s, Int64s
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.columns.ragged import offsets_of, spans
from pprof_merge.profile import Profile

_GRAPH_ADVICE = "select fewer profiles, or ask for the table in place of the flame graph"
# What calls itself all the time: in a graph of packages, a box is a way through one package.
_COLLAPSED = ("package", "file")


@dataclass(frozen=True, slots=True, eq=False)
class WeighedStacks:
    """Stacks of names with their values, one a row, in one profile or in two that are compared (its sides).

    `rows` are rows of `names`, which are distinct; they are ragged by `offsets` (n + 1), the root first.
    `binaries` are the files that the names are in, each empty if it isn't known. `values` is (n, n_sides).
    `system_names` are the names that functions have in the system, one a line, by
    others that are shown, where names are those of functions or lines.
    """

    names: list[str]
    binaries: list[str]
    rows: Int32s
    offsets: Int64s
    values: Int64s
    system_names: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        profile: Profile,
        column: int,
        budget: Budget = UNBOUNDED,
        *,
        by: Grouping = "function",
        is_collapsed: bool = False,
    ) -> Self:
        """Return the stacks of a profile, with their values of one sample type: (n_samples, 1).

        `by` says what a name stands for. If recursion `is_collapsed`, a name that calls itself is there once;
        so is in any case a package or file that calls itself, since a call within it says nothing.

        Raises OutputTooLarge if the stacks take more than the budget.
        """
        stacks = stacks_of(profile, budget)
        stacks.check(budget)
        names, name_of = named_slots(stacks, by, budget)
        found, first = np.unique(name_of, return_index=True)
        binaries = [""] * len(names)
        for name, frame in zip(found.tolist(), stacks.slot_frames[first].tolist(), strict=True):
            binaries[name] = stacks.binaries[frame]
        offsets = offsets_of(stacks.depths)
        rows = np.empty(stacks.n_frames, np.int32)
        for chunk in stacks.chunks():
            begin = offsets[chunk.first]
            rows[begin : begin + len(chunk.rows)] = name_of[chunk.slots]
        if is_collapsed or by in _COLLAPSED:
            rows, offsets = _collapsed(rows, offsets)
        values = profile.samples.values[:, column : column + 1]
        known = [*stacks.system_names.items()] if by in {"function", "line"} else []
        return cls(names, binaries, rows, offsets, values, known)

    @classmethod
    def joined(cls, every: Sequence[WeighedStacks], budget: Budget = UNBOUNDED) -> Self:
        """Return the stacks of several profiles, one profile's after another's: (n, 1).

        Each has values (n, 1). Raises OutputTooLarge if all together take more than the budget.
        """
        budget.check_rows(sum(len(each.rows) for each in every), FRAME_BYTES, _GRAPH_ADVICE)
        names, binaries, numbers = _numbered((each.names, each.binaries) for each in every)
        rows, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for each, number_of in zip(every, numbers, strict=True):
            rows.append(number_of[each.rows])
            lengths.append(np.diff(each.offsets))
        values = np.concatenate([np.zeros((0, 1), np.int64), *(each.values for each in every)])
        offsets = offsets_of(np.concatenate(lengths))
        return cls(names, binaries, np.concatenate(rows), offsets, values, _joined_names(every))

    @property
    def sizes(self) -> Int64s:
        """Return the widths of the stacks in a drawing: their values without the signs, (n, n_sides)."""
        return np.abs(self.values)

    def beside(self, base: WeighedStacks, budget: Budget = UNBOUNDED) -> WeighedStacks:
        """Return these stacks followed by those of a base, with values (n, 2).

        The first column has the values of these stacks, the second those of the base. Raises OutputTooLarge
        if both together take more than the budget.
        """
        budget.check_rows(len(self.rows) + len(base.rows), FRAME_BYTES, _GRAPH_ADVICE)
        names, binaries, (_, number_of) = _numbered((each.names, each.binaries) for each in (self, base))
        return WeighedStacks(
            names=names,
            binaries=binaries,
            rows=np.concatenate((self.rows, number_of[base.rows])),
            offsets=np.concatenate((self.offsets, self.offsets[-1] + base.offsets[1:])),
            values=np.concatenate(
                (np.pad(self.values, ((0, 0), (0, 1))), np.pad(base.values, ((0, 0), (1, 0))))
            ),
            system_names=_joined_names((self, base)),
        )

    def below(self, groups: Sequence[str], group_of: Int64s) -> WeighedStacks:
        """Return each stack with one more name at its root, that of its group: `group_of` is (n,)."""
        names, binaries, (_, number_of) = _numbered(
            ((self.names, self.binaries), (groups, [""] * len(groups)))
        )
        offsets = self.offsets + np.arange(len(self.offsets))
        rows = np.empty(len(self.rows) + len(group_of), np.int32)
        is_group = np.zeros(len(rows), np.bool_)
        is_group[offsets[:-1]] = True
        rows[is_group], rows[~is_group] = number_of[group_of], self.rows
        return replace(self, names=names, binaries=binaries, rows=rows, offsets=offsets)

    def around(self, name: str) -> tuple[WeighedStacks, WeighedStacks]:
        """Return the callers and the callees of a name, each as stacks that begin with it.

        A stack that has the name several times is taken around the first of them, the outermost, so that it
        counts once. There are no stacks if none has the name.
        """
        name = shown_name(name)
        number = self.names.index(name) if name in self.names else -1
        places = np.flatnonzero(self.rows == number)
        found, first = np.unique(np.searchsorted(self.offsets, places, side="right") - 1, return_index=True)
        at = places[first]
        above, below = at - self.offsets[found] + 1, self.offsets[found + 1] - at

        def part(index: Int64s, lengths: Int64s) -> WeighedStacks:
            offsets = offsets_of(lengths)
            return replace(self, rows=self.rows[index], offsets=offsets, values=self.values[found])

        return part(-spans(-at, above), above), part(spans(at, below), below)


def _numbered(
    every: Iterable[tuple[Sequence[str], Sequence[str]]],
) -> tuple[list[str], list[str], list[Int32s]]:
    """Return the distinct names in several lists, their binaries, and the rows of each list's names.

    Each list comes with its names' binaries. A name that is in several has the binary that comes first.
    """
    numbers: dict[str, int] = {}
    binaries: list[str] = []
    rows = []
    for names, of_names in every:
        for name, binary in zip(names, of_names, strict=True):
            if numbers.setdefault(name, len(numbers)) == len(binaries):
                binaries.append(binary)
        rows.append(np.array([numbers[name] for name in names], np.int32))
    return [*numbers], binaries, rows


def _joined_names(every: Iterable[WeighedStacks]) -> list[tuple[str, str]]:
    """Return the names in the system of all functions of several stacks."""
    found = defaultdict[str, dict[str, None]](dict)
    for name, texts in chain.from_iterable(each.system_names for each in every):
        found[name] |= dict.fromkeys(texts.split("\n"))
    return [(name, "\n".join(texts)) for name, texts in found.items()]


def _collapsed(rows: Int32s, offsets: Int64s) -> tuple[Int32s, Int64s]:
    """Return ragged rows without those that are the same as the one before them in their stack."""
    is_kept = np.ones(len(rows), np.bool_)
    is_kept[1:] = rows[1:] != rows[:-1]
    filled = np.flatnonzero(np.diff(offsets))
    is_kept[offsets[:-1][filled]] = True  # the first of each stack
    lengths = np.zeros(len(offsets) - 1, np.int64)
    if len(filled):
        lengths[filled] = np.add.reduceat(is_kept, offsets[:-1][filled], dtype=np.int64)
    return rows[is_kept], offsets_of(lengths)
