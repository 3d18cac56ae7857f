"""The killer itself, on a small program: the other tests here can't see an operation that it misses."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from typing import Final

import pytest

from tests.faults.killer import Mode, Operation
from tests.faults.program import Program

FILES: Final = """
import os, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
os.makedirs("made/in")
with open("spool", "wb") as spool:
    spool.write(b"12345678")
    spool.flush()
    os.fsync(spool.fileno())
os.link("spool", "made/linked")
os.replace("made/linked", "made/renamed")
os.unlink("spool", dir_fd=folder)
file = os.open("relative", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
os.pwrite(file, b"12345678", 0)
os.writev(file, [b"1234", b"5678"])
os.truncate("relative", 4)
os.posix_fallocate(file, 0, 16)
os.rmdir("made/in")
os.fsync(folder)
"""
FILES_SEEN: Final = [
    "mkdir made", "mkdir made/in", "open spool", "write spool", "fsync spool", "link made/linked",
    "rename made/renamed", "unlink spool", "open relative", "pwrite relative", "writev relative",
    "truncate relative", "fallocate relative", "rmdir made/in", "fsync .",
]  # fmt: skip
CATALOG: Final = """
import sqlite3
catalog = sqlite3.connect("catalog")
catalog.execute("pragma journal_mode = wal")
catalog.execute("pragma synchronous = full")
catalog.execute("create table if not exists rows (row)")
catalog.execute("insert into rows values (1), (2)")
catalog.commit()
"""
WORKER: Final = """
import multiprocessing, os, sys
def work():
    open("by a worker", "wb").write(b"12345678")
    os.fsync(os.open(".", os.O_RDONLY))
if __name__ == "__main__":
    worker = multiprocessing.get_context(sys.argv[2]).Process(target=work)
    worker.start()
    worker.join()
    print("the first process outlived it")
"""


def test_every_call_that_changes_the_folder_is_seen(tmp_path: Path, library: Path) -> None:
    program = Program(tmp_path, library, FILES)
    assert program.run(Mode.COUNT).returncode == 0
    assert [str(operation) for operation in program.killer.operations] == FILES_SEEN


def test_kills_before_the_operation(tmp_path: Path, library: Path) -> None:
    program = Program(tmp_path, library, FILES)
    assert program.run(Mode.KILL, FILES_SEEN.index("write spool") + 1).returncode == -signal.SIGKILL
    assert (program.folder / "spool").read_bytes() == b""


def test_kills_in_the_middle_of_a_write(tmp_path: Path, library: Path) -> None:
    program = Program(tmp_path, library, FILES)
    assert program.run(Mode.TORN, FILES_SEEN.index("write spool") + 1).returncode == -signal.SIGKILL
    assert (program.folder / "spool").read_bytes() == b"1234"


@pytest.mark.parametrize(("mode", "left"), [(Mode.FULL, b""), (Mode.SHORT, b"1234")])
def test_the_disk_is_full_from_then_on(tmp_path: Path, library: Path, mode: Mode, left: bytes) -> None:
    program = Program(tmp_path, library, FILES)
    failed = program.run(mode, FILES_SEEN.index("pwrite relative") + 1)
    assert b"No space left on device" in failed.stderr
    assert (program.folder / "relative").read_bytes() == left


def test_commits_of_sqlite_are_all_or_nothing_at_every_operation(tmp_path: Path, library: Path) -> None:
    program = Program(tmp_path, library, CATALOG)
    program.run(Mode.COUNT)
    operations = program.killer.operations
    assert Operation("fdatasync", "catalog-wal") in operations
    assert sum(operation == Operation("pwrite", "catalog-wal") for operation in operations) > 3
    seen = set()
    for target in range(1, len(operations) + 1):
        for file in program.folder.iterdir():
            file.unlink()
        assert program.run(Mode.TORN, target).returncode == -signal.SIGKILL
        with sqlite3.connect(program.folder / "catalog") as catalog:
            tables = catalog.execute("select count(*) from sqlite_master").fetchone()[0]
            seen.add(catalog.execute("select count(*) from rows").fetchone()[0] if tables else None)
        catalog.close()
    assert seen == {None, 0, 2}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_operation_of_a_worker_kills_the_first_process_too(
    tmp_path: Path, library: Path, method: str
) -> None:
    program = Program(tmp_path, library, WORKER)
    assert program.run(Mode.COUNT, 0, method).stdout
    assert [str(operation) for operation in program.killer.operations] == [
        "open by a worker", "write by a worker", "fsync .",
    ]  # fmt: skip
    assert program.run(Mode.KILL, 2, method).returncode == -signal.SIGKILL
