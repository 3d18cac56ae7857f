"""The use of one function: its weight, its callers and callees, and the weight of each of its lines.

The numbers are those of `go tool pprof`: `-peek` has the callers and callees, `-lines` and `-list` the lines.
A sample counts once for a function, a call or a line, however often that is in its stack. So the cost grows
with the number of frames in the stacks that the function is in, however many lines it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from posixpath import normpath
from typing import NamedTuple, Self

import numpy as np

from pprof_merge.analysis.demangling import name_finder, shown_name
from pprof_merge.analysis.stacks import Frame, Stacks, stacks_of
from pprof_merge.analysis.totals import totals_of
from pprof_merge.arrays import Bools, Int64s
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.profile import Profile

# Memory, in bytes, of a call or a line in Python's tables, besides the characters of its name.
_ROW_BYTES = 200
_ADVICE = "select fewer profiles"
# This many similar names are told of a name that no function has.
_MOST_SIMILAR = 10


class Call(NamedTuple):
    """The value of the samples in which one function calls the other, and whether the call is inlined.

    It is inlined if it is in every sample, as in `-peek`.
    """

    value: int
    is_inlined: bool


class Place(NamedTuple):
    """A line of a source file; 0 if the line isn't known. Paths are normalized, empty if not known."""

    file: str
    line: int


@dataclass(slots=True)
class LineUse:
    """The values of a line as in `TopTable`; `inlined` has the value of each function inlined there."""

    flat: int = 0
    cum: int = 0
    inlined: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class FunctionUse:
    """The use of the functions with one name, for one sample type.

    `total` is that of all samples, `flat` and `cum` are as in `TopTable`. `callers` and `callees` don't
    have the function itself. `is_known` says whether any call has the name; if none has it, `similar` are
    the shortest names that contain it, or are shown in place of such.
    """

    total: int = 0
    flat: int = 0
    cum: int = 0
    callers: dict[str, Call] = field(default_factory=dict)
    callees: dict[str, Call] = field(default_factory=dict)
    lines: dict[Place, LineUse] = field(default_factory=dict)
    is_known: bool = False
    similar: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, profile: Profile, name: str, column: int, budget: Budget = UNBOUNDED) -> Self:
        """Return the use of the functions named `name` in a profile, for one sample type.

        The name may be mangled. Raises OutputTooLarge if computing it takes more than the budget.
        """
        stacks = stacks_of(profile, budget)
        values = profile.samples.values[:, column]
        use = cls(total=int(totals_of(profile)[column]))
        names: dict[str, int] = {}
        name_of = np.array([names.setdefault(frame.name, len(names)) for frame in stacks.frames], np.int64)
        is_used = stacks.used()
        used = {frame.name for frame, used in zip(stacks.frames, is_used.tolist(), strict=True) if used}
        asked, name = name, shown_name(name)
        if name not in used:
            use.similar = _shortest(filter(name_finder(asked, stacks.system_names.items()), used))
            return use
        use.is_known = True
        is_chosen = name_of == names[name]
        is_leaf, is_in = stacks.contain(is_chosen)
        use.flat, use.cum = int(values[is_leaf].sum()), int(values[is_in].sum())
        counted = np.flatnonzero(is_in & (values != 0))
        chosen = stacks.only(counted)
        chosen.check(budget)
        adder = _Adder(chosen, name_of, names[name], [*names])
        adder.add(values[counted])
        budget.check_rows(adder.n_rows, _ROW_BYTES, _ADVICE)
        adder.write(use)
        return use

    @property
    def nbytes(self) -> int:
        """Return about how much memory the names and rows take, in bytes."""
        inlined = [name for line in self.lines.values() for name in line.inlined]
        names = [*self.callers, *self.callees, *inlined, *(place.file for place in self.lines), *self.similar]
        return sum(map(len, names)) + _ROW_BYTES * len(names)

    def add(self, other: FunctionUse) -> None:
        """Add the use of the same function in another profile."""
        self.total, self.flat, self.cum = (
            self.total + other.total, self.flat + other.flat, self.cum + other.cum
        )  # fmt: skip
        self.is_known |= other.is_known
        self.similar = _shortest({*self.similar, *other.similar})
        for own, others in ((self.callers, other.callers), (self.callees, other.callees)):
            for called, call in others.items():
                before = own.get(called, Call(0, is_inlined=True))
                own[called] = Call(before.value + call.value, before.is_inlined and call.is_inlined)
        for place, line in other.lines.items():
            sum_ = self.lines.setdefault(place, LineUse())
            sum_.flat += line.flat
            sum_.cum += line.cum
            for inlined, value in line.inlined.items():
                sum_.inlined[inlined] = sum_.inlined.get(inlined, 0) + value


def _shortest(names: Iterable[str]) -> list[str]:
    """Return the shortest names, at most ten."""
    return nsmallest(_MOST_SIMILAR, names, key=lambda name: (len(name), name))


