"""Places: the lines of a build's code by address, which count from a time on and never change."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.engine.call_places import Code, Lines, Place
from pgo_collector.engine.start_lines import Additions, StartLines
from pgo_collector.routes.otlp import joining

from tests.collector.engine.test_joining import BUILD, LATER, unpacked
from tests.collector.exporting import Export

F: Lines = (("main.f", "/a.go", 10, 12),)
INLINED: Lines = (("main.g", "/b.go", 5, 7), ("main.f", "/a.go", 10, 14))


def of_code(lines: Lines) -> Lines:
    """Return lines of code that isn't one call."""
    return ((*lines[0][:3], 0), *lines[1:])


def table(folder: Path, since: int, code: Code, *, is_uploaded: bool = True, most: int = 100) -> StartLines:
    """Add code to the table of a build, and return the table."""
    additions = Additions(FolderStorage(folder, folder), "s", most, since)
    additions.add({BUILD: {"main.f": ("/a.go", 10)}}, {BUILD: code}, is_uploaded=is_uploaded)
    return StartLines(next((folder / "s").iterdir()))


def test_what_is_first_told_of_a_call_counts_from_then_on(tmp_path: Path) -> None:
    table(tmp_path, 5, Code({100: F}, {}), is_uploaded=False)
    known = table(tmp_path, 6, Code({100: INLINED, 200: INLINED}, {}))
    assert known.place(100, 4, is_call=True) is None
    assert known.place(100, 5, is_call=True) == Place(F, is_uploaded=False)
    assert known.place(200, 5, is_call=True) is None
    assert known.place(200, 6, is_call=True) == Place(INLINED, is_uploaded=True)
    for address in (0, 99, 101, -1, 1 << 63, -1 << 70):
        assert known.place(address, 6, is_call=True) is None


def test_code_is_up_to_the_next(tmp_path: Path) -> None:
    known = table(tmp_path, 5, Code({150: F}, {100: of_code(INLINED), 200: of_code(F)}))
    assert known.place(99, 5, is_call=False) is None
    for address in (100, 149, 199):
        assert known.place(address, 5, is_call=False) == Place(of_code(INLINED), is_uploaded=True)
        assert known.place(address, 5, is_call=True) is None
    assert known.place(150, 5, is_call=False) == Place(F, is_uploaded=True)
    assert known.place(10**9, 5, is_call=False) == Place(of_code(F), is_uploaded=True)
    # A Go profile then tells nothing new of code, and of calls it does.
    known = table(tmp_path, 6, Code({300: F}, {160: INLINED}), is_uploaded=False)
    assert known.place(160, 6, is_call=False) == Place(of_code(INLINED), is_uploaded=True)
    assert known.place(300, 6, is_call=True) == Place(F, is_uploaded=False)


def test_a_table_has_so_many_lines(tmp_path: Path) -> None:
    known = table(tmp_path, 5, Code(dict.fromkeys(range(100), INLINED), {}), most=2)
    found = [address for address in range(100) if known.place(address, 5, is_call=True)]
    assert found == [*range(20)]


def test_a_table_of_an_older_version_has_no_places(tmp_path: Path) -> None:
    table(tmp_path, 5, Code({100: F}, {}))
    (path,) = (tmp_path / "s").iterdir()
    with closing(sqlite3.connect(path)) as database:
        for name in ("calls", "code", "called", "additions"):
            database.execute(f"DROP TABLE {name}")
        database.commit()
    known = StartLines(path)
    assert known.place(100, 5, is_call=True) is None
    assert known.find("main.f", "/a.go") is not None
    assert table(tmp_path, 6, Code({100: F}, {})).place(100, 6, is_call=True) is not None


def test_a_request_looks_up_so_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place of n inlined calls costs n steps, by symbols as by profiles."""
    monkeypatch.setattr(joining, "_MOST_STEPS", 3000)
    deep = tuple((f"main.f{depth}", "/a.go", 1, 2) for depth in range(31)) + F
    table(tmp_path, 0, Code(dict.fromkeys(range(1000), deep), {}))
    looked_up: list[int] = []
    plain = StartLines.place

    def noted(self: StartLines, address: int, taken: int, *, is_call: bool) -> Place | None:
        looked_up.append(address)
        return plain(self, address, taken, is_call=is_call)

    monkeypatch.setattr(StartLines, "place", noted)
    request = Export()
    request.resource({"service.name": "s"})
    request.profile().time_unix_nano = LATER
    mapping = request.mapping("main", BUILD)
    frame = ("main.f", "/a.go", 12)
    every = [request.inlined([frame], mapping, 0x400000 + address) for address in range(500)]
    request.stack_sample(every, 1)
    assert len(unpacked(request.body, tmp_path)) == 1
    assert 0 < len(looked_up) < 3000 / 32
