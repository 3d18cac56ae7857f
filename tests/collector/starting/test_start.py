"""Starts: what a server does with what it finds in the data folder."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from pgo_collector.blobs.blobs import seal_size

from tests.faults.stacks import DAY, EPOCH, SECOND, profile_of, tally
from tests.server import Server


def submit_all(server: Server, *names: str) -> None:
    for name in names:
        assert server.submit(profile_of(name)).status_code == 204


def drop_catalog(server: Server) -> None:
    server.drop_catalog()
    for path in (server.data / "rows").glob("*"):
        path.unlink()


@pytest.mark.folder
def test_the_data_folder_is_made_private(server: Server) -> None:
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((server.data / "blobs").stat().st_mode) == 0o700


@pytest.mark.folder
def test_nobody_else_can_read_what_is_written(server: Server) -> None:
    for name in "ab":
        assert server.submit(profile_of(name)).status_code == 204
    assert server.merge(and_combine="true").status_code == 200
    server.stop()  # which saves rows
    opened = {str(path): mode for path in (server.data, *server.data.rglob("*")) if (mode := others(path))}
    assert opened == {}


@pytest.mark.folder
@pytest.mark.sqlite
def test_an_open_folder_of_an_earlier_version_is_made_private(server: Server) -> None:
    server.submit(profile_of("a"))
    server.stop()
    for path in (server.data, *server.data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (server.data / "link").symlink_to(server.submit_keys)
    server.submit_keys.chmod(0o644)
    found = server.run("check").stdout
    assert re.search(r"^privacy +warning .*mode 0755.*blobs, .*catalog.sqlite3", found, re.MULTILINE)
    server.start()
    (line,) = server.events("data folder made private")
    assert {"data", "blobs", "catalog.sqlite3"} <= {*line["opened"]}
    assert [
        path for path in (server.data, *server.data.iterdir()) if not path.is_symlink() and others(path)
    ] == []
    assert others(server.submit_keys)
    assert re.search(r"^privacy +ok ", server.run("check").stdout, re.MULTILINE)
    server.stop()
    server.start()
    assert not server.events("data folder made private")


def others(path: Path) -> int:
    """Return the rights of others than the user."""
    return stat.S_IMODE(path.lstat().st_mode) & 0o077


def test_a_folder_with_the_mode_that_pgo_fleet_gives_is_made_usable(stopped: Server) -> None:
    stopped.data.mkdir(0)
    stopped.data.chmod(0)
    stopped.start()
    assert stat.S_IMODE(stopped.data.stat().st_mode) == 0o700


def test_a_second_process_on_the_folder_is_refused(server: Server) -> None:
    for command in ("serve", "reindex"):
        finished = server.run(command)
        assert finished.returncode == 2
        assert f"{server.data}: another pgo-collector uses it" in finished.stderr
    submit_all(server, "a")


def test_a_folder_that_cannot_be_made_is_named(stopped: Server) -> None:
    stopped.data.write_text("a file")
    finished = stopped.run("serve")
    assert finished.returncode == 2
    assert str(stopped.data) in finished.stderr
    assert "Traceback" not in finished.stderr


def test_too_little_time_for_a_worker_is_named(stopped: Server) -> None:
    stopped.environment["PGOF_TASK_SECONDS"] = "0.00001"  # some are forked within a millisecond
    ended = stopped.run("serve")
    assert ended.returncode == 2
    *_, last = ended.stderr.splitlines()
    assert last == (
        "pgo-collector: no worker process can be started: start takes longer than 1e-05 seconds"
        " (PGOF_TASK_SECONDS)"
    )


def test_stored_profiles_survive_a_kill(server: Server) -> None:
    submit_all(server, "a", "b")
    before = server.merge().content
    server.restart()
    assert server.merge().content == before
    submit_all(server, "a")
    assert server.merge().content == before


@pytest.mark.parametrize("combined", [False, True])
def test_without_its_catalog_the_merge_is_the_same(server: Server, *, combined: bool) -> None:
    submit_all(server, "a", "b", "c")
    if combined:
        server.combine()
        submit_all(server, "d")
    before = server.merge().content
    server.stop()
    drop_catalog(server)
    server.start()
    assert server.merge().content == before
    submit_all(server, "a", "b", "c")
    assert server.merge().content == before
    server.stop()
    server.reindex()
    server.start()
    assert server.merge().content == before


def test_reindex_says_how_many_blobs_are_live(server: Server) -> None:
    submit_all(server, "a", "b", "c")
    server.stop()
    assert server.run("reindex").stdout == "3 blobs are live\n"


def test_a_catalog_that_fails_during_a_start_is_named(server: Server) -> None:
    submit_all(server, "a")
    assert server.stop() == 0
    with server.catalog() as catalog:
        catalog.exec_driver_sql("DROP TABLE profiles")
    ended = server.run("serve")
    assert ended.returncode == 2
    *_, last = ended.stderr.splitlines()
    assert last.startswith("pgo-collector: the catalog")
    assert "Traceback" not in ended.stderr
    server.reindex()
    server.start()
    assert tally(server.merge().content) == {"a": 1}


@pytest.mark.sqlite
def test_a_damaged_catalog_is_named_and_mended_by_reindex(server: Server) -> None:
    submit_all(server, "a", "b")
    before = server.merge().content
    server.stop()
    drop_catalog(server)
    (server.data / "catalog.sqlite3").write_text("not a database " * 100)
    finished = server.run("serve")
    assert finished.returncode == 2
    assert "catalog.sqlite3" in finished.stderr
    assert "reindex" in finished.stderr
    server.reindex()
    server.start()
    assert server.merge().content == before


@pytest.mark.folder
def test_foreign_files_stay_and_are_logged(server: Server) -> None:
    submit_all(server, "a")
    (folder,) = {path.parent for path in server.blobs()}
    blob = server.blobs()[0]
    strangers = [
        server.data / "README.txt",
        server.data / "blobs" / "notes.txt",
        folder / "core",
        folder / "1-ab.pb.gz",
        folder / blob.name.replace(".pb.gz", ".pb"),
        folder / "below" / blob.name,
        folder.parent / blob.name,
        folder.parent / "below" / "note",
        folder.parent / "2000-01-01" / blob.name,
        server.data / "incoming" / "note",
        server.data / "merged" / "note",
    ]
    for path in strangers:
        path.parent.mkdir(exist_ok=True)
        path.write_text("hello")
    assert server.merge().status_code == 200
    server.restart()
    assert tally(server.merge().content) == {"a": 1}
    assert tally(server.combine().content) == {"a": 1}
    assert {line["file"] for line in server.events("unknown file ignored")} == {
        str(path) for path in strangers
    }
    assert {path.read_text() for path in strangers} == {"hello"}


@pytest.mark.folder
def test_blobs_that_were_put_there_are_counted(server: Server) -> None:
    """On days that the series has and hasn't, and of new series, also in the folders of another one."""
    sent = {
        "a": ("", EPOCH), "same day": ("", EPOCH + SECOND), "other day": ("", EPOCH + DAY),
        "other series": ("version=1", EPOCH), "series below": ("version=1,zone=2", EPOCH + DAY),
    }  # fmt: skip
    for name, (labels, time_nanos) in sent.items():
        answer = server.submit(profile_of(name, time_nanos=time_nanos), query={"labels": labels})
        assert answer.status_code == 204
    server.stop()
    copy = shutil.copytree(server.data / "blobs", server.home / "blobs")
    shutil.rmtree(server.data)
    server.start()
    assert server.submit(profile_of("a")).status_code == 204
    server.stop()
    shutil.copytree(copy, server.data / "blobs", dirs_exist_ok=True)
    server.start()
    assert tally(server.merge().content) == dict.fromkeys(sent, 1)
    assert not server.events("unknown file ignored")


