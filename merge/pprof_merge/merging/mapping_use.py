"""Mappings with all their attributes. `Numbering` numbers mappings by their keys, which lack addresses and
flags; a merge needs those of the profile that uses the mapping first.

Such a mapping is a row of seven int64: its number in the dictionary; its start, limit and offset, as uint64;
the string numbers of its file name and build id; and its four flags, as bits, the first flag lowest.
"""

from __future__ import annotations

import numpy as np

from pprof_merge.arrays import Int64s

# The columns of these rows.
NUMBER, _, _, _, FILENAME, BUILD_ID, _ = range(7)


def renumbered(rows: Int64s, numbers: Int64s, string_numbers: Int64s) -> Int64s:
    """Return the rows with mapping m replaced by numbers[m], and string s by string_numbers[s]."""
    number, start, limit, offset, filename, build_id, flags = rows.T
    names = string_numbers[filename], string_numbers[build_id]
    return np.stack((numbers[number], start, limit, offset, *names, flags), axis=1)
