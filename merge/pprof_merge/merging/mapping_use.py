"""Mappings with all their attributes. `Numbering` numbers mappings by their keys, which lack addresses and
flags; a merge needs those of the profile that uses the mapping first.

Such a mapping is a row of seven int64: its number in the dictionary; its start, limit and offset, as uint64;
the string numbers of its file name and build id; and its four flags, as bits, the first flag lowest.
"""

from __future__ import annotations

import numpy as np

from pprof_merge.profile import Int64s, Mappings

# The columns of these rows.
NUMBER, _, _, _, FILENAME, BUILD_ID, _ = COLUMNS = range(7)
_FLAGS = np.arange(4)


def mappings_from_rows(rows: Int64s) -> Mappings:
    """Return the mappings of rows (n, 7)."""
    _, start, limit, offset, filename, build_id, flags = rows.T.copy()
    return Mappings(
        start=start.view(np.uint64),
        limit=limit.view(np.uint64),
        offset=offset.view(np.uint64),
        filename=filename,
        build_id=build_id,
        flags=flags[:, None] >> _FLAGS & 1 != 0,
    )


def renumbered(rows: Int64s, numbers: Int64s, string_numbers: Int64s) -> Int64s:
    """Return the rows with mapping m replaced by numbers[m], and string s by string_numbers[s]."""
    number, start, limit, offset, filename, build_id, flags = rows.T
    names = string_numbers[filename], string_numbers[build_id]
    return np.stack((numbers[number], start, limit, offset, *names, flags), axis=1)
