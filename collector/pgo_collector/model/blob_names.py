"""Names of blobs: the series and the identity of a profile, and the path of its file below `blobs/`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from pgo_collector.errors import LabelsInvalid
from pgo_collector.model.series import SERVICE_PATTERN, Series
from pgo_collector.model.times import DAY_NANOS

BLOB_SUFFIX = ".pb.gz"
INPUTS_SUFFIX = ".inputs"
_NAME = re.compile(
    rf"(?P<service>{SERVICE_PATTERN})/(?P<type>[a-z_]+)/(?P<labels>(?:[^/=]+=[^/=]*/)*)\d{{4}}-\d{{2}}-\d{{2}}/"
    r"(?P<time_nanos>-?\d{1,19})-(?P<digest>[0-9a-f]{64})\.pb\.gz"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Identity(NamedTuple):
    """Time and content of a profile. Profiles of one series with the same identity are one profile, however
    often it is sent. Identities sort in canonical order: by time in ns since 1970, then by SHA-256 in hex.
    """

    time_nanos: int
    digest: str


class BlobName(NamedTuple):
    """The name of a profile, whether it has a blob of its own or is inside a combined one.

    Its text is the path of such a blob below `blobs/`.
    """

    series: Series
    identity: Identity

    def __str__(self) -> str:
        return blob_name(_folders(self.series), *self.identity)

    @classmethod
    def parse(cls, text: str) -> BlobName | None:
        """Return the name that has this text; None if no name has."""
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
    """Return the path of a blob below `blobs/`: the folders of its series, the day, the time and the digest.

    `folders` is `Series.folders`, `time_nanos` in ns since 1970, and `digest` in hex.
    """
    return f"{folders}/{_day(time_nanos // DAY_NANOS)}/{time_nanos}-{digest}{BLOB_SUFFIX}"


@lru_cache(maxsize=1 << 14)
def _folders(series: Series) -> str:
    """Return the folders of a series, cached: thousands of names share a few series."""
    return series.folders


@lru_cache(maxsize=1 << 10)
def _day(number: int) -> str:
    return f"{_EPOCH + timedelta(days=number):%Y-%m-%d}"


def inputs_name(blob: str) -> str:
    """Return the name of the .inputs of a combined blob, given the blob's."""
    return blob.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX
