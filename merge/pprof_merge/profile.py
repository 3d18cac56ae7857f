"""A profile as columns: `decode` returns it, `merge` takes and returns it, and `encode` writes it.

Tables refer to each other by row number, counted from 0; the ids of the wire format do not appear here. A
string is a row number in `strings`. A ragged column (the locations of a sample, the lines of a location) is
one flat array and offsets: row i has the entries flat[offsets[i]:offsets[i + 1]].
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
    # Row numbers, in 32 or 64 bits.
    Ints = NDArray[np.signedinteger[Any]]
    Integers = NDArray[np.integer[Any]]
else:  # importing numpy.typing takes longer than merging a profile
    Bytes = Int32s = Int64s = UInt32s = UInt64s = Floats = Bools = Ints = Integers = np.ndarray


# Messages show at most so many bytes of a type or unit: a hostile profile may have long ones.
_LONGEST_PART = 100


class ValueType(NamedTuple):
    """What a value measures (`cpu`) and in what unit (`nanoseconds`)."""

    type: bytes
    unit: bytes

    def __str__(self) -> str:
        """Return `type/unit` for messages; long parts are cut."""
        return "/".join(part[:_LONGEST_PART].decode(errors="replace") for part in self)


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a profile that are not tables. Times are in ns, `period` is in units of `period_type`."""

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
    """The samples, one a row: `values` is (n_samples, n_types), `locations` is ragged with the leaf first."""

    values: Int64s
    locations: Ints
    location_offsets: Int64s
    labels: Labels

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The labels of all samples, ragged by `offsets` (n_samples + 1).

    `key`, `text` and `unit` are row numbers of strings. `text` is -1 for a label that is a number. `unit` is
    0, the empty string, for a number without a unit.
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
    """The mappings, one a row, the main binary first.

    `flags` is (n_mappings, 4): has_functions, has_filenames, has_line_numbers, has_inline_frames.
    """

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
    """The locations, one a row. `mapping` is -1 if unknown; `lines` are ragged, the innermost call first."""

    mapping: Ints
    address: UInt64s
    folded: Bools
    lines: Lines

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """The source lines of all locations, ragged by `offsets` (n_locations + 1)."""

    function: Ints
    line: Int64s
    column: Int64s
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.function)


@dataclass(frozen=True, slots=True, eq=False)
class Functions:
    """The functions, one a row; names are row numbers of strings."""

    name: Ints
    system_name: Ints
    filename: Ints
    start_line: Int64s

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """A whole profile: a header and tables of columns.

    `strings[0]` is the empty string. `digest` (32 bytes) is the SHA-256 of the bare protobuf for a decoded
    profile, and the SHA-256 of its inputs' digests, in order, for a merged one.
    """

    header: Header
    samples: Samples
    mappings: Mappings
    locations: Locations
    functions: Functions
    strings: list[bytes]
    digest: bytes
