"""A kill campaign: a server is killed at operations on disk that a request makes, one run for each, and
checked afterwards.

A first run without a kill lists the operations. A sample of them is then struck, each in a run of its own,
and each write twice: before it and in its middle. Points are of a kind if the same is done to files that
differ only in numbers, digests and folders below one, or to folders. Only points that can't differ from
others are left out.
SIGKILL loses nothing that the kernel has, so a kill before an fsync leaves the same as one before the next
operation. SQLite makes its -shm again. Of several writes in a row to one file, as in a commit to the log,
the first and the last are struck, the last one in its middle, too.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from tests.faults.killer import Mode, Operation
from tests.faults.lane import KillableZygote, Lane
from tests.faults.sample import Sample

LANES = 2
_DRAWN: Final = re.compile(r"[0-9a-f]*[0-9][0-9a-f-]*")

Prepare = Callable[[Lane], None]
# Acts on a lane while the killer strikes at one operation; returns whether the action ran to its end.
Strike = Callable[[Lane, Mode, int], bool]
Check = Callable[[Lane, bool], None]


@dataclass(frozen=True)
class Killed:
    """Prepares by a kill in another scenario: at its first operation `at`, a name and path, after `after`."""

    prepare: Prepare
    strike: Strike
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


@dataclass
class Play:
    """A scenario that is played on copies of a template, one lane and point at a time, and its check."""

    template: Path
    strike: Strike
    check: Check
    failures: list[Exception] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def point(self, lane: Lane, mode: Mode, target: int) -> list[Operation]:
        """Return the operations up to the one that was struck, all if none was. Failures are kept."""
        operations, done = self.struck(lane, mode, target)
        try:
            self.check(lane, done)
        except Exception as error:  # noqa: BLE001 (goes on with the other points; all are raised at the end)
            at = operations[target - 1] if 0 < target <= len(operations) else "the end"
            error.add_note(f"{mode.name} at {target} of {len(operations)}, {at}")
            with self.lock:
                self.failures.append(error)
        return operations

    def struck(self, lane: Lane, mode: Mode, target: int) -> tuple[list[Operation], bool]:
        """Return the operations up to the one that was struck, and whether the action ran to its end."""
        lane.fill(self.template)
        done = self.strike(lane, mode, target)
        return lane.killer.operations, done


class Point(NamedTuple):
    """A strike at an operation, numbered from 1; points of one `kind` do the same to similar files."""

    mode: Mode
    number: int
    kind: Hashable

    @classmethod
    def at(cls, mode: Mode, number: int, operation: Operation) -> Point:
        room, _, rest = operation.path.partition("/")
        file = () if operation.name in {"mkdir", "rmdir"} else (room, _DRAWN.sub("", rest.rpartition("/")[2]))
        return cls(mode, number, (mode, operation.name, bool(rest), *file))


def points(operations: list[Operation]) -> Iterator[Point]:
    """Return all points that can be struck, as the module's docstring says."""
    for number, operation in enumerate(operations, 1):
        before, after = operations[: number - 1][-1:], operations[number : number + 1]
        if (operation.syncs and after) or operation.path.endswith("-shm"):
            continue
        first, last = before != [operation], after != [operation]
        if first or last or not operation.writes:
            yield Point.at(Mode.KILL, number, operation)
        if last and operation.writes:
            yield Point.at(Mode.TORN, number, operation)


@contextmanager
def lanes_in(
    home: Path, zygote: KillableZygote, settings: Mapping[str, str] | None = None
) -> Iterator[list[Lane]]:
    """Yield as many lanes as play at the same time."""
    with ExitStack() as stack:
        yield [stack.enter_context(Lane(home / str(lane), zygote, settings)) for lane in range(LANES)]


def kill_at_points(
    lanes: Sequence[Lane], prepare: Prepare, strike: Strike, check: Check, sample: Sample
) -> None:
    """Play at a sample of the points; `check` gets whether the request was done. Raises an ExceptionGroup.

    In a thorough sample, `check` also follows an action that nothing strikes, and one that a point
    beyond its end leaves alone: as many operations as before.
    """
    lane = lanes[0]
    prepare(lane)
    lane.server.kill()
    template = shutil.copytree(lane.data, lane.data.with_name("template"))
    play = Play(Path(template), strike, check)
    if sample.is_thorough:
        operations = play.point(lane, Mode.COUNT, 0)
    else:
        operations, done = play.struck(lane, Mode.COUNT, 0)
        assert done
    chosen = sample.of([*points(operations)])
    free = list(lanes)

    def struck(point: Point) -> bool:
        lane = free.pop()
        try:
            return len(play.point(lane, point.mode, point.number)) >= point.number
        finally:
            free.append(lane)

    with ThreadPoolExecutor(len(lanes)) as threads:
        kills = sum(threads.map(struck, chosen))
    assert kills == len(chosen)
    if sample.is_thorough:
        assert len(play.point(lane, Mode.KILL, len(operations) + 1)) == len(operations)
    if play.failures:
        raise ExceptionGroup(f"{len(play.failures)} of {kills} kills", play.failures)
