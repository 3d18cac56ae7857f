"""Masks of functions: what the stacks with certain functions come to, for many choices of functions at once.

Each bit of a function's mask is a choice that the function is in. A stack has the bits of all its functions,
so that recursion counts once, and its leaf has those of the innermost. mypyc compiles this module.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from librt.vecs import vec
from mypy_extensions import i64

from pprof_merge.columns.vectors import zeros
from pprof_merge.errors import ProfileError
from pprof_merge.profile.columns import ProfileColumns

# How a function's name in the system compares with its name: there is none, it is the same, or another.
UNNAMED: Final = 0
SAME: Final = 1
OTHER: Final = 2


# Sums of values that are no larger fit into 63 bits. In ns it is 73 years.
_MOST: Final[i64] = 0x1FFFFFFFFFFFFFFF


class MaskedValues(NamedTuple):
    """The sums of the values of one sample type: of all samples, and for each bit (n_bits,) of the samples
    that have it in their stacks (`inside`), and of those whose leaf has it.
    """

    total: int
    inside: list[int]
    leaf: list[int]


def masked_values(
    columns: ProfileColumns, column: int, masks: list[dict[bytes, int]], n_bits: int
) -> MaskedValues:
    """Return the sums of the values in one column of a profile by the masks of its functions.

    `masks` has the mask, of `n_bits` or 62 at most, of each name, by how the name in the system compares:
    UNNAMED, SAME, OTHER. Raises what looking one up raises, and ProfileError for values that are negative
    or too large to be summed.
    """
    of_function = _masks_of_functions(columns, masks)
    lines, locations, frames, ends = columns.lines, columns.locations, columns.frames, columns.frame_ends
    inside, innermost = zeros(columns.n_locations), zeros(columns.n_locations)
    line: i64 = 0
    for row in range(columns.n_locations):
        if line < locations[5 * row + 3]:
            innermost[row] = of_function[lines[3 * line]]
        while line < locations[5 * row + 3]:
            inside[row] |= of_function[lines[3 * line]]
            line += 1
    total: i64 = 0
    bits: i64 = n_bits
    of_stacks, of_leaves = zeros(bits), zeros(bits)
    values, n_types, which = columns.values, columns.n_types, i64(column)
    for sample in range(columns.n_samples):
        value: i64 = values[sample * n_types + which]
        if value < 0 or value > _MOST - total:
            raise ProfileError("it has values that are negative, or too large to be summed")
        total += value
        mask: i64 = 0
        for frame in range(ends[sample], ends[sample + 1]):
            mask |= inside[i64(frames[frame])]
        if mask != 0:
            leaf: i64 = innermost[i64(frames[ends[sample]])]
            for bit in range(bits):
                of_stacks[bit] += value * (mask >> bit & 1)
                of_leaves[bit] += value * (leaf >> bit & 1)
    return MaskedValues(
        int(total), [of_stacks[bit] for bit in range(bits)], [of_leaves[bit] for bit in range(bits)]
    )


def _masks_of_functions(columns: ProfileColumns, masks: list[dict[bytes, int]]) -> vec[i64]:
    """Return the mask of each function, (n_functions)."""
    functions, found = columns.functions, zeros(columns.n_functions)
    of_same = masks[SAME]
    for row in range(columns.n_functions):
        name: i64 = functions[5 * row + 1]
        system_name: i64 = functions[5 * row + 2]
        text: bytes = columns.string(name)
        other: bytes = text if system_name == name else columns.string(system_name)
        if other == text:
            found[row] = of_same[text]
        else:
            found[row] = masks[OTHER if other else UNNAMED][text]
    return found