class _Pairs:
    """The sums of values by a key, where each pair of a key and a sample counts once."""

    def __init__(self) -> None:
        self.sums: defaultdict[int, int] = defaultdict(int)
        # Whether the first call of every sample was inlined, by key.
        self.is_inlined: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self.sums)

    def add(self, keys: Int64s, samples: Int64s, values: Int64s, is_inlined: Bools | None = None) -> None:
        """Add keys and the samples that they are in, from the root of each stack to its leaf.

        `values` (n_samples) are those of all samples.
        """
        if not len(keys):
            return
        distinct, row = np.unique(keys, return_inverse=True)
        pairs, first = np.unique(row * len(values) + samples, return_index=True)
        row, sample = np.divmod(pairs, len(values))
        sums = np.zeros(len(distinct), np.int64)
        np.add.at(sums, row, values[sample])
        for key, value in zip(distinct.tolist(), sums.tolist(), strict=True):
            self.sums[key] += value
        if is_inlined is not None:
            is_all = np.ones(len(distinct), np.bool_)
            np.logical_and.at(is_all, row, is_inlined[first])
            for key, of_all in zip(distinct.tolist(), is_all.tolist(), strict=True):
                self.is_inlined[key] = self.is_inlined.get(key, True) and of_all


class _Adder:
    """Adds up calls and lines, a chunk of stacks after another. All stacks have the function in them."""

    def __init__(self, stacks: Stacks, name_of: Int64s, chosen: int, names: Sequence[str]) -> None:
        self._stacks = stacks
        self._name_of = name_of
        self._chosen = chosen
        self._names = names
        self._places, self._place_of = _places_of(stacks, name_of == chosen)
        self._callers, self._callees = _Pairs(), _Pairs()
        self._flat, self._cum, self._inlined = _Pairs(), _Pairs(), _Pairs()

    @property
    def n_rows(self) -> int:
        """Return the number of calls and lines."""
        return len(self._callers) + len(self._callees) + len(self._cum) + len(self._inlined)

    def add(self, values: Int64s) -> None:
        """Add all stacks, with their `values` (n_samples)."""
        is_outermost = self._stacks.outermost_slots()
        for chunk in self._stacks.chunks():
            of_chunk = values[chunk.samples]
            names = self._name_of[chunk.rows]
            sample_of = np.repeat(np.arange(len(of_chunk)), np.diff(chunk.offsets))
            at = np.flatnonzero(names == self._chosen)
            sample, place = sample_of[at], self._place_of[chunk.slots[at]]
            self._cum.add(place, sample, of_chunk)
            is_leaf = at == chunk.offsets[1:][sample] - 1
            self._flat.add(place[is_leaf], sample[is_leaf], of_chunk)
            is_called = (at > chunk.offsets[:-1][sample]) & (names[at - 1] != self._chosen)
            called = at[is_called]
            is_inlined = ~is_outermost[chunk.slots[called]]
            self._callers.add(names[called - 1], sample_of[called], of_chunk, is_inlined)
            below, place = at[~is_leaf] + 1, place[~is_leaf]
            is_inlined = ~is_outermost[chunk.slots[below]]
            keys = place * len(self._names) + names[below]
            self._inlined.add(keys[is_inlined], sample_of[below[is_inlined]], of_chunk)
            is_other = names[below] != self._chosen
            below, is_inlined = below[is_other], is_inlined[is_other]
            self._callees.add(names[below], sample_of[below], of_chunk, is_inlined)

    def write(self, use: FunctionUse) -> None:
        """Write the sums to the use of the function."""
        for calls, pairs in ((use.callers, self._callers), (use.callees, self._callees)):
            for key, value in pairs.sums.items():
                calls[self._names[key]] = Call(value, pairs.is_inlined[key])
        for place, cum in self._cum.sums.items():
            use.lines[self._places[place]] = LineUse(self._flat.sums.get(place, 0), cum)
        for key, value in self._inlined.sums.items():
            place, name = divmod(key, len(self._names))
            use.lines[self._places[place]].inlined[self._names[name]] = value


def _places_of(stacks: Stacks, is_chosen: Bools) -> tuple[list[Place], Int64s]:
    """Return the places of the chosen frames, and the number of each slot's place: (n_slots).

    A slot without a chosen frame has no place, -1.
    """
    place_of = np.full(len(stacks.slot_frames), -1, np.int64)
    slots = np.flatnonzero(is_chosen[stacks.slot_frames])
    files = {frame: _clean(stacks.frames[frame]) for frame in np.flatnonzero(is_chosen).tolist()}
    numbers: dict[Place, int] = {}
    found = zip(stacks.slot_frames[slots].tolist(), stacks.slot_lines[slots].tolist(), strict=True)
    places = (Place(files[frame], of_slot) for frame, of_slot in found)
    place_of[slots] = [numbers.setdefault(place, len(numbers)) for place in places]
    return list(numbers), place_of


def _clean(frame: Frame) -> str:
    return normpath(frame.file) if frame.file else ""
