"""A backup or a restore is killed at operations on disk, in turn: no part passes for the whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pgo_collector.errors import FolderUnusable
from pgo_collector.store.folder import DataFolder

from tests.faults.campaign import points
from tests.faults.killer import Killer, Mode
from tests.faults.lane import KillableZygote, submitted
from tests.faults.sample import Sample
from tests.server import Server

Files = dict[str, bytes]


class Commands:
    """Commands under a killer that watches one folder."""

    def __init__(self, home: Path, killable: KillableZygote) -> None:
        self.watched = home / "watched"
        self.watched.mkdir()
        self.killer = Killer(killable.library, home / "control", self.watched)
        self.zygote = killable

    def run(self, directory: Path, *arguments: str | Path, mode: Mode = Mode.COUNT, target: int = 0) -> int:
        """Run a command on a data folder; return its exit code, negative if it was killed."""
        self.killer.arm_next_start(mode, target)
        environment = os.environ | self.killer.environment | {"PGOF_DIRECTORY": str(directory)}
        child = self.zygote.start([str(argument) for argument in arguments], environment)
        assert child.stderr is not None
        with child.stderr as pipe:
            said = pipe.read()
        code = child.wait()
        self.killer.disarm()
        assert code <= 0, said
        return code


@pytest.fixture
def commands(tmp_path: Path, killable: KillableZygote) -> Commands:
    return Commands(tmp_path, killable)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a data folder at two moments; in between it gained profiles, and a combine replaced some."""
    found, home = [], tmp_path_factory.mktemp("folders")
    with Server(home / "server") as server:
        for stacks in ("abc", "de"):
            submitted(server, *stacks)
            assert server.releases(method="POST").status_code == 201
            server.stop()
            found.append(shutil.copytree(server.data, home / f"at {stacks}"))
            server.start()
            assert server.combine().status_code == 200
    return [Path(folder) for folder in found]


def files(folder: Path) -> Files:
    """Return the files below blobs/ and releases/."""
    paths = [path for part in ("blobs", "releases") for path in (folder / part).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def restored(commands: Commands, target: Path, there: Path) -> Files:
    shutil.rmtree(there, ignore_errors=True)
    assert commands.run(there, "restore", target) == 0
    return files(there)


def test_a_backup(commands: Commands, folders: list[Path], tmp_path: Path, sample: Sample) -> None:
    """Takes a minute or more at all points: 70 kills, with a restore and another backup after each."""
    first, second = folders
    target, template, there = commands.watched / "target", tmp_path / "template", tmp_path / "there"
    assert commands.run(first, "backup", template) == 0
    shutil.copytree(template, target)
    assert commands.run(second, "backup", target) == 0
    every = [*points(commands.killer.operations)]
    assert len(every) > 20
    blobs = {name: content for name, content in files(second).items() if name.startswith("blobs/")}
    before = after = 0
    for mode, number, _ in sample.of(every):
        shutil.rmtree(target)
        shutil.copytree(template, target)
        assert commands.run(second, "backup", target, mode=mode, target=number) < 0
        at = commands.killer.operations[number - 1]
        found = restored(commands, target, there)
        assert found in (files(first), files(second)), at
        before, after = before + (found == files(first)), after + (found == files(second))
        assert commands.run(second, "backup", target) == 0
        assert files(target) == blobs, at
        assert {path.name for path in target.iterdir()} == {"backup.json", "blobs", "files", "lock"}, at
    assert restored(commands, target, there) == files(second)
    assert before > after > 0 or not sample.is_all


def test_the_first_backup(commands: Commands, folders: list[Path], tmp_path: Path, sample: Sample) -> None:
    target, there = commands.watched / "target", tmp_path / "there"
    assert commands.run(folders[0], "backup", target) == 0
    every = [*points(commands.killer.operations)]
    for mode, number, _ in sample.of(every):
        shutil.rmtree(target, ignore_errors=True)  # a kill at the very first leaves nothing
        assert commands.run(folders[0], "backup", target, mode=mode, target=number) < 0
        if (target / "backup.json").exists():  # without it nothing is restored
            assert restored(commands, target, there) == files(folders[0])
    assert commands.run(folders[0], "backup", target) == 0
    assert restored(commands, target, there) == files(folders[0])


def test_a_restore(commands: Commands, folders: list[Path], tmp_path: Path, sample: Sample) -> None:
    target, there = tmp_path / "target", commands.watched / "there"
    assert commands.run(folders[1], "backup", target) == 0
    assert restored(commands, target, there) == files(folders[1])
    every = [*points(commands.killer.operations)]
    refused = 0
    for mode, number, _ in sample.of(every):
        shutil.rmtree(there)
        assert commands.run(there, "restore", target, mode=mode, target=number) < 0
        at = commands.killer.operations[number - 1]
        is_done = files(there) == files(folders[1]) and not (there / "restoring").exists()
        if any(there.glob("*")) and not is_done:
            with pytest.raises(FolderUnusable, match="interrupted"):
                DataFolder(there)
            refused += 1
        if not is_done:
            assert commands.run(there, "restore", target) == 0
        assert files(there) == files(folders[1]), at
        with DataFolder(there):
            pass
    assert refused > 20 or not sample.is_all
