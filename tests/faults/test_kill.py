"""Kill the server at its disk operations: no profile is lost or counted twice."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import pytest

from tests.faults.campaign import Killed, Prepare, Strike, kill_at_points, lanes_in
from tests.faults.killer import Mode
from tests.faults.lane import KillableZygote, Lane, counted, merged, profile_named, submitted
from tests.faults.sample import Sample
from tests.faults.stacks import tally
from tests.server import Server


@dataclass(frozen=True)
class Scenario:
    """The stored profiles, the request under the killer, and the profile that is new in it."""

    stored: str  # a letter for each profile that must count once, whatever happens
    prepare: Prepare
    strike: Strike
    new: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(
        default_factory=dict
    )  # those that a profile is found by, whatever happens


def submit(lane: Lane, mode: Mode, target: int) -> bool:
    return lane.struck_request(mode, target, lambda server: server.submit(profile_named("n")))


def combine(lane: Lane, mode: Mode, target: int) -> bool:
    return lane.struck_request(mode, target, Server.combine)


def three_profiles(lane: Lane) -> None:
    submitted(lane.start(), *"abc")


def a_combined_one_and_two_profiles(lane: Lane) -> None:
    server = lane.start()
    submitted(server, *"abc")
    assert server.combine().status_code == 200
    submitted(server, *"de")


def a_combined_one_and_two_profiles_but_no_catalog(lane: Lane) -> None:
    a_combined_one_and_two_profiles(lane)
    lane.server.stop()
    lane.drop_catalog()


def a_folder_of_pgo_fleet(lane: Lane) -> None:
    lane.data.mkdir()
    for stack in "ab":
        (lane.data / f"{stack}.pgo").write_bytes(profile_named(stack))
    (lane.data / "readme.pgo").write_text("not a profile")


def a_crowded_day(lane: Lane) -> None:
    submitted(lane.start(), *"12a34")


def a_crowded_day_of_several_series(lane: Lane) -> None:
    submitted(lane.start(), *"12a34", labels=_LABELS)


def a_roll_up_and_a_late_profile(lane: Lane) -> None:
    submitted(lane.start(), *"1234", labels=_LABELS)
    submitted(lane.start(), "5", labels=_LABELS)


def four_profiles_of_which_two_are_too_much(lane: Lane) -> None:
    submitted(lane.start(), *"abcd")


_LABELS = {"1": "pod=x,version=1", "2": "pod=y,version=1", "3": "pod=x,version=1", "5": "zone=eu,version=1"}
_ROLL_UP = {"PGOF_ROLLUP_DAYS": "1", "PGOF_ROLLUP_LABELS": "version"}
# The profiles of these tests have some 165 bytes each.
_TWO_PROFILES = {"PGOF_KEEP_MEGABYTES": f"{400 / (1 << 20)}"}

LINKED = ("link", "blobs/")
ROW = ("pwrite", "catalog.sqlite3-wal")
SCENARIOS = {
    "submit": Scenario("abc", three_profiles, submit, new="n"),
    "combine": Scenario("abcde", a_combined_one_and_two_profiles, combine),
    "start-that-takes-in-pgo-fleet": Scenario("ab", a_folder_of_pgo_fleet, Lane.struck_start),
    "reindex": Scenario("abcde", a_combined_one_and_two_profiles_but_no_catalog, Lane.struck_reindex),
    "roll-up": Scenario("12a34", a_crowded_day, Lane.struck_start, settings={"PGOF_ROLLUP_DAYS": "1"}),
    "roll-up-of-several-series": Scenario(
        "12a34", a_crowded_day_of_several_series, Lane.struck_start, settings=_ROLL_UP, labels=_LABELS
    ),
    "roll-up-once-more": Scenario(
        "12345", a_roll_up_and_a_late_profile, Lane.struck_start, settings=_ROLL_UP, labels=_LABELS
    ),
    "retention": Scenario(
        "cd", four_profiles_of_which_two_are_too_much, Lane.struck_start, settings=_TWO_PROFILES
    ),
    "restart-after-submit-without-row": Scenario(
        "abc", Killed(three_profiles, submit, at=ROW, after=LINKED), Lane.struck_start, new="n"
    ),
    "restart-after-combine-without-row": Scenario(
        "abcde", Killed(a_combined_one_and_two_profiles, combine, at=ROW, after=LINKED), Lane.struck_start
    ),
    "restart-after-combine-with-all-blobs": Scenario(
        "abcde", Killed(a_combined_one_and_two_profiles, combine, at=("unlink", "blobs/")), Lane.struck_start
    ),
}


@dataclass
class Check:
    """The check after a kill in a scenario; `seen` has the digests of files for which a reindex was tried."""

    scenario: Scenario
    seen: set[str]
    lock: Lock = field(default_factory=Lock)

    def __call__(self, lane: Lane, done: bool) -> None:
        """Check that all profiles count once after a restart, a retry, a combine and a reindex."""
        stored, new = Counter(self.scenario.stored), Counter(self.scenario.new)
        twin = self.twin_of_new_content(lane)
        server = lane.start()
        first = merged(server)
        assert counted(server) in ([stored + new] if done else [stored, stored + new])
        self.submit_again(server)
        assert counted(server) == stored + new
        self.find_all(server)
        assert not list((lane.data / "incoming").iterdir())
        assert server.combine().status_code == 200
        self.submit_again(server)
        assert counted(server) == stored + new
        if twin is not None:
            server.kill()
            lane.fill(twin)
            lane.drop_catalog()
            lane.killer.stand_by()
            server.reindex()
            assert merged(lane.start()) == first
            self.find_all(lane.server)

    def submit_again(self, server: Server) -> None:
        submitted(server, *self.scenario.new, self.scenario.stored[0], labels=self.scenario.labels)

    def find_all(self, server: Server) -> None:
        for stack in self.scenario.stored:
            if labels := self.scenario.labels.get(stack):
                assert tally(server.merge(query={"labels": labels}).content)[stack] == 1

    def twin_of_new_content(self, lane: Lane) -> Path | None:
        """Return a copy of the data folder; None if an earlier kill, in any scenario, left the same blobs."""
        content = lane.content()
        with self.lock:
            if content in self.seen:
                return None
            self.seen.add(content)
        twin = lane.data.with_name("twin")
        shutil.rmtree(twin, ignore_errors=True)
        return Path(shutil.copytree(lane.data, twin))


# What these show, others show too: a roll-up of several series, and a restart after the rarest kill.
VARIANTS = {
    "roll-up", "roll-up-once-more", "restart-after-submit-without-row",
    "restart-after-combine-with-all-blobs",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in VARIANTS)) for name in SCENARIOS]
)
@pytest.mark.alike(8)
def test_killed(tmp_path: Path, killable: KillableZygote, seen: set[str], name: str, sample: Sample) -> None:
    """Takes up to 40 s at all points: a hundred kills and restarts."""
    scenario = SCENARIOS[name]
    with lanes_in(tmp_path, killable, scenario.settings) as lanes:
        kill_at_points(lanes, scenario.prepare, scenario.strike, Check(scenario, seen), sample)
