"""The server is killed at every operation on disk, in turn; no profile is lost and none counts twice.

Which operations there are, an unharmed run tells. Then each is struck in a run of its own, and each write
twice: before it and in its middle. Left out is only what can't differ from what is tried: SIGKILL loses
nothing that the kernel has, so a kill before an fsync leaves what one before the next operation does;
SQLite's -shm is memory that it makes anew; of writes in a row to one file, as of a commit to the log, the
first and the last are struck, and the last in its middle.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import pytest

from tests.faults.killer import Mode, Operation
from tests.faults.lane import Lane, counted, merged, profile_named, submitted
from tests.server import Server

LANES = 2


@dataclass(frozen=True)
class Scenario:
    """What is stored, what is done to it under the killer, and the profile that is new in it."""

    stored: str  # a letter for each profile that must be counted once, whatever happens
    prepare: Callable[[Lane], None]
    strike: Callable[[Lane, Mode, int], bool]
    new: str = ""


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


@dataclass(frozen=True)
class Killed:
    """Prepares by a kill in another scenario, at its first operation of a name and path after another's."""

    prepare: Callable[[Lane], None]
    strike: Callable[[Lane, Mode, int], bool]
    at: tuple[str, str]
    after: tuple[str, str] = ("", "")

    def __call__(self, lane: Lane) -> None:
        self.prepare(lane)
        lane.server.kill()
        template = lane.data.with_name("before")
        shutil.copytree(lane.data, template)
        assert self.strike(lane, Mode.COUNT, 0)
        operations = lane.killer.operations
        start = next(i for i, operation in enumerate(operations) if matches(operation, *self.after))
        target = next(
            i for i, operation in enumerate(operations) if i > start and matches(operation, *self.at)
        )
        lane.fill(template)
        assert not self.strike(lane, Mode.KILL, target + 1)


def matches(operation: Operation, name: str, path: str) -> bool:
    return operation.name.startswith(name) and operation.path.startswith(path)


LINKED = ("link", "blobs/")
ROW = ("pwrite", "catalog.sqlite3-wal")
SCENARIOS = {
    "submit": Scenario("abc", three_profiles, submit, new="n"),
    "combine": Scenario("abcde", a_combined_one_and_two_profiles, combine),
    "start-that-takes-in-pgo-fleet": Scenario("ab", a_folder_of_pgo_fleet, Lane.struck_start),
    "reindex": Scenario("abcde", a_combined_one_and_two_profiles_but_no_catalog, Lane.struck_reindex),
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
class Play:
    """A scenario played to its end: in each lane a point at a time, the results of all together."""

    scenario: Scenario
    template: Path
    seen: set[str]
    failures: list[Exception] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def point(self, lane: Lane, mode: Mode, target: int) -> list[Operation]:
        """Operations up to the one that was struck, all if none was. What is wrong then is a failure."""
        lane.fill(self.template)
        done = self.scenario.strike(lane, mode, target)
        operations = lane.killer.operations
        try:
            self.check(lane, done=done)
        except Exception as error:  # noqa: BLE001 (goes on with the other points; all are raised at the end)
            at = operations[target - 1] if 0 < target <= len(operations) else "the end"
            error.add_note(f"{mode.name} at {target} of {len(operations)}, {at}")
            with self.lock:
                self.failures.append(error)
        return operations

    def check(self, lane: Lane, *, done: bool) -> None:
        """After a restart all is there once; the retry is taken, and combine and reindex change nothing."""
        stored, new = Counter(self.scenario.stored), Counter(self.scenario.new)
        twin = self.twin_of_new_content(lane)
        server = lane.start()
        first = merged(server)
        assert counted(server) in ([stored + new] if done else [stored, stored + new])
        submitted(server, *self.scenario.new, self.scenario.stored[0])
        assert counted(server) == stored + new
        assert not list((lane.data / "incoming").iterdir())
        assert server.combine().status_code == 200
        submitted(server, *self.scenario.new, self.scenario.stored[0])
        assert counted(server) == stored + new
        if twin is not None:
            server.kill()
            lane.fill(twin)
            lane.drop_catalog()
            lane.killer.stand_by()
            server.reindex()
            assert merged(lane.start()) == first

    def twin_of_new_content(self, lane: Lane) -> Path | None:
        """A copy of the data folder if no kill before, in whatever scenario, left the same blobs."""
        content = lane.content()
        with self.lock:
            if content in self.seen:
                return None
            self.seen.add(content)
        twin = lane.data.with_name("twin")
        shutil.rmtree(twin, ignore_errors=True)
        return Path(shutil.copytree(lane.data, twin))


def points(operations: list[Operation]) -> Iterator[tuple[Mode, int]]:
    """What to strike at, as the module's docstring says."""
    for number, operation in enumerate(operations, 1):
        before, after = operations[: number - 1][-1:], operations[number : number + 1]
        if (operation.syncs and after) or operation.path.endswith("-shm"):
            continue
        first, last = before != [operation], after != [operation]
        if first or last or not operation.writes:
            yield Mode.KILL, number
        if last and operation.writes:
            yield Mode.TORN, number


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_operation(tmp_path: Path, library: Path, seen: set[str], name: str) -> None:
    """Takes up to 40 s: a hundred kills and restarts."""
    with ExitStack() as stack:
        lanes = [stack.enter_context(Lane(tmp_path / str(lane), library)) for lane in range(LANES)]
        lane = lanes[0]
        SCENARIOS[name].prepare(lane)
        lane.server.kill()
        play = Play(SCENARIOS[name], Path(shutil.copytree(lane.data, tmp_path / "template")), seen)
        operations = play.point(lane, Mode.COUNT, 0)
        free = list(lanes)

        def struck(point: tuple[Mode, int]) -> bool:
            lane = free.pop()
            try:
                return len(play.point(lane, *point)) >= point[1]
            finally:
                free.append(lane)

        with ThreadPoolExecutor(LANES) as threads:
            kills = sum(threads.map(struck, points(operations)))
        assert kills == len(list(points(operations)))
        assert len(play.point(lane, Mode.KILL, len(operations) + 1)) == len(operations)
    if play.failures:
        raise ExceptionGroup(f"{len(play.failures)} of {kills} kills", play.failures)
