"""Stored blobs as columns: how the server hands tens of thousands of blobs to a worker."""

from __future__ import annotations

from dataclasses import dataclass

from pprof_merge import Limits
from pprof_merge.arrays import Bools, Bytes, Int32s, Int64s, Ints

from pgo_collector.blobs.storage import Storage
from pgo_collector.model.series import BlobName, Identity, Series

# A stored profile may have any size: it was within the limits when it was submitted, or is a merge. The two
# limits that bound the time of odd layouts stay, or one damaged blob could delay every merge by minutes.
_DEFAULTS = Limits()
STORED_LIMITS = Limits.none()._replace(
    irregular_fields=_DEFAULTS.irregular_fields,
    nested_messages=_DEFAULTS.nested_messages,
    inflated_bytes=1 << 30,
)


@dataclass(frozen=True, slots=True, eq=False)
class BlobColumns:
    """n blobs in one storage, each of one of these `series`.

    `series_numbers` (n,) int32 are indexes into `series`, `times` (n,) int64 are in ns since 1970, and
    `digests` (n, 32) uint8 are the SHA-256 of the bare protobufs. `is_combined` (n,) says which are merges.
    """

    storage: Storage
    series: tuple[Series, ...]
    series_numbers: Int32s
    times: Int64s
    digests: Bytes
    is_combined: Bools

    def __len__(self) -> int:
        return len(self.times)

    def series_of(self, row: int) -> Series:
        """Return the series of one blob."""
        return self.series[int(self.series_numbers[row])]

    def name(self, row: int) -> str:
        """Return the name of one blob: its text, by which the storage has it."""
        identity = Identity(int(self.times[row]), bytes(self.digests[row]).hex())
        return str(BlobName(self.series_of(row), identity))

    def take(self, rows: Ints) -> BlobColumns:
        """Return these rows as columns of their own."""
        return BlobColumns(
            self.storage,
            self.series,
            self.series_numbers[rows],
            self.times[rows],
            self.digests[rows],
            self.is_combined[rows],
        )
