"""Checks of the data folder and its disk, in this process: what a machine must have for them is played."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pgo_collector.checks import Finding
from pgo_collector.checks.data_folder import check_disk, check_folder, is_there
from pgo_collector.settings import Settings

pytestmark = pytest.mark.any_store


def found(folder: Path) -> Mapping[str, Finding]:
    return {each.part: each for each in check_folder(Settings(directory=folder))}


def test_a_folder_that_the_start_cannot_make_is_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(tmp_path / "data")["data folder"].state == "ok"
    monkeypatch.setattr(os, "access", lambda *_: False)
    finding = found(tmp_path / "data")["data folder"]
    assert (finding.state, "can't be made by" in finding.detail) == ("fails", True)
    assert f"install -d -o USER -m 0700 {tmp_path / 'data'}" in finding.fix


def test_an_interrupted_restore_is_to_be_run_again(tmp_path: Path) -> None:
    (tmp_path / "restoring").touch()
    (finding,) = found(tmp_path).values()
    assert (finding.state, "was interrupted" in finding.detail) == ("fails", True)
    assert "pgo-collector restore" in finding.fix


def test_another_users_folder_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 123_456)
    finding = found(tmp_path)["owner"]
    assert (finding.state, "user 123456 runs this check" in finding.detail) == ("warning", True)
    assert f"chown -R user 123456 {tmp_path}" in finding.fix


@pytest.mark.parametrize(
    ("code", "of_link", "fix"),
    [
        (errno.EPERM, True, "use a local file system with hard links, such as ext4 or XFS"),
        (errno.ENOSPC, False, "free some space"),
        (errno.EACCES, False, "give it to the user that runs the server"),
    ],
)
def test_what_a_submit_cannot_do_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fix: str, *, of_link: bool
) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code), str(source), None, str(target) if of_link else None)

    monkeypatch.setattr(os, "link", link)
    finding = found(tmp_path)["data folder"]
    assert (finding.state, finding.detail) == ("fails", f"{tmp_path}: {os.strerror(code)}")
    assert fix in finding.fix
    assert not [*tmp_path.iterdir()]


def test_a_disk_without_inodes_takes_no_more_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(tmp_path)
    fields = {name: getattr(real, name) for name in dir(real) if name.startswith("f_")}
    full = SimpleNamespace(**fields | {"f_files": 1000, "f_favail": 0})
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    finding = check_disk(Settings(directory=tmp_path), {})
    assert (finding.state, "it has no inode left" in finding.detail) == ("fails", True)
    assert "PGOF_KEEP_DAYS" in finding.fix


def test_what_this_user_may_not_look_at_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    assert is_there(tmp_path)
    monkeypatch.setattr(Path, "exists", refused)
    assert not is_there(tmp_path)
