"""What workers have decoded: kept within its memory, over restarts, and never trusted when it is damaged."""

from __future__ import annotations

import os
import pickle
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pgo_collector.engine.rows import Rows, Stored
from pgo_collector.engine.shelf import Shelf
from pgo_collector.engine.snapshot import load, save
from pgo_collector.engine.tasks import STORED
from pprof_merge import decode, encode, merge

from tests.faults.stacks import EPOCH, profile_of, tally

if TYPE_CHECKING:
    from tests.server import Server

PROFILES = sorted((Path(__file__).parents[1] / "testdata" / "profiles").glob("*.pb.gz"))


def stored(paths: list[Path]) -> list[Stored]:
    return [Stored(path.name, str(path.parent), decode(path.read_bytes()).digest.hex()) for path in paths]


def merged(rows: Rows) -> bytes:
    return encode(rows.collection.merge())


def test_a_snapshot_has_all_that_a_merge_needs(tmp_path: Path) -> None:
    paths = [path for path in PROFILES if path.name.startswith(("etl", "apisvc"))]
    rows = Rows(STORED)
    assert rows.take_in(stored(paths[:-2])) == {}
    save(rows, "1", tmp_path / "x.rows")
    again = load("1", tmp_path / "x.rows")
    assert again is not None
    assert merged(again) == merged(rows)
    assert again.take_in(stored(paths)) == {}
    assert merged(again) == encode(merge(decode(path.read_bytes()) for path in paths))


def test_a_snapshot_that_is_damaged_or_another_versions_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.rows"
    rows = Rows(STORED)
    rows.take_in(stored(PROFILES[:1]))
    save(rows, "1", path)
    whole = path.read_bytes()
    assert load("2", path) is None
    for damaged in (b"", b"hello", whole[:-1], whole[:-100] + bytes(100), whole[1:]):
        path.write_bytes(damaged)
        assert load("1", path) is None
    path.unlink()
    assert load("1", path) is None


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch harm",)


def reached_through(module: str, name: str, argument: str) -> bytes:
    """A pickle that calls what one of our modules has imported."""
    texts = (b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name, argument))
    module_text, name_text, argument_text = texts
    return b"\x80\x04" + module_text + name_text + b"\x93" + argument_text + b"\x85R."


class Toucher:
    """What it is called with is then a file."""

    def __init__(self, name: str) -> None:
        Path(name).touch()


def test_a_snapshot_gets_at_nothing_that_the_engine_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pprof_merge.files.Toucher", Toucher, raising=False)
    monkeypatch.setattr("pprof_merge.files.sys.Toucher", Toucher, raising=False)
    harm = tmp_path / "harm"
    for name in ("Toucher", "sys.Toucher"):
        text = reached_through("pprof_merge.files", name, str(harm))
        (tmp_path / "x.rows").write_bytes(blake2b(text).digest() + text)
        assert load("1", tmp_path / "x.rows") is None
        assert not harm.exists()


@pytest.mark.parametrize("content", [Evil(), ("1", Evil()), ("1", os.getcwd), ("1", "no rows"), "x"])
def test_a_snapshot_cannot_do_harm(content: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = pickle.dumps(content)
    Path("x.rows").write_bytes(blake2b(text).digest() + text)
    assert load("1", Path("x.rows")) is None
    assert not Path("harm").exists()


def test_a_shelf_keeps_what_has_room_and_takes_the_rest_from_disk(tmp_path: Path) -> None:
    shelf = Shelf(STORED, "1")
    shelf.folder = tmp_path
    owners = ["a/cpu", "b/cpu", "c.d/heap"]
    for owner, path in zip(owners, PROFILES, strict=False):
        shelf.rows(owner).take_in(stored([path]))
        shelf.make_room()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cpu.rows", "b.cpu.rows", "c.d.heap.rows"]
    for owner, path in zip(owners, PROFILES, strict=False):
        assert merged(shelf.rows(owner)) == encode(merge([decode(path.read_bytes())]))
    shelf.drop("a/cpu")
    assert not (tmp_path / "a.cpu.rows").exists()
    assert len(shelf.rows("a/cpu").collection) == 0


def test_after_a_stop_no_blob_is_read_again(server: Server) -> None:
    for name in ("a", "b"):
        server.submit(profile_of(name))
    assert server.client.get("/readyz").json()["ready"] is True
    server.merge()
    assert server.stop() == 0
    for blob in server.blobs():
        blob.write_bytes(b"")
    server.start()
    server.wait_for_log("rows are there")
    assert server.client.get("/readyz").json()["rows"] == {"read": 2, "of": 2}
    server.submit(profile_of("c"))
    answer = server.merge()
    assert tally(answer.content) == {"a": 1, "b": 1, "c": 1}
    assert "PGO-Left-Out" not in answer.headers


def test_after_a_kill_blobs_are_read_before_they_are_asked_for(server: Server) -> None:
    for number in range(5):
        server.submit(profile_of(f"{number}", time_nanos=EPOCH + number), query={"service": f"s{number % 2}"})
    server.kill()
    server.start()
    server.wait_for_log("rows are there", 2)
    assert {line["service"]: line["blobs"] for line in server.events("rows are there")} == {"s0": 3, "s1": 2}
    assert tally(server.merge(query={"service": "s0"}).content) == {"0": 1, "2": 1, "4": 1}
