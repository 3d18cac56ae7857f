"""`pgo-collector backup` and `restore`: a restored folder is as it was at one moment, whatever went on."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.faults.mounts import read_only
from tests.faults.stacks import EPOCH, profile_of, tally
from tests.server import Server, bearer

# A backup has a catalog in a file, and only that.
pytestmark = [pytest.mark.sqlite, pytest.mark.folder]

SERVICES = ("shop", "pay")


def submit(server: Server, name: str, service: str = "shop", time_nanos: int = EPOCH) -> None:
    answer = server.submit(profile_of(name, time_nanos=time_nanos), query={"service": service})
    assert answer.status_code == 204, answer.text


def backup(server: Server, code: int = 0) -> str:
    """Run a backup; return what it prints."""
    finished = server.run("backup", str(server.home / "backup"))
    assert finished.returncode == code, finished.stderr
    return finished.stdout + finished.stderr


@contextmanager
def restored(backup: Path, home: Path) -> Iterator[Server]:
    """Run another server on a folder that was restored from a backup."""
    other = Server(home)
    finished = other.run("restore", str(backup))
    assert finished.returncode == 0, finished.stderr
    with other:
        assert not [line for line in other.log if line["level"] in {"warning", "error"}]
        yield other


def contents(server: Server) -> dict[str, tuple[bytes, str]]:
    """Return the merge of each service, and its etag."""
    answers = {service: server.merge(query={"service": service}) for service in SERVICES}
    return {name: (answer.content, answer.headers["ETag"]) for name, answer in answers.items()}


def files(folder: Path) -> dict[str, bytes]:
    """Return the files below blobs/ and releases/."""
    paths = [path for part in ("blobs", "releases") for path in (folder / part).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def filled(server: Server) -> Server:
    """A server with what `fill` stores."""
    fill(server)
    return server


class BackedUp(NamedTuple):
    """A server with what `fill` stores, for all tests that leave it so; its backup, and what that printed."""

    server: Server
    backup: Path
    said: str


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackedUp]:
    with Server(tmp_path_factory.mktemp("backed-up")) as server:
        fill(server)
        yield BackedUp(server, server.home / "backup", backup(server))


def fill(server: Server) -> None:
    """Store single profiles, a combined one, and releases; the newest isn't the current one."""
    for name in "abc":
        submit(server, name)
    assert server.combine(query={"service": "shop"}).status_code == 200
    submit(server, "d")
    submit(server, "e", "pay")
    for name in "fg":
        submit(server, name, "default")
        assert server.releases(method="POST").status_code == 201
    assert server.releases("/1/pin", "PUT").status_code == 200


def test_a_restore_brings_everything_back(backed_up: BackedUp, tmp_path: Path) -> None:
    server = backed_up.server
    assert backed_up.said.startswith("backed up: 5 profiles, 5 files of releases; ")
    with restored(backed_up.backup, tmp_path) as other:
        assert contents(other) == contents(server)
        assert files(other.data) == files(server.data)
        assert other.release().content == server.release().content
        assert other.releases().json() == server.releases().json()
        submit(other, "a")  # it is known as part of the combined profile
        assert contents(other) == contents(server)


def test_the_second_backup_copies_only_what_is_new(filled: Server) -> None:
    backup(filled)
    target = filled.home / "backup"
    before = {path: path.stat().st_ino for path in (target / "blobs").rglob("*") if path.is_file()}
    assert len(before) == 6
    assert backup(filled).endswith("; 0 bytes were copied\n")
    submit(filled, "h", "pay")
    (new,) = {blob.name for blob in filled.blobs()} - {path.name for path in before}
    blob = next(path for path in filled.blobs() if path.name == new)
    assert backup(filled).endswith(f"; {blob.stat().st_size} bytes were copied\n")
    after = {path: path.stat().st_ino for path in (target / "blobs").rglob("*") if path.is_file()}
    assert after.items() > before.items()
    filled.combine(query={"service": "pay"})
    backup(filled)
    assert files(target).keys() == {name for name in files(filled.data) if name.startswith("blobs/")}
    assert len([*(target / "files").iterdir()]) == 6
    with restored(target, filled.home / "restored") as other:
        assert contents(other) == contents(filled)


@pytest.mark.exhaustive
def test_a_backup_is_of_one_moment_while_everything_changes(server: Server) -> None:
    """While clients submit, the profiles of one are combined, and those of the other expire.

    Takes a minute on a busy machine: three restores, each with a start.
    """
    server.stop()
    server.environment |= {"PGOF_KEEP_DAYS": "30", "PGOF_UPKEEP_SECONDS": "0.2"}
    server.start()
    sent: dict[str, list[str]] = {service: [] for service in SERVICES}
    over = threading.Event()

    def send(service: str) -> None:
        with httpx.Client(base_url=server.base_url, headers=bearer(server.submit_key)) as client:
            for number in range(100_000):
                name = f"{service} {number}"
                taken = (time.time_ns() if service == "shop" else EPOCH) + number
                profile = profile_of(name, time_nanos=taken)
                answer = client.post("/v1/submit", params={"service": service}, content=profile)
                assert answer.status_code == 204
                sent[service].append(name)
                if over.is_set():
                    return

    def combine() -> None:
        with httpx.Client(base_url=server.base_url, headers=bearer(server.merge_key), timeout=60) as client:
            while not over.is_set():
                answer = client.post("/v1/merge", params={"service": "shop", "and_combine": "true"})
                assert answer.status_code in {200, 404}

    threads = [threading.Thread(target=send, args=[service]) for service in SERVICES]
    threads.append(threading.Thread(target=combine))
    for thread in threads:
        thread.start()
    try:
        while not sent["shop"]:
            time.sleep(0.01)
        for number in range(3):
            server.wait_for_log("upkeep done", len(server.events("upkeep done")) + 2)
            before = len(sent["shop"])
            backup(server)
            after = len(sent["shop"]) + 1
            with restored(server.home / "backup", server.home / f"restored-{number}") as other:
                answer = other.merge(query={"service": "shop"})
                assert answer.status_code == 200, answer.text
                assert "PGO-Left-Out" not in answer.headers
                found = tally(answer.content)
                assert set(found.values()) == {1}
                numbers = sorted(int(name.removeprefix("shop ")) for name in found)
                assert numbers == [*range(len(numbers))]
                assert before <= len(numbers) <= after
                assert "PGO-Left-Out" not in other.merge(query={"service": "pay"}).headers
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert server.events("profiles combined")
    assert server.events("profiles expired")


def test_a_blob_deleted_during_a_backup_is_copied_from_its_replacement(server: Server) -> None:
    names = [f"stack {number}" for number in range(200)]
    for name in names:
        submit(server, name)
    target = server.home / "backup"
    process = server.launcher.start(["backup", str(target)], server.environment)
    assert process.stderr is not None
    deadline = time.monotonic() + 120
    try:
        while not any((target / "blobs").rglob("*.gz")):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGSTOP)
        assert len([*(target / "blobs").rglob("*.gz")]) < len(names), "it was too quick to be stopped"
        assert server.combine(query={"service": "shop"}).status_code == 200
        assert len(server.blobs()) == 1
    finally:
        os.kill(process.pid, signal.SIGCONT)
        with process.stderr as pipe:
            said = pipe.read().decode()
        code = process.wait(120)
    assert code == 0
    assert said.startswith("backed up: 1 profiles, ")
    assert len([*(target / "blobs").rglob("*.gz")]) == 1
    with restored(target, server.home / "restored") as other:
        assert tally(other.merge(query={"service": "shop"}).content) == Counter(names)


def test_a_backup_without_its_tool_is_a_folder_of_blobs(backed_up: BackedUp, tmp_path: Path) -> None:
    """Restore by hand, as docs/operations.md describes it."""
    other = Server(tmp_path)
    shutil.copytree(backed_up.backup / "blobs", other.data / "blobs")
    with other:
        assert contents(other) == contents(backed_up.server)


