"""The collector against the model: after any submits, combines, roll-ups, deletes and kills both read the
same.

Hypothesis makes up the steps, and plays them on a real collector, which the killer strikes, and on `Model`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

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

from tests.constants import WARMING_PAUSE
from tests.faults.blob_files import blob_files
from tests.faults.killer import Mode
from tests.faults.lane import KillableZygote, Lane, tallied
from tests.faults.model import Model, Query, Sent, Weight
from tests.faults.profefe_reads import check_id, check_reads
from tests.faults.sample import Sample
from tests.faults.stacks import DAY, SECOND, profile_of, weighed_tally
from tests.faults.upkeep import NOON, Upkeep, ago, six

# A service and a type.
Owner = tuple[str, str]
# Its owner and labels; how many days ago, and the second.
Place = tuple[Owner, str, int, int]
Strike = tuple[Mode, int]

DAYS = st.integers(1, 6)
BOUNDS = st.none() | DAYS
# A value that is listed twice comes twice as often, so that a series and day has several profiles.
OWNERS: Final[Sequence[Owner]] = (("one", "cpu"), ("two", "cpu"), ("one", "heap"))
OWNED = st.sampled_from([OWNERS[0], OWNERS[0], OWNERS[0], *OWNERS[1:]])
LABELS = st.sampled_from(
    ["", "version=1", "version=1", "version=2", "version=1,instance=x", "instance=x", "instance=y"]
)
PLACES = st.tuples(OWNED, LABELS, DAYS, st.integers(0, 5))
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


UPKEEPS = st.builds(
    Upkeep, BOUNDS, st.sampled_from(["", "version", "instance", "none"]), BOUNDS, BOUNDS, BOUNDS, BOUNDS
)


class Machine(RuleBasedStateMachine):
    """Plays steps on a collector in a lane, and on the model."""

    lane: ClassVar[Lane]

    def __init__(self) -> None:
        super().__init__()
        self.server = self.lane.server
        self.settings = self.server.environment
        self.model = Model()
        self.sent: list[Sent] = []
        self.ids: dict[Sent, str] = {}  # profefe's ids of the profiles that were listed by themselves

    def teardown(self) -> None:
        self.server.kill()
        self.server.environment = self.settings
        self.lane.drop()

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
    @rule(data=st.data(), owner=OWNED, labels=LABELS)
    def submit_the_same_to_another_series(self, data: st.DataObject, owner: Owner, labels: str) -> None:
        service, type_ = owner
        sent = data.draw(st.sampled_from(self.sent))
        self._submit(sent._replace(service=service, type=type_, labels=labels))

    @rule(place=PLACES, strike=STRIKES, reindex=st.booleans())
    def submit_struck(self, place: Place, strike: Strike, *, reindex: bool) -> None:
        sent = self._new(place)
        upper = self._wholes()
        upper[sent[:2]] += Counter([sent.name])
        self._strike(strike, lambda: self._submit(sent), reindex=reindex)
        self._check_between(self._wholes(), upper)
        self._submit(sent)

    @rule(owner=OWNED, labels=QUERIES, begin=BOUNDS, end=BOUNDS)
    def merge(self, owner: Owner, labels: str, begin: int | None, end: int | None) -> None:
        if begin is not None and end is not None and begin <= end:
            begin = None  # a from after to is refused
        self._check(Query(*owner, labels, ago(begin), ago(end)))

    @rule(owner=OWNED, labels=QUERIES, days=DAYS, end=BOUNDS)
    def merge_of_the_last_days(self, owner: Owner, labels: str, days: int, end: int | None) -> None:
        begin = six(days) if end is None else NOON - (end + days) * DAY
        self._check(Query(*owner, labels, begin, ago(end), by_age=True))

    @rule(owner=OWNED, labels=LABELS, begin=BOUNDS, end=BOUNDS, most=st.integers(1, 4))
    def read_by_profefe(
        self, owner: Owner, labels: str, begin: int | None, end: int | None, most: int
    ) -> None:
        if begin is not None and end is not None and begin <= end:
            begin = None  # profefe's API refuses a from after to
        for sent, id_ in self.ids.items():
            check_id(self.server, self.model, sent, id_)
        query = Query(*owner, labels, ago(begin), ago(end))
        self.ids |= check_reads(self.server, self.model, query, most)

    @rule(owner=OWNED, labels=QUERIES, begin=BOUNDS, weight=WEIGHTS)
    def merge_weighed(self, owner: Owner, labels: str, begin: int | None, weight: Weight) -> None:
        query = Query(*owner, labels, ago(begin))
        answer = self.server.merge(query=query.parameters | weight.parameters)
        expected = self.model.weighed(query, weight)
        assert answer.status_code == (200 if expected else 404), answer.text
        if expected:
            assert weighed_tally(answer.content) == pytest.approx(expected, abs=0.001)
            left_out = any(map(weight.leaves_out, self.model.selected(query)))
            assert ("PGO-Left-Out" in answer.headers) == left_out

    @rule(owner=OWNED, labels=QUERIES, begin=BOUNDS)
    def combine(self, owner: Owner, labels: str, begin: int | None) -> None:
        self._combine(Query(*owner, labels, ago(begin)))

    @rule(owner=OWNED, labels=QUERIES, begin=BOUNDS, strike=STRIKES, reindex=st.booleans())
    def combine_struck(
        self, owner: Owner, labels: str, begin: int | None, strike: Strike, *, reindex: bool
    ) -> None:
        query = Query(*owner, labels, ago(begin))
        self._strike(strike, lambda: self._combine(query), reindex=reindex)
        self._check_between(self._wholes(), self._wholes())
        self.lane.settle()
        self._combine(query)

    @rule(upkeep=UPKEEPS)
    def keep(self, upkeep: Upkeep) -> None:
        self.lane.settle()
        self._keep(upkeep, upkeep.environment(blob_files(self.server)))

    @rule(upkeep=UPKEEPS.map(lambda upkeep: upkeep.repeatable), strike=STRIKES, reindex=st.booleans())
    def keep_struck(self, upkeep: Upkeep, strike: Strike, *, reindex: bool) -> None:
        self.lane.settle()
        assert self.server.stop() == 0
        environment = upkeep.environment(blob_files(self.server))
        self.server.environment = self.settings | environment
        self.lane.struck_start(*strike)
        if reindex:
            self.lane.killer.stand_by()
            self.server.reindex()
        self.lane.settle()
        self._keep(upkeep, environment)

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
        owner, labels, days, second = place
        self.sent.append(Sent(*owner, labels, NOON - days * DAY + second * SECOND, f"{len(self.sent)}"))
        return self.sent[-1]

    def _submit(self, sent: Sent) -> None:
        profile = profile_of(sent.name, time_nanos=sent.time_nanos, type_=sent.type)
        answer = self.server.submit(profile, query=sent.parameters)
        assert answer.status_code == 204, answer.text
        self.model.submit(sent)

    def _combine(self, query: Query) -> None:
        answer = self.server.combine(query=query.parameters)
        assert answer.status_code == (200 if self.model.merge(query) else 404)
        self.model.combine(query)
        self._check(query)

    def _strike(self, strike: Strike, step: Callable[[], None], *, reindex: bool) -> None:
        """Do a step while the killer strikes at one of its operations, so that it may not be completed."""
        with self.lane.struck(*strike), suppress(httpx.TransportError):
            step()
        self._start(reindex=reindex)

    def _start(self, *, reindex: bool) -> None:
        self.server.kill()
        if reindex:
            self.lane.killer.stand_by()
            self.server.reindex()
        self.lane.start()

    def _keep(self, upkeep: Upkeep, environment: dict[str, str]) -> None:
        """Run upkeep once: in a start with its settings; later starts have none."""
        self.server.environment = self.settings | environment
        self.lane.start()
        self.server.environment = self.settings
        upkeep.apply(self.model)
        self._check_all()

    def _wholes(self) -> dict[Owner, Counter[str]]:
        return {owner: self.model.merge(Query(*owner)) for owner in OWNERS}

    def _check_between(self, lower: dict[Owner, Counter[str]], upper: dict[Owner, Counter[str]]) -> None:
        for owner in OWNERS:
            assert lower[owner] <= tallied(self._answer(Query(*owner))) <= upper[owner]

    def _check_all(self) -> None:
        for owner in OWNERS:
            for labels in ("", "version=1", "instance="):
                self._check(Query(*owner, labels))

    def _check(self, query: Query) -> None:
        answer = self._answer(query)
        assert tallied(answer) == self.model.merge(query)
        assert answer.headers.get("PGO-Coarse", "") == self.model.coarse(query)

    def _answer(self, query: Query) -> httpx.Response:
        answer = self.server.merge(query=query.parameters)
        assert answer.status_code in {200, 404}, answer.text
        assert "PGO-Left-Out" not in answer.headers
        return answer


def test_the_collector_reads_as_the_model_says(
    tmp_path: Path, killable: KillableZygote, sample: Sample
) -> None:
    """Plays a part of the examples that the profile of hypothesis allows: each takes many seconds."""
    # Profiles are read ahead between all steps, and under every strike.
    with Lane(tmp_path / "lane", killable, {WARMING_PAUSE: "0.02"}) as lane:
        Machine.lane = lane
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=max(2, settings().max_examples // (8 if sample.is_thorough else 20)),
                stateful_step_count=15 if sample.is_thorough else 8,
                suppress_health_check=[*HealthCheck],
            ),
        )
