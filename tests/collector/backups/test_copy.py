"""`pgo-collector copy`: blobs move between data folders and buckets, and merges stay the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_collector.backups.moving import copy_all
from pgo_collector.blobs.bucket import Bucket, BucketStorage, open_bucket
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.blobs.storage import AREAS, RELEASES, Stored
from pgo_collector.command.copy import copy
from pgo_collector.errors import StorageGone
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.series import BlobName, Identity, Series

from tests.collector.engine.test_symbols import symbols, upload
from tests.faults.stacks import EPOCH, profile_of, tally
from tests.interop.ceph_cluster import Gateway
from tests.server import Server

CONTENT = b"a profile"
BLOB = str(BlobName(Series("svc", CPU), Identity(EPOCH, hashlib.sha256(CONTENT).hexdigest())))


def filled(server: Server) -> None:
    """Store two combined profiles and two others."""
    for name in ("a", "b"):
        assert server.submit(profile_of(name)).status_code == 204
        assert server.submit(profile_of(name), query={"labels": "region=eu/1"}).status_code == 204
    assert server.combine().status_code == 200
    assert server.submit(profile_of("c")).status_code == 204


def copied(server: Server, *arguments: str) -> str:
    done = server.run("copy", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.bucket)])
def other(request: pytest.FixtureRequest, stopped: Server, tmp_path: Path) -> str:
    """A place to copy to, and settings with which the server's commands can reach it."""
    if request.param == "folder":
        return str(tmp_path / "other")
    gateway: Gateway = request.getfixturevalue("gateway")
    stopped.environment |= gateway.environment
    return f"s3://{gateway.new_bucket()}/pre"


def test_blobs_move_away_and_back(stopped: Server, tmp_path: Path, other: str) -> None:
    server = stopped
    server.environment["PGOF_STORAGE"] = ""
    server.start()
    filled(server)
    place = str(server.data)
    assert "copied: 5 objects" in copied(server, place, other)  # two of them .inputs
    assert "copied: 0 objects" in copied(server, place, other)
    assert server.submit(profile_of("d")).status_code == 204
    assert "copied: 1 objects" in copied(server, place, other)
    assert server.combine().status_code == 200  # which replaces some that were copied
    merge = server.merge().content
    assert tally(merge) == {"a": 2, "b": 2, "c": 1, "d": 1}
    server.stop()
    assert "0 left" not in copied(server, place, other)
    assert "0 left" in copied(server, "--delete", place, other)
    back = Server(tmp_path / "back", server.environment | {"PGOF_DIRECTORY": str(tmp_path / "back" / "data")})
    assert "copied: 4 objects" in copied(back, other, str(back.data))
    with back:
        assert back.merge().content == merge


def test_releases_programs_and_start_lines_move_too(stopped: Server, tmp_path: Path, other: str) -> None:
    server = stopped
    server.environment["PGOF_STORAGE"] = ""
    server.start()
    for name in ("a", "b"):
        assert server.submit(profile_of(name)).status_code == 204
        assert server.releases(method="POST").status_code == 201
    assert server.release(format_="folded").status_code == 200
    assert server.releases("/1/pin", "PUT").status_code == 200
    assert upload(server, symbols("build", f=10))["status"] == 200
    program = server.area("binaries") / "default" / f"build-{hashlib.sha256(b'program').hexdigest()}.elf"
    program.parent.mkdir()
    program.write_bytes(b"program")
    before = server.releases().json()
    place = str(server.data)
    assert "copied: 10 objects" in copied(server, place, other)  # 2 blobs, 4 of 2 releases, and 4 others
    assert "copied: 0 objects" in copied(server, place, other)
    assert server.releases("/2/pin", "PUT").status_code == 200  # a choice of the same size
    assert "copied: 1 objects" in copied(server, place, other)
    assert server.releases("/1/pin", "PUT").status_code == 200
    assert "copied: 1 objects" in copied(server, place, other)
    back = Server(tmp_path / "back", server.environment | {"PGOF_DIRECTORY": str(tmp_path / "back" / "data")})
    assert "copied: 10 objects" in copied(back, other, str(back.data))
    with back:
        assert back.releases().json() == before
        assert back.release().content == server.release().content
        names = {path.name for path in back.area("start_lines").rglob("*.sqlite3")}
        assert names == {path.name for path in server.area("start_lines").rglob("*.sqlite3")}
    (back.area("binaries") / "default" / program.name).write_bytes(b"damaged")
    shutil.rmtree(server.data / "binaries" / "default")
    assert "1 were deleted" in copied(server, "--delete", place, other)
    done = server.run("copy", str(back.data), other)
    assert done.returncode == 1
    assert "isn't what its name says" in done.stderr


