"""Whatever is stored, combined, rolled up, deleted or killed: every merge is what a plain list says.

Hypothesis makes up the steps, and plays them on a real collector, which the killer strikes, and on `Model`.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.faults.killer import Mode
from tests.faults.lane import Lane
from tests.faults.model import Model, Query, Sent, Weight
from tests.faults.stacks import DAY, SECOND, profile_of, tally, weighed_tally

# Profiles are taken about noon, and bounds of age are at six: steps may take hours, whenever they begin.
TODAY: Final = time.time_ns() // DAY * DAY
NOON: Final = TODAY + DAY // 2
SIX: Final = TODAY + DAY // 4

# Its service and labels; how many days ago, and the second.
Place = tuple[str, str, int, int]
Strike = tuple[Mode, int]

DAYS = st.integers(1, 6)
BOUNDS = st.none() | DAYS
# What is there twice comes twice as often, so that a series and day has several profiles.
SERVICES = st.sampled_from(["one", "one", "one", "two"])
LABELS = st.sampled_from(
    ["", "version=1", "version=1", "version=2", "version=1,instance=x", "instance=x", "instance=y"]
)
PLACES = st.tuples(SERVICES, LABELS, DAYS, st.integers(0, 5))
QUERIES = st.sampled_from(
    [
        "", "version=1", "version=2", "version!=1", "version=", "instance=x,version=1|2", "instance=",
        "version=2,instance!=x", "instance=x|y", "instance!=",
    ]
)  # fmt: skip
WEIGHTS = st.sampled_from(
    [
        Weight("duration"), Weight("version"), Weight("instance"), Weight("sum", 1), Weight("duration", 3),
        Weight("version", 1), Weight("instance", 3),
    ]
)  # fmt: skip
# A submit has some 30 operations, a combine or upkeep up to a hundred and more. A strike that comes too late
# strikes nothing; the server is killed after it.
STRIKES = st.tuples(
    st.sampled_from([Mode.KILL, Mode.TORN]), st.integers(1, 15) | st.integers(1, 40) | st.integers(1, 120)
)
ENDS = st.sampled_from(["stop", "kill", "reindex", "reindex struck", "catalog lost"])


class Upkeep(NamedTuple):
    """What is kept: bounds in days, None for none; the label that stays in a roll-up, all if it is empty."""

    rolled_up: int | None
    kept: str
    single: int | None
    combined: int | None

    def apply(self, model: Model) -> None:
        for bound, combined in ((self.single, False), (self.combined, True)):
            if bound is not None:
                model.expire(SIX - bound * DAY, combined=combined)
        if self.rolled_up is not None:
            model.roll_up(SIX - self.rolled_up * DAY, self.kept)

    @property
    def environment(self) -> dict[str, str]:
        now = time.time_ns()
        bounds = {"ROLLUP": self.rolled_up, "KEEP": self.single, "KEEP_COMBINED": self.combined}
        written = {
            f"PGOF_{name}_DAYS": f"{(now - SIX) / DAY + bound}"
            for name, bound in bounds.items()
            if bound is not None
        }
        return {"PGOF_ROLLUP_LABELS": self.kept, **written}


UPKEEPS = st.builds(Upkeep, BOUNDS, st.sampled_from(["", "version", "instance", "none"]), BOUNDS, BOUNDS)


class Machine(RuleBasedStateMachine):
    """Steps on a collector in a lane, and on the model."""

    lane: ClassVar[Lane]

    def __init__(self) -> None:
        super().__init__()
        self.server = self.lane.server
        self.settings = self.server.environment
        self.model = Model()
        self.sent: list[Sent] = []

    def teardown(self) -> None:
        self.server.kill()
        self.server.environment = self.settings
        shutil.rmtree(self.lane.data)

    @initialize(places=st.lists(PLACES, min_size=6, max_size=15))
    def start(self, places: list[Place]) -> None:
        self.lane.start()
        self.submit(places)

    @rule(places=st.lists(PLACES, min_size=1, max_size=6))
    def submit(self, places: list[Place]) -> None:
        for place in places:
            self._submit(self._new(place))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def submit_again(self, data: st.DataObject) -> None:
        self._submit(data.draw(st.sampled_from(self.sent)))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), labels=LABELS)
    def submit_the_same_to_another_series(self, data: st.DataObject, labels: str) -> None:
        self._submit(data.draw(st.sampled_from(self.sent))._replace(labels=labels))

    @rule(place=PLACES, strike=STRIKES, reindex=st.booleans())
    def submit_struck(self, place: Place, strike: Strike, *, reindex: bool) -> None:
        sent = self._new(place)
        upper = self._wholes()
        upper[sent.service] += Counter([sent.name])
        self._strike(strike, lambda: self._submit(sent), reindex=reindex)
        self._check_between(self._wholes(), upper)
        self._submit(sent)

    @rule(service=SERVICES, labels=QUERIES, begin=BOUNDS, end=BOUNDS)
    def merge(self, service: str, labels: str, begin: int | None, end: int | None) -> None:
        self._check(Query(service, labels, _ago(begin), _ago(end)))

    @rule(service=SERVICES, labels=QUERIES, begin=BOUNDS, weight=WEIGHTS)
    def merge_weighed(self, service: str, labels: str, begin: int | None, weight: Weight) -> None:
        query = Query(service, labels, _ago(begin))
        answer = self.server.merge(query=query.parameters | weight.parameters)
        expected = self.model.weighed(query, weight)
        assert answer.status_code == (200 if expected else 404), answer.text
        if expected:
            assert weighed_tally(answer.content) == pytest.approx(expected, abs=0.001)
            left_out = any(map(weight.leaves_out, self.model.selected(query)))
            assert ("PGO-Left-Out" in answer.headers) == left_out

    @rule(service=SERVICES, labels=QUERIES, begin=BOUNDS)
    def combine(self, service: str, labels: str, begin: int | None) -> None:
        self._combine(Query(service, labels, _ago(begin)))

    @rule(service=SERVICES, labels=QUERIES, begin=BOUNDS, strike=STRIKES, reindex=st.booleans())
    def combine_struck(
        self, service: str, labels: str, begin: int | None, strike: Strike, *, reindex: bool
    ) -> None:
        query = Query(service, labels, _ago(begin))
        self._strike(strike, lambda: self._combine(query), reindex=reindex)
        self._check_between(self._wholes(), self._wholes())
        self._combine(query)

    @rule(upkeep=UPKEEPS)
    def keep(self, upkeep: Upkeep) -> None:
        self._keep(upkeep)

    @rule(upkeep=UPKEEPS, strike=STRIKES, reindex=st.booleans())
    def keep_struck(self, upkeep: Upkeep, strike: Strike, *, reindex: bool) -> None:
        assert self.server.stop() == 0
        self.server.environment = self.settings | upkeep.environment
        self.lane.struck_start(*strike)
        if reindex:
            self.lane.killer.stand_by()
            self.server.reindex()
        self._keep(upkeep)

    @rule(end=ENDS, strike=STRIKES)
    def restart(self, end: str, strike: Strike) -> None:
        if end == "stop":
            assert self.server.stop() == 0
        self.server.kill()
        if end == "catalog lost":
            self.lane.drop_catalog()
        if end == "reindex struck":
            self.lane.struck_reindex(*strike)
        self._start(reindex=end == "reindex")
        self._check_all()

    def _new(self, place: Place) -> Sent:
        service, labels, days, second = place
        self.sent.append(Sent(service, labels, NOON - days * DAY + second * SECOND, f"{len(self.sent)}"))
        return self.sent[-1]

    def _submit(self, sent: Sent) -> None:
        profile = profile_of(sent.name, time_nanos=sent.time_nanos)
        query = {"service": sent.service, "labels": sent.labels}
        answer = self.server.submit(profile, query=query)
        assert answer.status_code == 204, answer.text
        self.model.submit(sent)

    def _combine(self, query: Query) -> None:
        answer = self.server.combine(query=query.parameters)
        assert answer.status_code == (200 if self.model.merge(query) else 404)
        self.model.combine(query)
        self._check(query)

    def _strike(self, strike: Strike, step: Callable[[], None], *, reindex: bool) -> None:
        """Does a step, or not to its end; the killer strikes at one of its operations."""
        self.lane.killer.arm(*strike)
        with suppress(httpx.TransportError):
            step()
        self.lane.killer.disarm()
        self._start(reindex=reindex)

    def _start(self, *, reindex: bool) -> None:
        self.server.kill()
        if reindex:
            self.lane.killer.stand_by()
            self.server.reindex()
        self.lane.start()

    def _keep(self, upkeep: Upkeep) -> None:
        """Once: what runs from then on has done its upkeep, and what is started after it has none."""
        self.server.environment = self.settings | upkeep.environment
        self.lane.start()
        self.server.environment = self.settings
        upkeep.apply(self.model)
        self._check_all()

    def _wholes(self) -> dict[str, Counter[str]]:
        return {service: self.model.merge(Query(service)) for service in ("one", "two")}

    def _check_between(self, lower: dict[str, Counter[str]], upper: dict[str, Counter[str]]) -> None:
        for service in ("one", "two"):
            assert lower[service] <= _tallied(self._answer(Query(service))) <= upper[service]

    def _check_all(self) -> None:
        for service in ("one", "two"):
            for labels in ("", "version=1", "instance="):
                self._check(Query(service, labels))

    def _check(self, query: Query) -> None:
        answer = self._answer(query)
        assert _tallied(answer) == self.model.merge(query)
        assert answer.headers.get("PGO-Coarse", "") == self.model.coarse(query)

    def _answer(self, query: Query) -> httpx.Response:
        answer = self.server.merge(query=query.parameters)
        assert answer.status_code in {200, 404}, answer.text
        assert "PGO-Left-Out" not in answer.headers
        return answer


def _tallied(answer: httpx.Response) -> Counter[str]:
    return tally(answer.content) if answer.status_code == 200 else Counter()


def _ago(days: int | None) -> int | None:
    return None if days is None else NOON - days * DAY


def test_every_merge_is_what_the_model_says(tmp_path: Path, library: Path) -> None:
    """A few examples, of which each takes many seconds; all that the profile of hypothesis allows by 20."""
    with Lane(tmp_path / "lane", library) as lane:
        Machine.lane = lane
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=settings().max_examples // 20,
                stateful_step_count=15,
                suppress_health_check=[*HealthCheck],
            ),
        )
