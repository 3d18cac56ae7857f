"""The record of a release, a merge that pipelines build with, and the bounds that make the next one due."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pgo_collector.errors import NoSuchRelease

NUMBER_PATTERN = "[1-9][0-9]{0,8}"

_NUMBER = re.compile(NUMBER_PATTERN)

Reason = Literal["first", "drift", "age", "request"]


class Summary(BaseModel):
    """The summary of a report: what Go's compiler does with the merge, and its number of profiles.

    `outliers` is the number of profiles that are unlike the rest; None if the compiler refuses the merge.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    verdict: str
    profiles: int
    outliers: int | None

    @classmethod
    def of(cls, report: dict[str, Any]) -> Summary:
        """Return the summary of a new report of `pprof_merge.report`; older ones may have other fields."""
        outliers = report["outliers"] and len(report["outliers"]["profiles"])
        return cls(verdict=report["go"]["verdict"], profiles=report["profiles"], outliers=outliers)


class Release(BaseModel):
    """The record of a release, which is stored beside its profile.

    `etag` is that of the merge, `digest` the SHA-256 of the bare protobuf, `sha256` that of the file, `size`
    the file's size in bytes. `overlap` is the overlap with the release that it `replaces`; None if it
    replaces none, or they can't be compared. `left_out` is the number of blobs that the merge had to leave
    out. `report` is on all profiles stored at the time; `summary` summarizes it.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    number: int
    time: AwareDatetime
    reason: Reason
    replaces: int | None
    overlap: float | None
    etag: str
    digest: str
    sha256: str
    size: int
    samples: int
    left_out: int
    summary: Summary
    report: dict[str, Any]


class Choice(BaseModel):
    """The current release, and whether it is pinned: it then stays current however the merge changes."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    number: int
    pinned: bool


def number_of(text: str) -> int:
    """Return the number in a request. Raises NoSuchRelease if no release can have it."""
    if _NUMBER.fullmatch(text) is None:
        raise NoSuchRelease(f"there is no release {text[:20]}")
    return int(text)


@dataclass(frozen=True, slots=True)
class ReleaseRule:
    """When the next release is due: below an overlap of edge weights (0 to 1), or after a number of days."""

    overlap: float
    days: float

    def reason(self, current: Release | None, overlap: float | None, now: datetime) -> Reason | None:
        """Return why a merge that differs from the current release is to be released; None if it isn't."""
        if current is None:
            return "first"
        if overlap is not None and overlap < self.overlap:
            return "drift"
        return "age" if self.is_over(current, now) else None

    def is_over(self, current: Release, now: datetime) -> bool:
        """Return whether a release has reached its maximum age."""
        return (now - current.time).total_seconds() > self.days * 86_400
