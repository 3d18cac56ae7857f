"""Stored blobs as the engine gets them: by the ten thousand, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pprof_merge import Bytes, Int32s, Int64s, Ints, Limits

from pgo_collector.model.blob_names import blob_name

# What is stored may have any size: it was within the limits when it came, or is a merge of such. The two
# that bound the time of odd layouts stay, or one damaged blob could hold up every merge for minutes.
_DEFAULTS = Limits()
STORED_LIMITS = Limits.none()._replace(
    irregular_fields=_DEFAULTS.irregular_fields,
    nested_messages=_DEFAULTS.nested_messages,
    inflated_bytes=1 << 30,
)


class BlobSeries(NamedTuple):
    """A series: the folders of its blobs, its labels, and the keys of those that a roll-up dropped."""

    folders: str
    labels: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BlobColumns:
    """n blobs in a folder, each one of these `series`: its number (n,), the time in ns (n,), and the SHA-256
    of the bare protobuf (n, 32).
    """

    folder: str
    series: tuple[BlobSeries, ...]
    series_numbers: Int32s
    times: Int64s
    digests: Bytes

    def __len__(self) -> int:
        return len(self.times)

    def series_of(self, row: int) -> BlobSeries:
        """The series of one of them."""
        return self.series[int(self.series_numbers[row])]

    def name(self, row: int) -> str:
        """The name of one of them, which is its path in the folder."""
        return blob_name(self.series_of(row).folders, int(self.times[row]), bytes(self.digests[row]).hex())

    def path(self, row: int) -> Path:
        """Where one of them is."""
        return Path(self.folder, self.name(row))

    def take(self, rows: Ints) -> BlobColumns:
        """Some of them."""
        return BlobColumns(
            self.folder, self.series, self.series_numbers[rows], self.times[rows], self.digests[rows]
        )
