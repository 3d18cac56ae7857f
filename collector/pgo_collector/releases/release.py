"""A release: a merge that pipelines build with until it pays to build anew; when that is, is decided here."""

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
    """The most important of a report: what Go's compiler makes of it, and of how many profiles it is.

    `outliers` is how many of them are unlike the rest; None where that can't be known.
    """

    model_config = ConfigDict(frozen=True)

    verdict: str
    profiles: int
    outliers: int | None

    @classmethod
    def of(cls, report: dict[str, Any]) -> Summary:
        """Of a report as `pprof_merge.analysis.report` makes it now; those of before may be otherwise."""
        outliers = report["outliers"] and len(report["outliers"]["profiles"])
        return cls(verdict=report["go"]["verdict"], profiles=report["profiles"], outliers=outliers)


class Release(BaseModel):
    """What is known of a release, as it is written beside its file.

    `etag` is that of the merge that it was, `digest` the sha256 of its bare protobuf, `sha256` that of the
    file, `size` the file's in bytes. `overlap` is that with the release it `replaces`; None where there is
    none to be had. `left_out` is how many blobs the merge had to do without, `report`
    is on all that was stored at the time, `summary` on that.
    """

    model_config = ConfigDict(frozen=True)

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
    """Which release is current, and whether it stays so whatever becomes of the merge."""

    model_config = ConfigDict(frozen=True)

    number: int
    pinned: bool


def number_of(text: str) -> int:
    """The number that a client names. Raises NoSuchRelease if it is none that a release can have."""
    if _NUMBER.fullmatch(text) is None:
        raise NoSuchRelease(f"there is no release {text[:20]}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far from its release a merge may get: in overlap of edge weights, 0 to 1, and in days."""

    overlap: float
    days: float

    def reason(self, current: Release | None, overlap: float | None, now: datetime) -> Reason | None:
        """Why another merge than the current release is to be released; None if it isn't."""
        if current is None:
            return "first"
        if overlap is not None and overlap < self.overlap:
            return "drift"
        return "age" if self.is_over(current, now) else None

    def is_over(self, current: Release, now: datetime) -> bool:
        """Whether a release has reached its age."""
        return (now - current.time).total_seconds() > self.days * 86_400