def test_partly_received_bodies_are_deleted(stopped: Server) -> None:
    incoming = stopped.data / "incoming"
    incoming.mkdir(parents=True)
    (incoming / "ab12.part").write_text("half")
    stopped.start()
    assert not list(incoming.iterdir())


def test_a_missing_blob_is_said_at_the_start_and_left_out(server: Server) -> None:
    submit_all(server, "a", "b")
    blob = server.blobs()[0]
    blob.unlink()
    server.restart()
    assert blob.name in server.wait_for_log("stored profile missing")["blob"]
    answer = server.merge()
    assert answer.status_code == 200
    assert blob.name in answer.headers["PGO-Left-Out"]


def test_a_retry_of_a_profile_whose_blob_is_missing_stores_it(server: Server) -> None:
    submit_all(server, "a", "b")
    server.blobs()[0].unlink()
    submit_all(server, "a", "b")
    assert tally(server.merge().content) == {"a": 1, "b": 1}


def test_an_unreadable_blob_is_left_out_after_a_reindex_too(server: Server) -> None:
    submit_all(server, "a", "b")
    server.kill()  # its workers have decoded both
    blob = server.blobs()[0]
    blob.write_bytes(blob.read_bytes()[:-30])
    server.start()
    before = server.merge()
    server.stop()
    server.reindex()
    server.start()
    after = server.merge()
    assert after.content == before.content
    assert after.headers["PGO-Left-Out"] == before.headers["PGO-Left-Out"]


