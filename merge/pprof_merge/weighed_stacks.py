"""Weighed stacks: each stack of a profile with its value, or with one for each of two profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.formats.stacks import FRAME_BYTES, stacks_of
from pprof_merge.profile import Int32s, Int64s, Profile
from pprof_merge.ragged import offsets_of

_ADVICE = "select fewer profiles, or ask for the table in place of the flame graph"


@dataclass(frozen=True, slots=True, eq=False)
class WeighedStacks:
    """One row a stack: `rows` is ragged by `offsets` (n + 1), the root first, and refers to `names`, in which
    each name is once. `values` is (n, n_sides), none below 0.
    """

    names: list[str]
    rows: Int32s
    offsets: Int64s
    values: Int64s

    @classmethod
    def of(cls, profile: Profile, column: int, budget: Budget = UNBOUNDED) -> Self:
        """All samples of a profile, with their values of one type: (n_samples, 1).

        What is negative, as in a profile that is a difference, counts as 0: it has no width. Raises
        OutputTooLarge where the stacks are more than the budget.
        """
        stacks = stacks_of(profile, budget)
        stacks.check(budget)
        numbers: dict[str, int] = {}
        number_of = np.array(
            [numbers.setdefault(frame.name, len(numbers)) for frame in stacks.frames], np.int32
        )
        offsets = offsets_of(stacks.depths)
        rows = np.empty(stacks.n_frames, np.int32)
        for chunk in stacks.chunks():
            begin = offsets[chunk.first]
            rows[begin : begin + len(chunk.rows)] = number_of[chunk.rows]
        values = np.maximum(profile.samples.values[:, column : column + 1], 0)
        return cls(list(numbers), rows, offsets, values)

    def beside(self, base: WeighedStacks, budget: Budget = UNBOUNDED) -> WeighedStacks:
        """These stacks, and after them those of a base; each has a value on its own side: (n, 2).

        Raises OutputTooLarge where both are more than the budget.
        """
        budget.check_rows(len(self.rows) + len(base.rows), FRAME_BYTES, _ADVICE)
        numbers = {name: number for number, name in enumerate(self.names)}
        number_of = np.array([numbers.setdefault(name, len(numbers)) for name in base.names], np.int32)
        return WeighedStacks(
            names=list(numbers),
            rows=np.concatenate((self.rows, number_of[base.rows])),
            offsets=np.concatenate((self.offsets, self.offsets[-1] + base.offsets[1:])),
            values=np.concatenate(
                (np.pad(self.values, ((0, 0), (0, 1))), np.pad(base.values, ((0, 0), (1, 0))))
            ),
        )
