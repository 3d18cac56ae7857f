"""Opened files: how many there may be, of what size and age, and that nothing stays of one that is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import pytest
from pgo_collector.errors import FileRefused, FilesFull, NoSuchFile, PushInvalid
from pgo_collector.model.selection import Selection
from pgo_collector.serve.opened import open_store
from pgo_collector.settings import Settings
from pgo_collector.store.folder import DataFolder
from pgo_collector.submits import opened_files
from pgo_collector.submits.opened_files import OpenedFiles, open_files, read_form, read_paths
from pprof_merge import LimitExceeded

pytestmark = pytest.mark.any_store


@asynccontextmanager
async def opening(home: Path, seconds: float = inf) -> AsyncIterator[OpenedFiles]:
    settings = Settings(directory=home / "data", workers=1)
    with DataFolder(settings.directory) as folder:
        async with (
            open_store(settings, folder) as opened,
            open_files(folder, opened.tasks, settings.limits, seconds) as files,
        ):
            yield files


def folded(home: Path, name: str = "stacks", size: int = 1) -> Path:
    path = home / name
    path.write_text("".join(f"main;{name}{number} 1\n" for number in range(size)))
    return path


def test_files_are_closed_when_their_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_files, "_LOOK_SECONDS", 0.05)

    async def look() -> None:
        async with opening(tmp_path, 0.5) as files:
            (file,) = await files.open("mine", read_paths, [folded(tmp_path)])
            running = asyncio.create_task(files.run())
            assert [*files.store.folder.blobs.rglob("*.pb.gz")]
            async with asyncio.timeout(120):
                while files.of("mine") or files.store.catalog.count(Selection(file.service, file.type)):  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.05)
                while [*files.store.folder.blobs.rglob("*.pb.gz")]:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.05)
            with pytest.raises(NoSuchFile, match="an hour"):
                files.named(file.service)
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(look())


def test_their_number_and_their_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_files, "_MOST_FILES", 4)

    async def look() -> None:
        async with opening(tmp_path) as files:
            for session in "abc":
                await files.open(session, read_paths, [folded(tmp_path)])
            with pytest.raises(FilesFull, match=r"3 files .* the limits are 4 files and 512 MiB"):
                await files.open("d", read_paths, [folded(tmp_path)])
            monkeypatch.setattr(opened_files, "_MOST_FILES", 100)
            monkeypatch.setattr(opened_files, "_MOST_BYTES", 10_000)
            with pytest.raises(FilesFull, match="try again later"):
                await files.open("d", read_paths, [folded(tmp_path, size=20_000)])
            assert not files.of("d")
            assert len(await files.open("d", read_paths, [folded(tmp_path), folded(tmp_path, "other")])) == 2

    asyncio.run(look())


def test_what_is_refused_says_which_file(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("some words\n")

    async def look() -> None:
        async with opening(tmp_path) as files:
            with pytest.raises(FileRefused, match="words: this is text"):
                await files.open("a", read_paths, [folded(tmp_path), tmp_path / "words"])
            with pytest.raises(FileRefused, match="missing: No such file"):
                await files.open("a", read_paths, [tmp_path / "missing"])
            (tmp_path / "long").write_bytes(b"a 1\n" * (3 << 20))
            with pytest.raises(FileRefused, match="long: ") as caught:
                await files.open("a", read_paths, [tmp_path / "long"])
            assert isinstance(caught.value.error, LimitExceeded)
            with pytest.raises(PushInvalid, match="no file was chosen"):
                await files.open("a", read_form, b"--x--", "x")
            assert not files.of("a")

    asyncio.run(look())


def test_a_cancelled_request_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_files, "_LOOK_SECONDS", 0.05)

    async def look() -> None:
        async with opening(tmp_path) as files:
            running = asyncio.create_task(files.run())
            for delay in (0.0, 0.01, 0.02, 0.05, 0.1):
                task = asyncio.create_task(files.open("a", read_paths, [folded(tmp_path)]))
                await asyncio.sleep(delay)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    break
            left = len(files.of("a"))
            async with asyncio.timeout(120):
                while len([*files.store.folder.blobs.rglob("*.pb.gz")]) != left:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.05)
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(look())