def unseal(blob: Path) -> None:
    """Cut the seal off a combined blob."""
    size = seal_size(blob.read_bytes())
    assert size
    os.truncate(blob, blob.stat().st_size - size)


class Combine:
    """A combine of a, b and c by a server, which is stopped then."""

    def __init__(self, server: Server) -> None:
        self.server = server
        submit_all(server, "a", "b", "c")
        self.merged = server.merge().content
        self.begin()
        assert server.combine().status_code == 200
        server.stop()

    def begin(self) -> None:
        """Do nothing before the combine."""


class KeptCombine(Combine):
    """A combine, with the data folder before it and after it."""

    def __init__(self, server: Server) -> None:
        self.before, self.after = server.home / "before", server.home / "after"
        super().__init__(server)
        shutil.copytree(server.data, self.after)

    def begin(self) -> None:
        """Copy the data folder."""
        self.server.stop()
        shutil.copytree(self.server.data, self.before)
        self.server.start()

    def resume(self, catalog: Path | None, *blobs: Path) -> None:
        """Start on the catalog of one moment and the blobs of others; check that all profiles count once."""
        shutil.rmtree(self.server.data)
        shutil.copytree(
            catalog or self.before, self.server.data, ignore=shutil.ignore_patterns("*.gz", "*.inputs")
        )
        for path in blobs:
            shutil.copytree(path / "blobs", self.server.data / "blobs", dirs_exist_ok=True)
        if catalog is None:
            drop_catalog(self.server)
        self.server.start()
        assert self.server.merge().content == self.merged
        submit_all(self.server, "a", "b", "c")
        assert self.server.merge().content == self.merged
        self.server.stop()


@pytest.mark.folder
@pytest.mark.sqlite
def test_a_kill_at_any_point_of_a_combine_counts_all_once(server: Server) -> None:
    """Every state that a kill can leave, with the catalog of that moment and without one."""
    combine = KeptCombine(server)
    for path in (combine.after / "blobs").rglob("*.inputs"):
        only_inputs = server.home / "only_inputs" / path.relative_to(combine.after)
        only_inputs.parent.mkdir(parents=True)
        shutil.copy(path, only_inputs)
    for catalog in (combine.before, None):
        combine.resume(catalog, combine.before, server.home / "only_inputs")  # before the blob is linked
        assert not server.blobs(".inputs")
        combine.resume(catalog, combine.before, combine.after)  # before the catalog knows
        assert len(server.blobs()) == 1
    combine.resume(combine.after, combine.before, combine.after)  # before the inputs are deleted
    assert len(server.blobs()) == 1
    combine.resume(combine.after, combine.after)
    assert len(server.blobs()) == 1


@pytest.mark.folder
def test_a_combined_profile_that_contains_another_counts(server: Server) -> None:
    submit_all(server, "a", "b")
    server.combine()
    small = server.home / "small"
    shutil.copytree(server.data / "blobs", small)
    submit_all(server, "c")
    merged = server.combine().content
    server.stop()
    shutil.copytree(small, server.data / "blobs", dirs_exist_ok=True)
    server.start()
    assert server.merge().content == merged
    assert len(server.blobs()) == 1
    server.stop()
    shutil.copytree(small, server.data / "blobs", dirs_exist_ok=True)
    server.reindex()
    server.start()
    assert server.merge().content == merged
    assert len(server.blobs()) == 1


@pytest.mark.folder
def test_overlapping_combined_profiles_are_left_alone(server: Server) -> None:
    """No crash leaves this state, but mixing two backups does."""
    submit_all(server, "a", "b")
    server.combine()
    server.stop()
    other = Server(server.home / "other")
    with other:
        submit_all(other, "b", "c", "d")
        other.combine()
    shutil.copytree(other.data / "blobs", server.data / "blobs", dirs_exist_ok=True)
    server.start()
    assert tally(server.merge().content) == {"a": 1, "b": 1}
    assert server.events("combined profile not counted")
    server.stop()
    server.reindex()
    server.start()
    assert tally(server.merge().content) == {"b": 1, "c": 1, "d": 1}
    assert len(server.blobs()) == 2


