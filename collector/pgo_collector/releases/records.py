"""The records of a release and of the choice of one, as JSON beside its profile."""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict

from pgo_collector.releases.release import Reason


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
