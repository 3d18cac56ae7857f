"""A profile as columns: the value that `decode` makes, `merge` returns and `encode` takes.

Rows refer to one another by row number, from 0; the ids of the wire format exist only there. Strings
are row numbers of `strings`. Ragged columns (the locations of a sample, the lines of a location) are
one flat column and offsets: row i owns flat[offsets[i]:offsets[i + 1]].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Int32s = NDArray[np.int32]
    Int64s = NDArray[np.int64]
    UInt32s = NDArray[np.uint32]
    UInt64s = NDArray[np.uint64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    # Row numbers: columns of them are as wide as their maker found right.
    Ints = NDArray[np.signedinteger[Any]]
    Integers = NDArray[np.integer[Any]]
else:  # numpy.typing takes longer to import than a profile to merge
    Bytes = Int32s = Int64s = UInt32s = UInt64s = Floats = Bools = Ints = Integers = np.ndarray


# Types and units are words; those of a hostile profile may be of any length.
_LONGEST_PART = 100


class ValueType(NamedTuple):
    """What a value measures (`cpu`) and in what unit (`nanoseconds`)."""

    type: bytes
    unit: bytes

    def __str__(self) -> str:
        """As messages have it: what is long is cut."""
        return "/".join(part[:_LONGEST_PART].decode(errors="replace") for part in self)


@dataclass(frozen=True, slots=True)
class Header:
    """All of a profile that isn't a table. Times in ns; `period` in units of `period_type`."""

    sample_types: tuple[ValueType, ...]
    period_type: ValueType = ValueType(b"", b"")
    period: int = 0
    time_nanos: int = 0
    duration_nanos: int = 0
    comments: tuple[bytes, ...] = ()
    default_sample_type: bytes = b""
    doc_url: bytes = b""
    drop_frames: bytes = b""
    keep_frames: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """One row a sample; `values` is (n_samples, n_types), `locations` ragged with the leaf first."""

    values: Int64s
    locations: Ints
    location_offsets: Int64s
    labels: Labels

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Labels of all samples, ragged by `offsets` (n_samples + 1).

    `text` is the string row of a string label and -1 where the label is a number; a number's `unit`
    is string row 0, the empty string, where it has none.
    """

    key: Ints
    text: Ints
    number: Int64s
    unit: Ints
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Mappings:
    """One row a mapping, the main binary first. `flags` is (n, 4): functions, filenames, lines, inlines."""

    start: UInt64s
    limit: UInt64s
    offset: UInt64s
    filename: Ints
    build_id: Ints
    flags: Bools

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class Locations:
    """One row a location. `mapping` is -1 where it is unknown; `lines` are ragged, the innermost first."""

    mapping: Ints
    address: UInt64s
    folded: Bools
    lines: Lines

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Source lines of all locations, ragged by `offsets` (n_locations + 1)."""

    function: Ints
    line: Int64s
    column: Int64s
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.function)


@dataclass(frozen=True, slots=True, eq=False)
class Functions:
    """One row a function; names are string rows."""

    name: Ints
    system_name: Ints
    filename: Ints
    start_line: Int64s

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """A whole profile. `strings[0]` is empty; `digest` (32 bytes) identifies the bytes it came from."""

    header: Header
    samples: Samples
    mappings: Mappings
    locations: Locations
    functions: Functions
    strings: list[bytes]
    digest: bytes