def test_a_blob_of_another_kind_is_left_out_and_named(server: Server) -> None:
    submit_all(server, "a")
    server.stop()
    heap = profile_of("b", type_="inuse")
    digest = hashlib.sha256(gzip.decompress(heap)).hexdigest()
    blob = server.blobs()[0].with_name(f"{EPOCH}-{digest}.pb.gz")
    blob.write_bytes(heap)
    server.start()
    answer = server.merge()
    assert tally(answer.content) == {"a": 1}
    assert blob.name in answer.headers["PGO-Left-Out"]


@pytest.mark.folder
@pytest.mark.parametrize("inputs_there", [True, False])
def test_a_damaged_combined_profile_gives_way_to_its_inputs(server: Server, *, inputs_there: bool) -> None:
    combine = KeptCombine(server)
    if inputs_there:
        shutil.copytree(combine.before / "blobs", server.data / "blobs", dirs_exist_ok=True)
    (inputs,) = server.blobs(".inputs")
    blob = inputs.with_name(inputs.name.replace(".inputs", ".pb.gz"))
    blob.write_bytes(blob.read_bytes()[:-30])
    drop_catalog(server)
    server.start()
    if inputs_there:
        assert server.merge().content == combine.merged
        assert not blob.exists()
    else:
        submit_all(server, "d")
        answer = server.merge()
        assert tally(answer.content) == {"d": 1}
        assert blob.name in answer.headers["PGO-Left-Out"]
        assert blob.exists()


@pytest.mark.folder
def test_retired_profiles_stay_while_what_replaced_them_is_missing(server: Server) -> None:
    combine = KeptCombine(server)
    shutil.copytree(combine.before / "blobs", server.data / "blobs", dirs_exist_ok=True)
    (inputs,) = server.blobs(".inputs")
    blob = inputs.with_name(inputs.name.replace(".inputs", ".pb.gz"))
    blob.unlink()
    inputs.unlink()
    server.start()
    assert len(server.blobs()) == 3
    server.stop()
    server.reindex()
    server.start()
    assert server.merge().content == combine.merged


@pytest.mark.folder
def test_an_inputs_file_that_is_cut_short_is_not_trusted(server: Server) -> None:
    combine = Combine(server)
    (inputs,) = server.blobs(".inputs")
    inputs.write_bytes(inputs.read_bytes()[:-80])
    unseal(server.blobs()[0])
    drop_catalog(server)
    server.start()
    assert server.events("combined profile not counted")
    assert server.merge().status_code == 404
    assert gzip.decompress(server.blobs()[0].read_bytes()) == gzip.decompress(combine.merged)


@pytest.mark.parametrize(
    ("inputs", "catalog"),
    [
        ("deleted", "lost"),
        ("damaged", "kept"),
        pytest.param("deleted", "kept", marks=pytest.mark.exhaustive),
        pytest.param("damaged", "lost", marks=pytest.mark.exhaustive),
    ],
)
def test_inputs_come_back_from_the_blob_itself(server: Server, inputs: str, catalog: str) -> None:
    combine = Combine(server)
    (path,) = server.blobs(".inputs")
    before = path.read_bytes()
    if inputs == "deleted":
        path.unlink()
    else:
        path.write_bytes(before[:70] + b"x" + before[71:])
    if catalog == "lost":
        drop_catalog(server)
    server.start()
    submit_all(server, "a", "b", "c")
    assert server.merge().content == combine.merged
    assert len(server.blobs()) == 1
    if (inputs, catalog) != ("damaged", "kept"):  # the damage is noticed when the file is read
        assert path.read_bytes() == before


@pytest.mark.folder
def test_inputs_come_back_from_the_catalog_if_the_seal_is_damaged_too(server: Server) -> None:
    combine = Combine(server)
    (path,) = server.blobs(".inputs")
    before = path.read_bytes()
    path.unlink()
    unseal(server.blobs()[0])
    server.start()
    assert path.read_bytes() == before
    server.stop()
    drop_catalog(server)
    path.unlink()
    server.start()
    submit_all(server, "a", "b", "c")
    assert server.merge().content == combine.merged