def test_damaged_and_missing_files_are_named_and_the_rest_is_copied(filled: Server) -> None:
    single = [blob for blob in filled.blobs() if not blob.with_name(f"{blob.name[:-6]}.inputs").exists()]
    good = single[1].read_bytes()
    single[0].unlink()
    single[1].write_bytes(gzip.compress(b"another"))
    said = backup(filled, code=1)
    assert f"not backed up: {single[0]} is missing" in said
    assert f"not backed up: {single[1]} isn't what its name says" in said
    assert "backed up: 3 profiles" in said
    single[1].write_bytes(good)
    assert str(single[1]) not in backup(filled, code=1)
    (copy,) = (filled.home / "backup").rglob(single[1].name)
    single[1].write_bytes(b"damaged later")
    backup(filled, code=1)
    assert copy.read_bytes() == good


@pytest.mark.parametrize("what", ["blob", "missing blob", "catalog", "release", "inputs"])
def test_a_damaged_backup_restores_everything_else(backed_up: BackedUp, tmp_path: Path, what: str) -> None:
    target = Path(shutil.copytree(backed_up.backup, tmp_path / "backup"))
    manifest = json.loads((target / "backup.json").read_text())
    inputs = next((target / "blobs").rglob("*.inputs"))
    blob = min(path for path in (target / "blobs").rglob("*.gz") if path.stem[:-3] not in inputs.name)
    file = {
        "blob": blob,
        "missing blob": blob,
        "catalog": target / "files" / manifest["catalog"],
        "release": target / "files" / manifest["releases"]["default/cpu/2.pb.gz"],
        "inputs": inputs,
    }[what]
    file.write_bytes(file.read_bytes()[:-9])
    if what == "missing blob":
        file.unlink()
    other = Server(tmp_path / "restored")
    finished = other.run("restore", str(target))
    assert finished.returncode == 1
    assert finished.stderr.count("not restored: ") == 1
    assert str(file) in finished.stderr
    with other:
        after, before = files(other.data), files(backed_up.server.data)
        lost = {"catalog": 0, "inputs": 2}.get(what, 1)
        assert len(before.keys() - after.keys()) == lost
        assert after.items() <= before.items()
        if what == "catalog":
            assert contents(other) == contents(backed_up.server)


def test_a_backup_is_restored_from_a_read_only_file_system(backed_up: BackedUp, tmp_path: Path) -> None:
    with read_only(backed_up.backup), restored(backed_up.backup, tmp_path) as other:
        assert contents(other) == contents(backed_up.server)


def test_only_an_empty_folder_is_restored_into(backed_up: BackedUp, tmp_path: Path) -> None:
    other = Server(tmp_path)
    shutil.copytree(backed_up.server.data / "blobs", other.data / "blobs")
    before = files(other.data)
    finished = other.run("restore", str(backed_up.backup))
    assert finished.returncode == 2
    assert f"data folder {other.data}: it isn't empty; restore into one that is" in finished.stderr
    assert files(other.data) == before


def test_a_folder_that_is_not_a_backup_is_refused(backed_up: BackedUp, tmp_path: Path) -> None:
    server, empty, begun = backed_up.server, tmp_path / "empty", tmp_path / "begun"
    empty.mkdir()
    begun.mkdir()
    (begun / "lock").touch()
    for path, reason in (
        (tmp_path / "nowhere", "there is none"),
        (empty, "there is none"),
        (begun, "no backup was ever completed there"),
    ):
        finished = server.run("restore", str(path))
        assert (finished.returncode, reason in finished.stderr) == (2, True)
    finished = server.run("backup", str(server.home))
    assert finished.returncode == 2
    assert "isn't part of a backup" in finished.stderr
    other = Server(tmp_path / "other", {"PGOF_DIRECTORY": str(empty)})
    finished = other.run("backup", str(backed_up.backup))
    assert finished.returncode == 2
    assert "there is no catalog" in finished.stderr


def test_a_lost_and_new_data_folder_does_not_replace_its_backup(filled: Server) -> None:
    backup(filled)
    expected = contents(filled)
    filled.stop()
    lost = filled.data.rename(filled.home / "lost")
    filled.start()
    submit(filled, "new")
    finished = filled.run("backup", str(filled.home / "backup"))
    assert finished.returncode == 2
    assert "restore that backup, or take another folder" in finished.stderr
    with restored(filled.home / "backup", filled.home / "restored") as other:
        assert contents(other) == expected
    filled.stop()
    shutil.rmtree(filled.data)
    lost.rename(filled.data)
    filled.reindex()
    backup(filled)
