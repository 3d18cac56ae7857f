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
QUERIES = st.sampled_from(["", "a=1", "a=2", "a!=1", "a=", "b=x,a=1|2"])


class Sent(NamedTuple):
    service: str
    labels: str
    time_nanos: int
    name: str


@dataclass
class Blob:
    """Profiles of one series that are stored as one; `is_combined` also of one alone that a combine made."""

    profiles: list[Sent]
    is_combined: bool = False

    @property
    def series(self) -> tuple[str, str]:
        return self.profiles[0].service, self.profiles[0].labels

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
        service, labels = blob.series
        there = dict(label.split("=") for label in labels.split(",") if label)
        for matcher in filter(None, self.labels.split(",")):
            key, _, values = matcher.replace("!=", "=").partition("=")
            if (there.get(key, "") in values.split("|")) == ("!=" in matcher):
                return False
        since = self.begin is None or blob.end >= self.begin
        return service == self.service and since and (self.end is None or blob.begin < self.end)

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
            self.blobs.append(Blob([sent]))

    def merge(self, query: Query) -> Counter[str]:
        return Counter(profile.name for blob in self.blobs if query.has(blob) for profile in blob.profiles)

    def join(self, blobs: list[Blob]) -> None:
        """Makes one of the blobs of each series."""
        for series in {blob.series for blob in blobs}:
            own = [blob for blob in blobs if blob.series == series]
            if len(own) > 1:
                self.blobs = [blob for blob in self.blobs if blob not in own]
                self.blobs.append(
                    Blob([profile for blob in own for profile in blob.profiles], is_combined=True)
                )

    def roll_up(self, before: int) -> None:
        for day in {blob.begin // DAY for blob in self.blobs if blob.begin // DAY < before // DAY}:
            self.join([blob for blob in self.blobs if blob.begin // DAY == day])

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
        blobs = [blob for blob in self.model.blobs if query.has(blob)]
        assert answer.status_code == (200 if blobs else 404)
        self.model.join(blobs)
        self._check(query)

    @rule(days=DAYS)
    def roll_up(self, days: int) -> None:
        self._keep(rollup_days=days)
        self.model.roll_up(_NOW - days * DAY)
        self._check_all()

    @rule(days=DAYS, combined=st.booleans())
    def expire(self, days: int, *, combined: bool) -> None:
        self._keep(**{"keep_combined_days" if combined else "keep_days": days})
        self.model.expire(_NOW - days * DAY, combined=combined)
        self._check_all()

    def _keep(self, **days: int) -> None:
        before = dict(self.server.environment)
        self.server.stop()
        self.server.environment |= {f"PGOF_{name.upper()}": f"{value}" for name, value in days.items()}
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
            self._check(Query(service))

    def _check(self, query: Query) -> None:
        answer = self.server.merge(query=query.parameters)
        assert answer.status_code in {200, 404}, answer.text
        merged = tally(answer.content) if answer.status_code == 200 else Counter()
        assert merged == self.model.merge(query)
        assert "PGO-Left-Out" not in answer.headers


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
