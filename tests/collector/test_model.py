"""Whatever is stored, combined, rolled up, deleted or killed: every merge is what a plain list says.

Hypothesis makes up the steps, and plays them on a real collector and on `Model`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.collector.conftest import ForkedServer
from tests.faults.stacks import DAY, SECOND, profile_of, tally

if TYPE_CHECKING:
    from tests.faults.zygote import Zygote

# Profiles are taken at such a time of day that bounds, which are whole days before now, are hours away.
_NOW = time.time_ns()
NOON = _NOW // DAY * DAY + (_NOW + DAY // 2) % DAY
SERVICES = st.sampled_from(["one", "two"])
LABELS = st.sampled_from(["", "a=1", "a=2", "a=1,b=x", "b=x"])
DAYS = st.integers(1, 12)
QUERIES = st.sampled_from(["", "a=1", "a=2", "a!=1", "a=", "b=x,a=1|2", "b=", "a=2,b!=x"])
KEPT = st.sampled_from(["", "a", "b", "c"])


class Sent(NamedTuple):
    service: str
    labels: str
    time_nanos: int
    name: str


class Series(NamedTuple):
    service: str
    labels: frozenset[str]
    dropped: frozenset[str] = frozenset()

    def rolled_up(self, kept: str) -> Series:
        gone = {label for label in self.labels if kept and label[0] != kept}
        return self._replace(labels=self.labels - gone, dropped=self.dropped | {label[0] for label in gone})


@dataclass
class Blob:
    """Profiles that are stored as one; `is_combined` also of one alone that a combine made."""

    profiles: list[Sent]
    series: Series
    is_combined: bool = False

    @property
    def begin(self) -> int:
        return min(profile.time_nanos for profile in self.profiles)

    @property
    def end(self) -> int:
        return max(profile.time_nanos for profile in self.profiles)


class Query(NamedTuple):
    service: str
    labels: str = ""
    begin: int | None = None
    end: int | None = None

    def has(self, blob: Blob) -> bool:
        """A blob is had as a whole, as soon as its time and the labels of a profile inside fit."""
        fits = any(self._has_labels(profile) for profile in blob.profiles)
        since = self.begin is None or blob.end >= self.begin
        until = self.end is None or blob.begin < self.end
        return blob.series.service == self.service and fits and since and until

    def coarse(self, blob: Blob) -> bool:
        """Whether there is more in a blob that it has than is asked for."""
        before = self.begin is not None and blob.begin < self.begin
        after = self.end is not None and blob.end >= self.end
        return before or after or not all(self._has_labels(profile) for profile in blob.profiles)

    def _has_labels(self, sent: Sent) -> bool:
        there = dict(label.split("=") for label in sent.labels.split(",") if label)
        for matcher in filter(None, self.labels.split(",")):
            key, _, values = matcher.replace("!=", "=").partition("=")
            if (there.get(key, "") in values.split("|")) == ("!=" in matcher):
                return False
        return True

    @property
    def parameters(self) -> dict[str, str]:
        times = {"from": self.begin, "to": self.end}
        written = {
            name: datetime.fromtimestamp(nanos // SECOND, UTC).isoformat()
            for name, nanos in times.items()
            if nanos is not None
        }
        return {"service": self.service, "labels": self.labels, **written}


@dataclass
class Model:
    blobs: list[Blob] = field(default_factory=list)

    def submit(self, sent: Sent) -> None:
        if not any(sent in blob.profiles for blob in self.blobs):
            labels = frozenset(filter(None, sent.labels.split(",")))
            self.blobs.append(Blob([sent], Series(sent.service, labels)))

    def merge(self, query: Query) -> Counter[str]:
        return Counter(profile.name for blob in self.blobs if query.has(blob) for profile in blob.profiles)

    def combine(self, query: Query) -> None:
        had = [blob for blob in self.blobs if query.has(blob)]
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


class Machine(RuleBasedStateMachine):
    """Steps on a collector, forked from `zygote`, and on the model."""

    zygote: ClassVar[Zygote]

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="model-"))
        self.server = ForkedServer(self.home, self.zygote)
        self.model = Model()
        self.sent: list[Sent] = []

    def teardown(self) -> None:
        self.server.kill()
        shutil.rmtree(self.home)

    @initialize()
    def start(self) -> None:
        self.server.start()

    @rule(service=SERVICES, labels=LABELS, days=DAYS, second=st.integers(0, 5))
    def submit(self, service: str, labels: str, days: int, second: int) -> None:
        name = f"{len(self.sent)}"
        sent = Sent(service, labels, NOON - days * DAY + second * SECOND, name)
        self.sent.append(sent)
        self._submit(sent)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def submit_again(self, data: st.DataObject) -> None:
        self._submit(data.draw(st.sampled_from(self.sent)))

    def _submit(self, sent: Sent) -> None:
        profile = profile_of(sent.name, time_nanos=sent.time_nanos)
        query = {"service": sent.service, "labels": sent.labels}
        assert self.server.submit(profile, query=query).status_code == 204
        self.model.submit(sent)

    @rule(service=SERVICES, labels=QUERIES, begin=st.none() | DAYS, end=st.none() | DAYS)
    def merge(self, service: str, labels: str, begin: int | None, end: int | None) -> None:
        self._check(Query(service, labels, _ago(begin), _ago(end)))

    @rule(service=SERVICES, labels=QUERIES, begin=st.none() | DAYS)
    def combine(self, service: str, labels: str, begin: int | None) -> None:
        query = Query(service, labels, _ago(begin))
        answer = self.server.combine(query=query.parameters)
        assert answer.status_code == (200 if self.model.merge(query) else 404)
        self.model.combine(query)
        self._check(query)

    @rule(days=DAYS, kept=KEPT)
    def roll_up(self, days: int, kept: str) -> None:
        self._keep(rollup_days=days, rollup_labels=kept)
        self.model.roll_up(_NOW - days * DAY, kept)
        self._check_all()

    @rule(days=DAYS, combined=st.booleans())
    def expire(self, days: int, *, combined: bool) -> None:
        self._keep(**{"keep_combined_days" if combined else "keep_days": days})
        self.model.expire(_NOW - days * DAY, combined=combined)
        self._check_all()

    def _keep(self, **settings: object) -> None:
        before = dict(self.server.environment)
        self.server.stop()
        self.server.environment |= {f"PGOF_{name.upper()}": f"{value}" for name, value in settings.items()}
        self.server.start()
        self.server.wait_for_log("upkeep done")
        self.server.stop()
        self.server.environment = before
        self.server.start()

    @rule(reindex=st.booleans(), stop=st.booleans())
    def restart(self, *, reindex: bool, stop: bool) -> None:
        if stop:
            assert self.server.stop() == 0
        else:
            self.server.kill()
        if reindex:
            self.server.reindex()
        self.server.start()
        self._check_all()

    def _check_all(self) -> None:
        for service in ("one", "two"):
            for labels in ("", "a=1", "b="):
                self._check(Query(service, labels))

    def _check(self, query: Query) -> None:
        answer = self.server.merge(query=query.parameters)
        assert answer.status_code in {200, 404}, answer.text
        merged = tally(answer.content) if answer.status_code == 200 else Counter()
        assert merged == self.model.merge(query)
        assert "PGO-Left-Out" not in answer.headers
        coarse = sum(query.has(blob) and query.coarse(blob) for blob in self.model.blobs)
        assert int(answer.headers.get("PGO-Coarse", "0").partition(";")[0]) == coarse


def _ago(days: int | None) -> int | None:
    return None if days is None else NOON - days * DAY


def test_every_merge_is_what_the_model_says(zygote: Zygote) -> None:
    Machine.zygote = zygote
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=4,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[*HealthCheck],
        ),
    )
