"""Answers to questions about the fleet, as JSON has them."""

from __future__ import annotations

from typing import Literal, Self

from pprof_merge import ValueType
from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class SampleType(_Answer):
    """What the values are."""

    type: str = Field(examples=["cpu"])
    unit: str = Field(examples=["nanoseconds"])

    @classmethod
    def of(cls, value_type: ValueType) -> Self:
        """As text; bytes that are none are spelled out."""
        type_, unit = (text.decode(errors="backslashreplace") for text in value_type)
        return cls(type=type_, unit=unit)


class ServiceType(_Answer):
    """What is stored of one type of a service."""

    type: str = Field(examples=["cpu"])
    profiles: int = Field(description="How many profiles are stored; a combined one is one.")
    combined: int = Field(description="How many of them are combined ones.")
    oldest: str = Field(description="When the first was taken: RFC 3339, in UTC.")
    newest: str = Field(description="When the last was taken, also within a combined one.")
    bytes: int = Field(description="What they take on disk.")


class Service(_Answer):
    """What is stored of a service."""

    service: str = Field(examples=["checkout"])
    types: list[ServiceType]
    labels: dict[str, int] = Field(description="The number of values of each label key; 100 keys at most.")


class Services(_Answer):
    """A page of services, by name."""

    services: list[Service]
    next: str | None = Field(description="The `cursor` of the next page; null on the last.")


class StoredProfile(_Answer):
    """A stored profile."""

    id: str = Field(description="Its name, which PGO-Left-Out and the log have too.")
    service: str
    time: str = Field(description="When it was taken: RFC 3339 with nanoseconds, in UTC.")
    end_time: str | None = Field(
        description="Of a combined one, when the last profile inside was taken; else null."
    )
    duration_seconds: float = Field(description="As it says itself; of a combined one the sum.")
    labels: dict[str, str]
    dropped_labels: list[str] = Field(
        description="The keys of labels that profiles inside had, and that a roll-up dropped."
    )
    bytes: int = Field(description="The size of its file.")
    samples: int = Field(description="How many samples, distinct ones, are in it.")
    combined: bool


class StoredProfiles(_Answer):
    """A page of stored profiles, the latest first."""

    profiles: list[StoredProfile]
    next: str | None = Field(description="The `cursor` of the next page; null on the last.")


class _Named(_Answer):
    name: str


class _OfService(_Answer):
    service: str


class Values(_Answer):
    """Values and their shares of a total, from 0 to 1."""

    flat: int = Field(description="Of the samples in which it is the leaf.")
    cum: int = Field(description="Of all samples which it is in, however often.")
    flat_share: float
    cum_share: float


class ServiceValues(Values, _OfService):
    """What one service has of a row; the shares are of the service's own total."""


class TopRow(Values, _Named):
    """A function, package or file."""

    services: list[ServiceValues] = Field(description="Those that have most of it, 10 at most.")


class ServiceTotal(_Answer):
    """How much a service has of the whole."""

    service: str
    profiles: int
    total: int
    share: float


class _OfProfiles(_Answer):
    sample_type: SampleType
    others: dict[str, str] = Field(
        description="Services that measure something else than most, and so are not in here."
    )
    profiles: int = Field(description="How many stored profiles it is of.")
    left_out: int = Field(description="How many had to be left out; PGO-Left-Out names them.")
    coarse: int = Field(
        description="How many of the profiles are combined ones that have more in them than is asked for."
    )
    coarse_labels: list[str] = Field(
        description="The labels by which they have, since roll-ups dropped them; without any, they are wider."
    )


class Top(_OfProfiles):
    """The functions, packages or files with the largest values."""

    by: Literal["function", "package", "file"]
    sort: Literal["flat", "cum"]
    total: int = Field(description="The value of all samples, which shares are of.")
    services: list[ServiceTotal] = Field(description="Those with most come first.")
    names: int = Field(description="How many rows there are without `n`.")
    rows: list[TopRow]


class _Step(_Answer):
    time: str = Field(description="When the step begins: RFC 3339, in UTC.")
    total: int = Field(description="The value of all samples of the step, which the shares are of.")


class SeriesPoint(Values, _Step):
    """One step of time."""


class TimeSeries(_OfProfiles):
    """A function or package over time."""

    by: Literal["function", "package"]
    name: str
    step: Literal["hour", "day"]
    points: list[SeriesPoint]


class DiffRow(_Answer):
    """A function, package or file in both selections."""

    name: str
    now: Values
    base: Values
    flat_difference: float = Field(description="The flat share now, less that in the base.")
    cum_difference: float


class DiffSide(_Answer):
    """One of the two selections."""

    total: int
    profiles: int
    left_out: int
    coarse: int
    coarse_labels: list[str]


class Diff(_Answer):
    """What takes another share than in the base, the largest differences first."""

    by: Literal["function", "package", "file"]
    sort: Literal["flat", "cum"]
    sample_type: SampleType
    now: DiffSide
    base: DiffSide
    names: int = Field(description="How many rows there are without `n`.")
    rows: list[DiffRow]
