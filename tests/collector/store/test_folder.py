"""The data folder in this process: what locks it, and which files it sweeps and makes."""

from __future__ import annotations

import errno
import fcntl
import tempfile
from pathlib import Path

import pytest
from pgo_collector.errors import FolderUnusable
from pgo_collector.store.folder import DataFolder
from structlog.testing import capture_logs

pytestmark = pytest.mark.any_store


def test_a_folder_in_which_nothing_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "incoming").write_text("a file")
    for _ in range(2):  # the first one has let it go again
        with (
            pytest.raises(FolderUnusable, match=f"data folder {tmp_path}: {tmp_path}/incoming is a file"),
            DataFolder(tmp_path),
        ):
            pass


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("a file")
    with pytest.raises(FolderUnusable, match=f"{file} is a file, and a folder is expected"):
        DataFolder(file / below)


def test_a_lock_file_that_another_process_has_replaced_ends_all_changes(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        folder.check_held()
        (tmp_path / "lock").unlink()
        with (tmp_path / "lock").open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(OSError, match="another process holds it") as raised:
                folder.check_held()
        assert raised.value.errno == errno.ESTALE
        with capture_logs() as logged:
            folder.check_held()  # the other one has ended
        assert [line["event"] for line in logged] == ["lock file replaced"]


def test_what_was_being_written_when_a_process_died_is_swept(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        left = [folder.new_part(), folder.copies / "copy.part"]
        for path in left:
            path.write_bytes(b"half")
        (folder.copies / "whole").write_bytes(b"whole")
        folder.sweep()
        assert not any(path.exists() for path in left)
        assert (folder.copies / "whole").exists()


def test_temporary_files_have_a_folder_where_no_other_is_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DataFolder(tmp_path) as folder:
        before = tempfile.gettempdir()
        folder.ensure_temp_folder()
        assert tempfile.gettempdir() == before
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/nowhere"])
        folder.tmp.mkdir()
        (folder.tmp / "of an earlier process").touch()
        folder.ensure_temp_folder()
        assert tempfile.gettempdir() == str(folder.tmp)
        assert not [*folder.tmp.iterdir()]


def test_a_file_system_that_cannot_lock_folders_has_its_lock_file_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def lock_files(descriptor: int, how: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_dir():
            raise OSError(errno.ENOLCK, "No locks available")
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lock_files)
    with capture_logs() as logged, DataFolder(tmp_path) as folder:
        folder.check_held()
        with pytest.raises(FolderUnusable, match="another pgo-collector uses it"), DataFolder(tmp_path):
            pass
    assert "folder lock unsupported" in [line["event"] for line in logged]
