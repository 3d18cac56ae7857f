"""Kept merges: the newest stay over restarts, and whatever happens to a file, no wrong merge is served."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from pgo_collector.engine.outputs import WrittenFile
from pgo_collector.engine.tasks import MergeResult
from pgo_collector.merges.kept import KeptMerges
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.selection import EXACT, Coarse

from tests.faults.stacks import profile_of
from tests.server import Server

CONTENT = b"the bytes of a merge" * 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "merged"
    folder.mkdir()
    return folder


def keep(
    kept: KeptMerges, folder: Path, name: str, content: bytes = CONTENT, left_out: tuple[LeftOut, ...] = ()
) -> bytes:
    part = folder.parent / f"{name}.part"
    part.write_bytes(content)
    digest = sha256(content).hexdigest()
    made = MergeResult(f"etag of {name}", None, left_out, WrittenFile(len(content), digest))
    return kept.keep(name, part, made, EXACT).read()


def names(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir()}


def content_of(kept: KeptMerges, name: str) -> bytes | None:
    opened = kept.open(name, EXACT)
    return None if opened is None else opened.read()


def test_a_merge_is_served_as_it_was_made_also_after_a_restart(folder: Path) -> None:
    kept, coarse = KeptMerges(folder, 3), Coarse(frozenset({7}), ("pod",))
    left_out = (LeftOut("default/cpu/a", "it measures something else"),)
    assert keep(kept, folder, "a", left_out=left_out) == CONTENT
    for after in (kept, KeptMerges(folder, 3)):
        assert "a" in after
        assert "b" not in after
        assert after.open("b", coarse) is None
        opened = after.open("a", coarse)
        assert opened is not None
        assert (opened.etag, opened.size, opened.coarse) == ("etag of a", len(CONTENT), coarse)
        assert (opened.left_out, opened.n_left_out) == (left_out, 1)
        assert opened.read() == CONTENT


def test_the_newest_are_kept_also_over_restarts(folder: Path) -> None:
    kept = KeptMerges(folder, 3)
    for number, name in enumerate("abcd"):
        keep(kept, folder, name)
        os.utime(folder / f"{name}.merge", (number, number))
    assert names(folder) == {*"bcd"}
    keep(kept, folder, "b")  # made again, as if its file had been damaged
    assert names(folder) == {*"bcd"}
    keep(kept, folder, "e")
    assert names(folder) == {*"bde"}
    assert [name in kept for name in "abcde"] == [False, True, False, True, True]
    after = KeptMerges(folder, 1)
    assert names(folder) == {"e"}
    assert [name in after for name in "bde"] == [False, False, True]


@pytest.fixture
def whole(folder: Path) -> bytes:
    """Return the bytes of a kept merge's file."""
    keep(KeptMerges(folder, 3), folder, "a")
    return (folder / "a.merge").read_bytes()


def damaged(whole: bytes) -> Iterator[bytes]:
    for position in range(len(whole)):
        yield whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
        yield whole[:position]
        yield whole[:position] + bytes(len(whole) - position - 1)
    yield whole + b"\0"
    yield whole + whole
    yield CONTENT  # without a footer


def test_a_damaged_file_is_never_served(folder: Path, whole: bytes) -> None:
    """The damage may be there at a start, or come later."""
    file = folder / "a.merge"
    for content in damaged(whole):
        for damages_first in (True, False):
            file.write_bytes(content if damages_first else whole)
            kept = KeptMerges(folder, 3)
            if not damages_first:
                file.write_bytes(content)
            assert content_of(kept, "a") is None
            assert "a" not in kept
            assert not file.exists()
    assert keep(kept, folder, "a") == CONTENT
    assert content_of(kept, "a") == CONTENT


def test_a_file_that_changes_after_it_was_served_is_checked_again(folder: Path) -> None:
    kept = KeptMerges(folder, 3)
    keep(kept, folder, "a")
    assert content_of(kept, "a") == CONTENT
    file = folder / "a.merge"
    file.write_bytes(file.read_bytes().replace(b"bytes", b"bites"))
    assert content_of(kept, "a") is None
    keep(kept, folder, "a")
    file.unlink()
    assert content_of(kept, "a") is None
    assert "a" not in kept
    file.write_bytes(CONTENT)  # not by this process, which looks at the folder at its start only
    assert content_of(kept, "a") is None


def test_a_start_deletes_what_no_merge_is_in(folder: Path) -> None:
    keep(KeptMerges(folder, 3), folder, "a")
    (folder / "b.merge").write_bytes(CONTENT)
    (folder / "e.merge").symlink_to("e.merge")
    (folder / "f.merge").mkdir()
    (folder / "note").touch()
    KeptMerges(folder, 3)
    assert names(folder) == {"a", "f", "note"}


def test_files_of_another_folder_are_another_collectors(tmp_path: Path) -> None:
    """Two collectors over one catalog make the same merges, and each keeps and deletes its own."""
    folders = [tmp_path / name / "merged" for name in ("first", "second")]
    for folder in folders:
        folder.mkdir(parents=True)
    first, second = (KeptMerges(folder, 1) for folder in folders)
    keep(first, folders[0], "a")
    assert content_of(second, "a") is None
    keep(second, folders[1], "a")
    keep(second, folders[1], "b")
    assert content_of(first, "a") == CONTENT
    shutil.copy(folders[0] / "a.merge", folders[1])  # a folder may be copied for a new collector
    assert "a" in KeptMerges(folders[1], 2)


def test_a_record_names_few_of_thousands_that_were_left_out(folder: Path) -> None:
    kept = KeptMerges(folder, 3)
    keep(kept, folder, "a", left_out=tuple(LeftOut(f"blob {n}", "why" * 100) for n in range(100_000)))
    assert (folder / "a.merge").stat().st_size < 10_000
    opened = kept.open("a", EXACT)
    assert opened is not None
    assert opened.n_left_out == 100_000
    assert [left.blob for left in opened.left_out] == [f"blob {n}" for n in range(10)]
    opened.file.close()


def test_threads_share_it(folder: Path) -> None:
    kept = KeptMerges(folder, 2)

    def use(number: int) -> None:
        name = f"{number % 5}"
        assert keep(kept, folder, f"of {number}", name.encode()) == name.encode()
        assert content_of(kept, f"of {number}") in {None, name.encode()}
        assert content_of(kept, f"of {number - 1}") in {None, f"{(number - 1) % 5}".encode()}

    with ThreadPoolExecutor(8) as threads:
        assert len([*threads.map(use, range(200))]) == 200
    assert len(names(folder)) == 2
    assert all(name in kept for name in names(folder))


def test_a_kept_merge_says_what_it_leaves_out_as_a_new_one_does(server: Server) -> None:
    """The profiles measure something else, so that they are left out for good, and the merge is kept."""
    query = {"type": "other"}
    for number in range(29):
        profile = profile_of(f"{number}", type_="wall" if number < 12 else "latency")
        assert server.submit(profile, query=query).status_code == 204
    made = server.merge(query=query)
    kept = server.merge(query=query)
    server.restart()
    after = server.merge(query=query)
    assert made.headers["PGO-Left-Out"].endswith(", 2")
    for answer in (kept, after):
        assert answer.content == made.content
        for name in ("ETag", "PGO-Left-Out", "Content-Length"):
            assert answer.headers[name] == made.headers[name]
    assert not server.events("merge made")
