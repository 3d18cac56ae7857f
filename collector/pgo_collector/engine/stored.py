"""Stored blobs as the engine gets them: by the ten thousand, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pprof_merge import Bytes, Int32s, Int64s, Ints, Limits

from pgo_collector.days import DAY_NANOS

BLOB_SUFFIX = ".pb.gz"
# What is stored may have any size: it was within the limits when it came, or is a merge of such. The two
# that bound the time of odd layouts stay, or one damaged blob could hold up every merge for minutes.
_DEFAULTS = Limits()
STORED = Limits.none()._replace(
    irregular_fields=_DEFAULTS.irregular_fields,
    nested_messages=_DEFAULTS.nested_messages,
    inflated_bytes=1 << 30,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def blob_name(folders: str, time_nanos: int, digest: str) -> str:
    """The path of a blob below that of all: its series' folders, the day, and its time and digest in hex."""
    return f"{folders}/{_day(time_nanos // DAY_NANOS)}/{time_nanos}-{digest}{BLOB_SUFFIX}"


class StoredSeries(NamedTuple):
    """A series: the folders of its blobs, its labels, and the keys of those that a roll-up dropped."""

    folders: str
    labels: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class StoredBlobs:
    """n blobs in a folder, each one of these `series`: its number (n,), the time in ns (n,), and the SHA-256
    of the bare protobuf (n, 32).
    """

    folder: str
    series: tuple[StoredSeries, ...]
    series_numbers: Int32s
    times: Int64s
    digests: Bytes

    def __len__(self) -> int:
        return len(self.times)

    def series_of(self, row: int) -> StoredSeries:
        """The series of one of them."""
        return self.series[int(self.series_numbers[row])]

    def name(self, row: int) -> str:
        """The name of one of them, which is its path in the folder."""
        return blob_name(self.series_of(row).folders, int(self.times[row]), bytes(self.digests[row]).hex())

    def path(self, row: int) -> Path:
        """Where one of them is."""
        return Path(self.folder, self.name(row))

    def take(self, rows: Ints) -> StoredBlobs:
        """Some of them."""
        return StoredBlobs(
            self.folder, self.series, self.series_numbers[rows], self.times[rows], self.digests[rows]
        )


@lru_cache(maxsize=1 << 10)
def _day(number: int) -> str:
    return f"{_EPOCH + timedelta(days=number):%Y-%m-%d}"