def test_a_profile_that_a_client_has_sealed_counts_alone(server: Server) -> None:
    """It is stored without its seal, and replaces none of the profiles that the seal lists."""
    combine = Combine(server)
    (blob,) = server.blobs()
    content = blob.read_bytes()
    server.start()
    forged = profile_of("forged") + content[-seal_size(blob.read_bytes()) :]
    assert server.submit(forged).status_code == 204
    server.stop()
    drop_catalog(server)
    server.start()
    assert tally(server.merge().content) == {"a": 1, "b": 1, "c": 1, "forged": 1}
    assert combine.merged


def test_rows_of_profiles_that_are_lost_come_back(server: Server) -> None:
    """Some are sent again before the next start, and are stored twice then."""
    submit_all(server, "a", "b", "c")
    server.combine()
    submit_all(server, "d", "e")
    before = server.merge().content
    server.stop()
    with server.catalog() as catalog:
        catalog.exec_driver_sql("DELETE FROM profiles")
    server.start()
    assert server.events("profile recounted")
    submit_all(server, "a", "b", "c", "d", "e")
    assert server.merge().content == before
    with server.catalog() as catalog:
        catalog.exec_driver_sql("DELETE FROM profiles")
    submit_all(server, "a", "b", "d")
    server.restart()
    assert server.merge().content == before
    submit_all(server, "a", "b", "c", "d", "e")
    assert server.merge().content == before
    server.restart()
    assert not server.events("profile recounted")


@pytest.mark.sqlite
def test_a_damaged_page_of_the_catalog_is_found_at_the_start(server: Server) -> None:
    for number in range(60):
        assert server.submit(profile_of(f"stack {number}")).status_code == 204
    before = server.merge().content
    server.stop()
    damage(server.data / "catalog.sqlite3", last=True)
    finished = server.run("serve")
    assert finished.returncode == 2
    assert "catalog.sqlite3: it is damaged" in finished.stderr
    assert "`pgo-collector reindex`" in finished.stderr
    server.reindex()
    server.start()
    assert server.merge().content == before


@pytest.mark.sqlite
def test_a_catalog_that_is_damaged_while_it_is_served_names_the_way_out(server: Server) -> None:
    for number in range(60):
        assert server.submit(profile_of(f"stack {number}")).status_code == 204
    server.stop()
    server.start()
    damage(server.data / "catalog.sqlite3")
    for answer in (server.merge(), server.ask("/v1/services"), server.submit(profile_of("new"))):
        assert answer.status_code == 503
        assert "`pgo-collector reindex`" in answer.json()["detail"]
    answer = server.client.get("/readyz")
    assert answer.status_code == 503
    assert "`pgo-collector reindex`" in answer.json()["fails"]["catalog"]
    assert len(server.events("catalog damaged")) == 1


def damage(catalog: Path, *, last: bool = False) -> None:
    """Damage every page but the first, or only the last one, of a catalog without a log."""
    with closing(sqlite3.connect(catalog)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("PRAGMA page_size").fetchone()
    size = catalog.stat().st_size
    with catalog.open("r+b") as file:
        begin = size - page if last else page
        file.seek(begin)
        file.write(b"\xa5" * (size - begin))


def test_the_folder_stays_locked_without_its_lock_file(server: Server) -> None:
    lock = server.data / "lock"
    lock.unlink()
    finished = server.run("serve")
    assert finished.returncode == 2
    assert "another pgo-collector uses it" in finished.stderr
    submit_all(server, "a")
    assert lock.exists()
    assert server.events("lock file replaced")
    finished = server.run("reindex")
    assert finished.returncode == 2


@pytest.mark.folder
@pytest.mark.sqlite
def test_nothing_is_written_into_a_folder_that_replaced_the_opened_one(server: Server) -> None:
    submit_all(server, "a")
    moved = server.data.rename(server.home / "moved")
    with Server(server.home / "other", {"PGOF_DIRECTORY": str(server.data)}) as other:
        answer = server.submit(profile_of("b"))
        assert answer.status_code == 500
        assert server.client.get("/readyz").status_code == 503
        assert other.submit(profile_of("c")).status_code == 204
        assert tally(other.merge().content) == {"c": 1}
    shutil.rmtree(server.data)
    moved.rename(server.data)
    submit_all(server, "b")
    assert tally(server.merge().content) == {"a": 1, "b": 1}
