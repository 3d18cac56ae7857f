"""The server is killed while it changes releases: pipelines get the old release or the new one, complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.campaign import Killed, Prepare, Strike, kill_at_points, lanes_in
from tests.faults.killer import Mode
from tests.faults.lane import KillableZygote, Lane, submitted
from tests.faults.sample import Sample
from tests.faults.stacks import tally
from tests.server import Server

Send = Callable[[Server], httpx.Response]
SETTINGS = {
    "PGOF_RELEASE_CHECK_SECONDS": "0",
    "PGOF_RELEASE_DAYS": "0",
    "PGOF_RELEASES_KEPT": "2",
}


@dataclass(frozen=True)
class State:
    """Releases by number, each by its stacks; the current one; whether it is pinned."""

    releases: dict[int, str]
    current: int
    pinned: bool = False


NONE = State({}, 0)


@dataclass(frozen=True)
class Scenario:
    """The request under the killer, or another action, with the releases before and after it."""

    prepare: Prepare
    send: Send
    before: State
    after: State
    instead: Strike | None = None


def made(server: Server, *stacks: str) -> None:
    for stack in stacks:
        submitted(server, stack)
        assert server.releases(method="POST").status_code == 201


def merged_profiles(lane: Lane) -> None:
    server = lane.start()
    submitted(server, *"ab")
    assert server.merge().status_code == 200


def two_releases(lane: Lane) -> None:
    made(lane.start(), *"ab")


def a_rollback_past_those_that_are_kept(lane: Lane) -> None:
    """Set up the newest two releases, an old one that is current after a rollback, and a new merge."""
    two_releases(lane)
    server = lane.server
    assert server.releases("/1/pin", "PUT").status_code == 200
    made(server, "c")
    assert server.release(format_="folded").status_code == 200
    submitted(server, "d")
    assert server.merge().status_code == 200
    assert server.releases("/1/pin", "DELETE").status_code == 200


def two_releases_and_a_profile(lane: Lane) -> None:
    two_releases(lane)
    submitted(lane.server, "c")
    assert lane.server.merge().status_code == 200


def the_newest_pinned(lane: Lane) -> None:
    two_releases(lane)
    assert lane.server.releases("/2/pin", "PUT").status_code == 200


def make(server: Server) -> httpx.Response:
    return server.releases(method="POST")


def pin_first(server: Server) -> httpx.Response:
    return server.releases("/1/pin", "PUT")


def unpin_second(server: Server) -> httpx.Response:
    return server.releases("/2/pin", "DELETE")


def fetch_folded(server: Server) -> httpx.Response:
    return server.release(format_="folded")


def struck(send: Send) -> Strike:
    def strike(lane: Lane, mode: Mode, target: int) -> bool:
        return lane.struck_request(mode, target, send)

    return strike


TWO = State({2: "ab", 1: "a"}, 2)
SCENARIOS = {
    "first": Scenario(merged_profiles, Server.release, NONE, State({1: "ab"}, 1)),
    "new-one-in-place-of-a-rollback": Scenario(
        a_rollback_past_those_that_are_kept,
        make,
        State({3: "abc", 2: "ab", 1: "a"}, 1),
        State({4: "abcd", 3: "abc"}, 4),
    ),
    "format": Scenario(two_releases, fetch_folded, TWO, TWO),
    "pin": Scenario(two_releases, pin_first, TWO, State(TWO.releases, 1, pinned=True)),
    "unpin": Scenario(the_newest_pinned, unpin_second, State(TWO.releases, 2, pinned=True), TWO),
    "restart-after-profile-without-description": Scenario(
        Killed(two_releases_and_a_profile, struck(make), at=("link", "releases/default/cpu/3.json")),
        make,
        TWO,
        State({3: "abc", 2: "ab"}, 3),
        instead=Lane.struck_start,
    ),
}


def seen(server: Server) -> State:
    """Return the state that a client sees. Every release is read."""
    releases: list[dict[str, Any]] = server.releases().json()["releases"]
    contents = {}
    for number in (release["number"] for release in releases):
        answer = server.release(number)
        assert answer.status_code == 200, answer.text
        counts = tally(answer.content)
        assert set(counts.values()) == {1}
        contents[number] = "".join(sorted(counts))
    if not releases:
        return NONE
    (current,) = (release for release in releases if release["current"])
    return State(contents, current["number"], current["pinned"])


# A new release in place of a rollback does all that a first one does; a pin is taken back as it is set.
VARIANTS = {"first", "format", "unpin"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in VARIANTS)) for name in SCENARIOS]
)
@pytest.mark.alike(6)
def test_killed(tmp_path: Path, killable: KillableZygote, name: str, sample: Sample) -> None:
    """Takes up to 40 s at all points: dozens of kills, each with four starts."""
    scenario = SCENARIOS[name]
    before, after = scenario.before, scenario.after

    def check(lane: Lane, done: bool) -> None:
        """Check that the old or the new state is there, complete, and that a retry does the rest."""
        server = lane.start()
        found = seen(server)
        assert (found.current, found.pinned) in {(state.current, state.pinned) for state in (before, after)}
        assert found.releases.items() <= (before.releases | after.releases).items()
        assert (
            found.releases.items() >= (after if found.current == after.current else before).releases.items()
        )
        assert found == after or not done or scenario.instead is not None
        assert not list((lane.data / "incoming").iterdir())
        assert not server.events("release damaged") + server.events("unknown file ignored")
        assert scenario.send(server).is_success
        assert seen(server) == after
        answer = server.release()
        assert (answer.headers["PGO-Release"], server.release(after.current).content) == (
            str(after.current),
            answer.content,
        )
        server.kill()
        lane.drop_catalog()
        server.reindex()
        assert seen(lane.start()) == after

    strike = scenario.instead or struck(scenario.send)
    with lanes_in(tmp_path, killable, SETTINGS) as lanes:
        kill_at_points(lanes, scenario.prepare, strike, check, sample)
