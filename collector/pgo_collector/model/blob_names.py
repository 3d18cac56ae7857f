"""Names of blobs: which series and profile a blob is of, and its path below `blobs/`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from pgo_collector.errors import LabelsInvalid
from pgo_collector.model.series import SERVICE_PATTERN, Series
from pgo_collector.model.times import DAY_NANOS

BLOB_SUFFIX = ".pb.gz"
_NAME = re.compile(
    rf"(?P<service>{SERVICE_PATTERN})/(?P<type>[a-z]+)/(?P<labels>(?:[^/=]+=[^/=]*/)*)\d{{4}}-\d{{2}}-\d{{2}}/"
    r"(?P<time_nanos>-?\d{1,19})-(?P<digest>[0-9a-f]{64})\.pb\.gz"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Identity(NamedTuple):
    """What makes a profile one within its series, however often it is sent; sorts in canonical order."""

    time_nanos: int
    digest: str


class BlobName(NamedTuple):
    """A blob's place; its text is the path below blobs/. So is every profile inside a combined one called."""

    series: Series
    identity: Identity

    def __str__(self) -> str:
        return blob_name(_folders(self.series), *self.identity)

    @classmethod
    def parse(cls, text: str) -> BlobName | None:
        """The name of such a path, None if it isn't one that we give."""
        match = _NAME.fullmatch(text)
        if match is None or not -(1 << 63) <= int(match["time_nanos"]) < 1 << 63:
            return None
        try:
            labels_text = match["labels"].rstrip("/").replace("/", ",")
            series = Series.parse(match["service"], match["type"], labels_text)
        except LabelsInvalid:
            return None
        name = cls(series, Identity(int(match["time_nanos"]), match["digest"]))
        return name if str(name) == text else None


def blob_name(folders: str, time_nanos: int, digest: str) -> str:
    """The path of a blob below that of all: its series' folders, the day, and its time and digest in hex."""
    return f"{folders}/{_day(time_nanos // DAY_NANOS)}/{time_nanos}-{digest}{BLOB_SUFFIX}"


@lru_cache(maxsize=1 << 14)
def _folders(series: Series) -> str:
    """The series' folders; of thousands of names most have some series in common."""
    return series.folders


@lru_cache(maxsize=1 << 10)
def _day(number: int) -> str:
    return f"{_EPOCH + timedelta(days=number):%Y-%m-%d}"
