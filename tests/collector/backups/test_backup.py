"""`pgo-collector backup` and `restore`: a restored folder is as it was at one moment, whatever went on."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.faults.mounts import read_only
from tests.faults.stacks import EPOCH, profile_of, tally
from tests.server import COMMAND, Server, bearer

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
def restored(server: Server, name: str = "restored") -> Iterator[Server]:
    """Run another server on a folder that was restored from the backup of one."""
    with Server(server.home / name) as other:
        other.stop()
        shutil.rmtree(other.data)
        finished = other.run("restore", str(server.home / "backup"))
        assert finished.returncode == 0, finished.stderr
        other.start()
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
    """A server with single profiles, a combined one, and releases; the newest isn't the current one."""
    for name in "abc":
        submit(server, name)
    assert server.combine(query={"service": "shop"}).status_code == 200
    submit(server, "d")
    submit(server, "e", "pay")
    for name in "fg":
        submit(server, name, "default")
        assert server.releases(method="POST").status_code == 201
    assert server.releases("/1/pin", "PUT").status_code == 200
    return server


def test_a_restore_brings_everything_back(filled: Server) -> None:
    said = backup(filled)
    assert said.startswith("backed up: 5 profiles, 5 files of releases; ")
    with restored(filled) as other:
        assert contents(other) == contents(filled)
        assert files(other.data) == files(filled.data)
        assert other.release().content == filled.release().content
        assert other.releases().json() == filled.releases().json()
        submit(other, "a")  # it is known as part of the combined profile
        assert contents(other) == contents(filled)


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
    with restored(filled) as other:
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
            with restored(server, f"restored-{number}") as other:
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
    process = subprocess.Popen(
        [COMMAND, "backup", target], env=server.environment, stdout=subprocess.PIPE, text=True
    )
    try:
        while not any((target / "blobs").rglob("*.gz")):
            assert process.poll() is None
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGSTOP)
        assert len([*(target / "blobs").rglob("*.gz")]) < len(names), "it was too quick to be stopped"
        assert server.combine(query={"service": "shop"}).status_code == 200
        assert len(server.blobs()) == 1
    finally:
        os.kill(process.pid, signal.SIGCONT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.startswith("backed up: 1 profiles, ")
    assert len([*(target / "blobs").rglob("*.gz")]) == 1
    with restored(server) as other:
        assert tally(other.merge(query={"service": "shop"}).content) == Counter(names)


def test_a_backup_without_its_tool_is_a_folder_of_blobs(filled: Server) -> None:
    """Restore by hand, as docs/operations.md describes it."""
    backup(filled)
    with Server(filled.home / "by-hand") as other:
        other.stop()
        shutil.rmtree(other.data)
        shutil.copytree(filled.home / "backup" / "blobs", other.data / "blobs")
        other.start()
        assert contents(other) == contents(filled)


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
def test_a_damaged_backup_restores_everything_else(filled: Server, what: str) -> None:
    backup(filled)
    target = filled.home / "backup"
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
    with Server(filled.home / "restored") as other:
        other.stop()
        shutil.rmtree(other.data)
        finished = other.run("restore", str(target))
        assert finished.returncode == 1
        assert finished.stderr.count("not restored: ") == 1
        assert str(file) in finished.stderr
        other.start()
        after, before = files(other.data), files(filled.data)
        lost = {"catalog": 0, "inputs": 2}.get(what, 1)
        assert len(before.keys() - after.keys()) == lost
        assert after.items() <= before.items()
        if what == "catalog":
            assert contents(other) == contents(filled)


def test_a_backup_is_restored_from_a_read_only_file_system(filled: Server) -> None:
    backup(filled)
    with read_only(filled.home / "backup"), restored(filled) as other:
        assert contents(other) == contents(filled)


def test_only_an_empty_folder_is_restored_into(filled: Server) -> None:
    backup(filled)
    filled.stop()
    before = files(filled.data)
    finished = filled.run("restore", str(filled.home / "backup"))
    assert finished.returncode == 2
    assert f"data folder {filled.data}: it isn't empty; restore into one that is" in finished.stderr
    assert files(filled.data) == before


def test_a_folder_that_is_not_a_backup_is_refused(filled: Server) -> None:
    empty = filled.home / "empty"
    empty.mkdir()
    begun = filled.home / "begun"
    begun.mkdir()
    (begun / "lock").touch()
    for path, reason in (
        (filled.home / "nowhere", "there is none"),
        (empty, "there is none"),
        (begun, "no backup was ever completed there"),
    ):
        finished = filled.run("restore", str(path))
        assert (finished.returncode, reason in finished.stderr) == (2, True)
    finished = filled.run("backup", str(filled.home))
    assert finished.returncode == 2
    assert "isn't part of a backup" in finished.stderr
    filled.environment["PGOF_DIRECTORY"] = str(empty)
    finished = filled.run("backup", str(filled.home / "backup"))
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
    with restored(filled) as other:
        assert contents(other) == expected
    filled.stop()
    shutil.rmtree(filled.data)
    lost.rename(filled.data)
    filled.reindex()
    backup(filled)