@pytest.mark.any_store
def test_a_bucket_is_copied_to_and_from_by_one_command(
    stopped: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bucket in the memory of this process, which so runs the command itself."""
    server, place = stopped, f"memory:///{secrets.token_hex(8)}/pre"
    server.environment["PGOF_STORAGE"] = ""
    with server:
        filled(server)
        for number in range(70):  # more than are copied at once
            assert server.submit(profile_of("e", time_nanos=EPOCH + number)).status_code == 204
        merge = server.merge().content
        assert copy(str(server.data), place, delete=False) == 0
        assert "copied: 75 objects" in capsys.readouterr().out
        assert copy(str(server.data), place, delete=True) == 0
        assert "copied: 0 objects" in capsys.readouterr().out
    back = Server(tmp_path / "back", {"PGOF_STORAGE": ""})
    assert copy(place, str(back.data), delete=False) == 0
    assert "copied: 75 objects" in capsys.readouterr().out
    with back:
        assert back.merge().content == merge


@pytest.fixture
def storages(tmp_path: Path) -> tuple[FolderStorage, BucketStorage]:
    """A folder with a blob and the record of a release, and an empty bucket."""
    for name in ("blobs", "incoming", *AREAS):
        (tmp_path / name).mkdir()
    source = FolderStorage(tmp_path / "blobs", tmp_path / "incoming")
    source.replace(BLOB, gzip.compress(CONTENT))
    source.area(RELEASES).replace("svc/cpu/1.json", b"{}")
    return source, open_bucket(Bucket(f"memory:///{secrets.token_hex(8)}", 30, 4))


@pytest.mark.any_store
def test_what_goes_while_it_is_copied_is_left_out(
    storages: tuple[FolderStorage, BucketStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = storages
    objects = FolderStorage.objects

    def all_gone(storage: FolderStorage, folder: str = "") -> Iterator[Stored]:
        for of in [*objects(storage, folder)]:
            storage.delete([of.name])
            yield of

    monkeypatch.setattr(FolderStorage, "objects", all_gone)
    copied = copy_all(source, target, delete=False)
    assert (copied.objects, copied.lost) == (0, [])
    assert [*target.objects()] == [*target.area(RELEASES).objects()] == []


@pytest.mark.any_store
def test_a_bucket_that_fails_ends_the_copy(
    storages: tuple[FolderStorage, BucketStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or each object would be waited for, and told of, by itself."""
    source, target = storages

    def gone(*_: object, **__: object) -> None:
        raise StorageGone("the object store fails")

    monkeypatch.setattr(target.area(RELEASES), "replace", gone)
    with pytest.raises(StorageGone):
        copy_all(source, target, delete=False)
    target.delete([BLOB])
    monkeypatch.setattr(target, "create", lambda blobs: {blob.name: StorageGone("gone") for blob in blobs})
    with pytest.raises(StorageGone):
        copy_all(source, target, delete=False)


def test_a_damaged_blob_is_named_and_left_out(server: Server, tmp_path: Path) -> None:
    server.stop()
    server.environment["PGOF_STORAGE"] = ""
    server.start()
    filled(server)
    blob = next(path for path in (server.data / "blobs").rglob("*.pb.gz") if "region" not in str(path))
    blob.write_bytes(profile_of("another"))
    (server.data / "blobs" / "notes.txt").write_text("not ours")
    done = server.run("copy", str(server.data), str(tmp_path / "other"))
    assert done.returncode == 1
    assert f"{blob} isn't what its name says" in done.stderr
    assert not (tmp_path / "other" / "blobs" / "notes.txt").exists()


def test_a_folder_in_use_and_one_that_is_none_are_refused(server: Server, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "source", ignore_errors=True)
    (tmp_path / "source" / "blobs").mkdir(parents=True)
    in_use = server.run("copy", str(tmp_path / "source"), str(server.data))
    assert in_use.returncode == 2
    assert "another pgo-collector uses it" in in_use.stderr
    none = server.run("copy", str(tmp_path / "nothing"), str(tmp_path / "other"))
    assert none.returncode == 2
    assert "isn't a data folder" in none.stderr
