"""Folders of the storage on disk: what isn't durable isn't there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from pgo_collector.blobs.files import make_folder

pytestmark = pytest.mark.any_store


def test_a_folder_whose_name_cannot_be_made_durable_is_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a later submit would find it there, and take its name for durable."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            make_folder(tmp_path / "a" / "b")
    assert not [*tmp_path.iterdir()]
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
