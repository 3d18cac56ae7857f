"""Durability: an answered submit is on disk, not only in the kernel's memory; a power cut can't lose it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from tests.faults.killer import Mode, Operation
from tests.faults.lane import KillableZygote, Lane, submitted


@pytest.fixture
def lane(tmp_path: Path, killable: KillableZygote) -> Iterator[Lane]:
    with Lane(tmp_path / "lane", killable) as lane:
        yield lane


def check_order(operations: list[Operation]) -> None:
    """Check the order: content is synced before its name, names before the row, the row before a delete."""
    unsynced: set[str] = set()
    for operation in operations:
        path = PurePath(operation.path)
        folder = path.parts[0] if path.parts else ""
        if operation.syncs:
            unsynced.discard(str(path))
        elif operation.name.startswith("mkdir"):
            unsynced.add(str(path.parent))
        elif operation.name.startswith(("link", "rename")) and folder == "blobs":
            assert not {name for name in unsynced if name.startswith("incoming/")}, operation
            unsynced.add(str(path.parent))
        elif operation.name.startswith("unlink") and folder == "blobs":
            assert not unsynced, operation
        elif operation.writes and folder == "catalog.sqlite3-wal":
            # What has no name yet isn't in a row either, but that of a combine that takes a name.
            assert {name for name in unsynced if not name.startswith("incoming/")} <= {folder}, operation
            unsynced.add(folder)
        elif operation.writes and folder == "incoming":
            unsynced.add(str(path))
    # An answer's file is deleted, or becomes a kept merge, which is checked whenever it is opened.
    assert {PurePath(name).parts[0] for name in unsynced} <= {"incoming"}


def test_a_submit(lane: Lane) -> None:
    lane.start()
    # The first one of a day tries the link before it makes the folder.
    for stack, links in (("1", 2), ("2", 1)):
        lane.killer.arm(Mode.COUNT)
        submitted(lane.server, stack)
        lane.killer.disarm()
        assert [o.name for o in lane.killer.operations].count("link") == links
        check_order(lane.killer.operations)


def test_a_combine(lane: Lane) -> None:
    submitted(lane.start(), *"abc")
    lane.killer.arm(Mode.COUNT)
    assert lane.server.combine().status_code == 200
    lane.killer.disarm()
    deleted = [o for o in lane.killer.operations if o.name == "unlink" and o.path.startswith("blobs/")]
    assert len(deleted) == 3
    check_order(lane.killer.operations)
