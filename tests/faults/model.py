"""The model: the collector as a plain list, which says how much each profile counts in a merge."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from tests.faults.stacks import DAY, SECOND


class Sent(NamedTuple):
    """A profile as it is submitted; its one stack has its name. `labels` as in a query."""

    service: str
    type: str
    labels: str
    time_nanos: int
    name: str

    @property
    def parameters(self) -> dict[str, str]:
        return {"service": self.service, "type": self.type, "labels": self.labels}


class Series(NamedTuple):
    service: str
    type: str
    labels: frozenset[str]
    dropped: frozenset[str] = frozenset()

    def rolled_up(self, kept: str) -> Series:
        gone = {label for label in self.labels if kept and key_of(label) != kept}
        return self._replace(labels=self.labels - gone, dropped=self.dropped | {*map(key_of, gone)})


@dataclass
class Blob:
    """Profiles that are stored in one blob; `is_combined` also if a combine made it of a single one."""

    profiles: list[Sent]
    series: Series
    is_combined: bool = False

    @property
    def begin(self) -> int:
        return min(profile.time_nanos for profile in self.profiles)

    @property
    def end(self) -> int:
        return max(profile.time_nanos for profile in self.profiles)

    @property
    def tally(self) -> Counter[str]:
        return Counter(sent.name for sent in self.profiles)


class Query(NamedTuple):
    """A selection; times in ns. `by_age` sends its begin as `last`, if it is before its end."""

    service: str
    type: str = "cpu"
    labels: str = ""
    begin: int | None = None
    end: int | None = None
    by_age: bool = False

    def has(self, blob: Blob) -> bool:
        """Return whether a blob is selected: if its time and the labels of a profile inside match."""
        fits = any(all(_fits(matcher, sent) for matcher in self._matchers) for sent in blob.profiles)
        since = self.begin is None or blob.end >= self.begin
        until = self.end is None or blob.begin < self.end
        return blob.series[:2] == self[:2] and fits and since and until

    def coarse(self, blob: Blob) -> bool:
        """Return whether a selected blob has profiles outside the selection."""
        before = self.begin is not None and blob.begin < self.begin
        after = self.end is not None and blob.end >= self.end
        return before or after or any(self.mixed(blob))

    def mixed(self, blob: Blob) -> Iterator[str]:
        """Return the keys of the labels by which a blob has profiles outside the selection."""
        for matcher in self._matchers:
            if not all(_fits(matcher, sent) for sent in blob.profiles):
                yield key_of(matcher).rstrip("!")

    @property
    def _matchers(self) -> list[str]:
        return [*filter(None, self.labels.split(","))]

    @property
    def parameters(self) -> dict[str, str]:
        """Return the parameters for /v1."""
        until = time.time_ns() if self.end is None else self.end
        times = {"from": written(self.begin), "to": written(self.end)}
        if self.by_age and self.begin is not None and self.begin < until:
            times = {"last": f"{(until - self.begin) // SECOND}s", "to": written(self.end)}
        return self._with({name: text for name, text in times.items() if text})

    @property
    def profefe(self) -> dict[str, str]:
        """Return the parameters for /api/0, where a profile that was taken at `to` is selected, too."""
        times = {"from": written(self.begin), "to": written(self.end and self.end - SECOND)}
        return self._with({name: text for name, text in times.items() if text})

    def _with(self, times: dict[str, str]) -> dict[str, str]:
        return {"service": self.service, "type": self.type, "labels": self.labels, **times}


class Weight(NamedTuple):
    """The weights of profiles; a half-life in days, 0 for none."""

    by: str
    half_life_days: int = 0

    @property
    def parameters(self) -> dict[str, str]:
        half_life = {"half_life": f"{self.half_life_days}d"} if self.half_life_days else {}
        return {"weight": self.by, **half_life}

    def leaves_out(self, blob: Blob) -> bool:
        """Return whether a roll-up dropped the label by which a blob is weighed."""
        return self.by in blob.series.dropped

    def group(self, blob: Blob) -> object:
        """Return the version or instance; profiles without one share a version and are each an instance."""
        of_key = next((label for label in blob.series.labels if key_of(label) == self.by), None)
        return of_key or (id(blob) if self.by == "instance" else None)


@dataclass
class Model:
    blobs: list[Blob] = field(default_factory=list)

    def submit(self, sent: Sent) -> None:
        if not any(sent in blob.profiles for blob in self.blobs):
            labels = frozenset(filter(None, sent.labels.split(",")))
            self.blobs.append(Blob([sent], Series(sent.service, sent.type, labels)))

    def blob_of(self, sent: Sent) -> Blob | None:
        return next((blob for blob in self.blobs if sent in blob.profiles), None)

    def selected(self, query: Query) -> list[Blob]:
        return [blob for blob in self.blobs if query.has(blob)]

    def merge(self, query: Query) -> Counter[str]:
        return sum((blob.tally for blob in self.selected(query)), Counter())

    def weighed(self, query: Query, weight: Weight) -> dict[str, float]:
        """Return how much the profiles of each name count: together as much as without weights."""
        blobs = [blob for blob in self.selected(query) if not weight.leaves_out(blob)]
        groups: Counter[object] = Counter()
        for blob in blobs:
            groups[weight.group(blob)] += len(blob.profiles)
        newest = max((blob.begin for blob in blobs), default=0)
        shares: Counter[str] = Counter()
        for blob in blobs:
            share = 1.0 if weight.by in {"sum", "duration"} else 1 / groups[weight.group(blob)]
            if weight.half_life_days:
                share *= 0.5 ** ((newest - blob.begin) / DAY / weight.half_life_days)
            for sent in blob.profiles:
                shares[sent.name] += share  # type: ignore[assignment]  # a Counter counts in fractions too
        every = sum(len(blob.profiles) for blob in blobs)
        return {name: every * share / shares.total() for name, share in shares.items()}

    def coarse(self, query: Query) -> str:
        """Return the header PGO-Coarse; an empty text for none."""
        coarse = [blob for blob in self.selected(query) if query.coarse(blob)]
        mixed = sorted({key for blob in coarse for key in query.mixed(blob)})
        keys = f';labels="{",".join(map(quote, mixed))}"' if mixed else ""
        return f"{len(coarse)}{keys}" if coarse else ""

    def combine(self, query: Query) -> None:
        had = self.selected(query)
        for series in {blob.series for blob in had}:
            self._join([blob for blob in had if blob.series == series], series)

    def roll_up(self, before: int, kept: str) -> None:
        groups: dict[tuple[int, Series], list[Blob]] = {}
        for blob in self.blobs:
            if blob.begin // DAY < before // DAY:
                place = blob.begin // DAY, blob.series.rolled_up(kept)._replace(dropped=frozenset())
                groups.setdefault(place, []).append(blob)
        for (_, series), blobs in groups.items():
            dropped = frozenset().union(*(blob.series.rolled_up(kept).dropped for blob in blobs))
            self._join(blobs, series._replace(dropped=dropped))

    def _join(self, blobs: list[Blob], series: Series) -> None:
        if len(blobs) > 1:
            self.blobs = [blob for blob in self.blobs if blob not in blobs]
            profiles = [profile for blob in blobs for profile in blob.profiles]
            self.blobs.append(Blob(profiles, series, is_combined=True))

    def expire(self, before: int, *, combined: bool) -> None:
        self.blobs = [blob for blob in self.blobs if blob.is_combined != combined or blob.end >= before]


def written(nanos: int | None) -> str:
    """Return a time as a query has it; an empty text for no bound."""
    return "" if nanos is None else f"{datetime.fromtimestamp(nanos // SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"


def key_of(label: str) -> str:
    return label.partition("=")[0]


def _fits(matcher: str, sent: Sent) -> bool:
    there = dict(label.split("=") for label in sent.labels.split(",") if label)
    key, _, values = matcher.replace("!=", "=").partition("=")
    return (there.get(key, "") in values.split("|")) != ("!=" in matcher)
