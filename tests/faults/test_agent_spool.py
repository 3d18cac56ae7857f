"""The agent's spool is killed, and its disk is full, at operations in turn: nothing that was kept is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from pgo_agent import DiskSpool
from pgo_agent.endpoint import Upload

from tests.faults.killer import Mode
from tests.faults.mounts import small_disk
from tests.faults.program import Program
from tests.faults.sample import Sample

# Three fit; the fourth needs the room of the first.
PUTS = """
import sys
from pgo_agent import DiskSpool
from pgo_agent.endpoint import Upload
spool = DiskSpool("spool", max_bytes=600)
for number in range(4):
    if spool.put(Upload(str(number).encode() * 100)):
        print(number, flush=True)
"""
SENDS = """
from threading import Event
from pgo_agent import DiskSpool
DiskSpool("spool").drain(lambda upload: print(chr(upload.body[0]), flush=True), Event())
"""
GROWS = """
import resource, sys
from pgo_agent import DiskSpool
from pgo_agent.endpoint import Upload
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
spool = DiskSpool(sys.argv[1])
print(spool.put(Upload(bytes(100))), spool.put(Upload(bytes(5000))), spool.put(Upload(bytes(200))))
"""


def drained(folder: Path) -> list[int]:
    """The numbers of the profiles that a new process finds, in order; checks that no other files are left."""
    found: list[int] = []
    spool = DiskSpool(folder)
    spool.drain(lambda upload: found.append(int(upload.body[:1])), Event())
    assert not spool.dropped
    assert {file.name for file in folder.glob("*")} <= {"unfinished"}
    return found


def numbers(done: subprocess.CompletedProcess[bytes]) -> list[int]:
    return [int(line) for line in done.stdout.split()]


@pytest.fixture
def puts(tmp_path: Path, library: Path) -> Program:
    return Program(tmp_path, library, PUTS)


def test_a_profile_is_on_disk_before_it_is_answered(puts: Program) -> None:
    puts.run(Mode.COUNT)
    name = r"spool/\d{20}\.profile"
    put = rf"open spool/unfinished;write spool/unfinished;fsync spool/unfinished;rename {name};fsync spool"
    seen = ";".join(str(of) for of in puts.killer.operations if of.name != "mkdir")
    assert re.fullmatch(rf"({put};){{3}}{put};unlink {name}", seen), seen


@pytest.mark.parametrize("mode", [Mode.KILL, Mode.TORN])
def test_what_was_kept_outlives_a_kill(puts: Program, mode: Mode, sample: Sample) -> None:
    """Takes up to 30 s at all points: the program starts again for each operation of four profiles."""
    struck: list[str] = []
    for target in sample.targets():
        done = puts.run(mode, target)
        if done.returncode == 0:
            break
        struck.append(puts.killer.operations[-1].name)
        kept = numbers(done)
        found = drained(puts.folder / "spool")
        # The one that was being put may be there or not; the first may have made room for the last.
        assert found in [kept, [*kept, len(kept)], kept[1:], [*kept[1:], len(kept)]], (target, found)
        assert len(kept) == 3 or found[:1] == kept[:1] or not kept
    assert numbers(done) == [0, 1, 2, 3]
    assert drained(puts.folder / "spool") == [1, 2, 3]
    assert {"open", "write", "fsync", "rename", "unlink"} <= set(struck) or not sample.is_all


@pytest.mark.parametrize("mode", [Mode.FULL, Mode.SHORT])
def test_a_full_disk_harms_nobody(puts: Program, mode: Mode, sample: Sample) -> None:
    """Takes up to 30 s at all points, as above."""
    for target in sample.targets():
        done = puts.run(mode, target)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
        kept = numbers(done)
        # One whose folder couldn't be synced is there, without a promise.
        assert {*kept[-3:]} <= {*drained(puts.folder / "spool")}
        if kept == [0, 1, 2, 3]:
            break
        assert b"profile not spooled" in done.stderr


def test_who_is_killed_while_sending_sends_the_rest(tmp_path: Path, library: Path) -> None:
    sender = Program(tmp_path, library, SENDS)
    for target in count(1):
        spool = DiskSpool(sender.folder / "spool")
        for number in range(3):
            assert spool.put(Upload(str(number).encode()))
        done = sender.run(Mode.KILL, target)
        if done.returncode == 0:
            break
        sent = numbers(done)
        # The last was taken, and nobody noted it: the collector knows it when it comes again.
        assert drained(sender.folder / "spool") == [0, 1, 2][sent[-1] :], target
    assert target == 4
    assert numbers(done) == [0, 1, 2]


def test_a_real_disk_fills_up(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        spool = DiskSpool(disk / "spool")
        kept = [number for number in range(30) if spool.put(Upload(str(number % 10).encode() * 8000))]
        assert 0 < len(kept) < 30
        assert len(drained(disk / "spool")) == len(kept)
        assert spool.put(Upload(b"0"))


def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROWS, tmp_path / "spool"], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True False True\n"
    assert "profile not spooled" in done.stderr
    assert len(list((tmp_path / "spool").iterdir())) == 2
