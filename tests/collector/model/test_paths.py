"""Names and paths: how long those of clients may be, and how longer ones of earlier versions are handled."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from pgo_collector.model.series import LONGEST_SERIES, BlobName, Identity, Series

from tests.faults.stacks import EPOCH, profile_of, tally
from tests.server import Server, bearer

pytestmark = pytest.mark.folder


def labels_of(length: int, service: str = "default") -> str:
    """Return labels with which a series of CPU profiles has a path of `length` bytes below blobs/."""
    left = length - len(f"{service}/cpu")
    count = -(-left // 255)
    sizes = [left // count + (number < left % count) for number in range(count)]
    return ",".join(f"{number:02}={'x' * (size - 4)}" for number, size in enumerate(sizes))


def submitted(server: Server, name: str, labels: str = "", service: str = "") -> int:
    query = {"labels": labels} | ({"service": service} if service else {})
    return server.submit(profile_of(name), query=query).status_code


def put_there(server: Server, name: str, labels: str) -> Path:
    """Store a profile as an earlier version did, which allowed labels as long as a path."""
    content = profile_of(name)
    digest = hashlib.sha256(gzip.decompress(content)).hexdigest()
    series = Series.parse("default", "cpu", labels)
    path = server.data / "blobs" / str(BlobName(series, Identity(EPOCH, digest)))
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_a_path_is_as_long_as_it_may_be_and_not_a_byte_longer(server: Server) -> None:
    assert submitted(server, "a", labels_of(LONGEST_SERIES)) == 204
    for over in (1, 300):
        answer = server.submit(profile_of("b"), query={"labels": labels_of(LONGEST_SERIES + over)})
        assert answer.status_code == 400
        assert f"{LONGEST_SERIES + over} bytes; the limit is {LONGEST_SERIES}" in answer.json()["detail"]
    answer = server.submit(
        profile_of("b"), query={"labels": ",".join(f"{n:02}={'x' * 252}" for n in range(16))}
    )
    assert answer.status_code == 400
    answer = server.client.post(
        "/api/0/profiles",
        params={"service": "default", "type": "cpu", "labels": labels_of(LONGEST_SERIES + 1)},
        content=profile_of("b"),
        headers=bearer(server.submit_key),
    )
    assert answer.status_code == 400
    assert f"{LONGEST_SERIES + 1} bytes; the limit is {LONGEST_SERIES}" in answer.json()["error"]
    assert tally(server.merge().content) == {"a": 1}
    assert not list((server.data / "incoming").iterdir())


@pytest.mark.sqlite
def test_a_backup_lies_where_paths_are_too_long_for_the_system(server: Server) -> None:
    """One profile is of an earlier version, with a longer path than clients may use now."""
    server.stop()
    room = 4095 - len(f"{server.data}/blobs/") - 120
    longest = put_there(server, "long", labels_of(room))
    server.start()
    assert submitted(server, "a") == submitted(server, "b", labels_of(LONGEST_SERIES)) == 204
    target = server.home / "/".join(["t" * 180] * 2)
    finished = server.run("backup", str(target))
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "backed up: 3 profiles" in finished.stdout
    assert json.loads((target / "backup.json").read_text())["lost"] == []
    finished = server.run("backup", str(target))
    assert "0 bytes were copied" in finished.stdout
    server.environment["PGOF_DIRECTORY"] = str(server.home / "restored" / ("r" * 100))
    finished = server.run("restore", str(target))
    assert finished.returncode == 1
    assert finished.stderr.count("not restored") == 1
    assert (
        f"{longest.name}: the path is too long; restore into a folder with a shorter one" in finished.stderr
    )
    server.environment["PGOF_DIRECTORY"] = str(server.data)
    server.stop()
    shutil.rmtree(server.data)
    assert server.run("restore", str(target)).returncode == 0
    server.start()
    assert tally(server.merge().content) == {"a": 1, "b": 1, "long": 1}


@pytest.mark.sqlite
def test_a_backup_goes_on_past_what_it_cannot_read(server: Server) -> None:
    """It finds a folder in place of a blob, a loop of links, and nothing."""
    for name in "abcde":
        assert submitted(server, name, f"of={name}") == 204
    broken = server.blobs()[:3]
    for path in broken:
        path.unlink()
    broken[0].mkdir()
    broken[1].symlink_to(broken[1])
    target = server.home / "backup"
    finished = server.run("backup", str(target))
    assert finished.returncode == 1
    assert finished.stderr.count("not backed up: ") == 3
    assert [finished.stderr.count(str(path)) for path in broken] == [1, 1, 1]
    assert "backed up: 2 profiles" in finished.stdout
    lost = json.loads((target / "backup.json").read_text())["lost"]
    assert sorted(str(path) for path in broken for said in lost if str(path) in said) == [*map(str, broken)]
    assert len(lost) == 3


def test_folders_go_with_their_last_profile(server: Server) -> None:
    for service in ("one", "two"):
        for name in "ab":
            assert submitted(server, name, f"of={name}", service) == 204
    blobs = server.data / "blobs"
    server.stop()
    server.environment["PGOF_KEEP_DAYS"] = "1"
    server.start()
    server.wait_for_log("upkeep done")
    assert not list(blobs.iterdir())
    assert submitted(server, "c", "of=c", "one") == 204
    assert [path.name for path in blobs.glob("*/*/*")] == ["of=c"]


def test_folders_go_with_what_a_combine_has_replaced(server: Server) -> None:
    days = [f"d{number}" for number in range(3)]
    for number, name in enumerate(days):
        profile = profile_of(name, time_nanos=EPOCH + number * 86_400 * 10**9)
        assert server.submit(profile).status_code == 204
    assert server.combine().status_code == 200
    assert len(list((server.data / "blobs" / "default" / "cpu").iterdir())) == 1
    assert tally(server.merge().content) == dict.fromkeys(days, 1)


def test_a_folder_that_is_removed_while_it_is_served_is_made_again(server: Server) -> None:
    """The folder of a day, that of a series, and all of them."""
    stored: dict[str, int] = {}
    assert submitted(server, "a", "of=a") == 204
    (blob,) = server.blobs()
    for number, folder in enumerate((blob.parent, blob.parent.parent, server.data / "blobs")):
        stored |= {"a": 1, f"b{number}": 1}
        shutil.rmtree(folder)
        for name in reversed(stored):
            assert submitted(server, name, "of=a") == 204
        assert tally(server.merge().content) == stored


def test_a_bit_of_a_kept_merge_flips(server: Server) -> None:
    assert submitted(server, "a") == 204
    for format_ in (None, "folded"):
        before = server.merge(format_=format_)
        assert before.status_code == 200
        for _ in "twice":
            for path in (server.data / "merged").iterdir():
                content = bytearray(path.read_bytes())
                content[len(content) // 2] ^= 1
                path.write_bytes(content)
            after = server.merge(format_=format_)
            assert (after.content, after.headers["ETag"]) == (before.content, before.headers["ETag"])
    assert server.events("kept merge damaged")


def test_a_kept_merge_that_cannot_be_opened_is_a_problem_with_its_reason(server: Server) -> None:
    assert submitted(server, "a") == 204
    assert server.merge().status_code == 200
    (kept,) = (server.data / "merged").iterdir()
    kept.unlink()
    kept.symlink_to(kept)
    answer = server.merge()
    assert answer.status_code == 500
    assert answer.json()["detail"].startswith("the merge could not be stored: ")
