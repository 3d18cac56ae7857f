"""The row cache: it stays within its memory, survives restarts, and never uses damaged files."""

from __future__ import annotations

import os
import pickle
import resource
import struct
from dataclasses import make_dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.engine import row_cache
from pgo_collector.engine.blob_columns import STORED_LIMITS, BlobColumns
from pgo_collector.engine.merge_inputs import ENGINE, ROW_CACHE
from pgo_collector.engine.packing import layout_of, pack, pack_tightly, unpack, unpack_tight
from pgo_collector.engine.row_cache import RowCache, RowFile, Rows
from pgo_collector.engine.tasks import absorb_rows
from pgo_collector.model.series import Series
from pprof_merge import decode, encode, merge

from tests.faults.stacks import EPOCH, profile_of, tally

if TYPE_CHECKING:
    from tests.server import Server

PROFILES = sorted((Path(__file__).parents[2] / "testdata" / "profiles").glob("*.pb.gz"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store the profiles as blobs of one series; return their folder."""
    folder = tmp_path_factory.mktemp("blobs")
    blobs = stored(folder, PROFILES)
    for row, path in enumerate(PROFILES):
        path_of(blobs, row).parent.mkdir(parents=True, exist_ok=True)
        path_of(blobs, row).symlink_to(path)
    return folder


def path_of(blobs: BlobColumns, row: int) -> Path:
    return Path(blobs.storage.where(blobs.name(row)))


def stored(folder: Path, paths: list[Path]) -> BlobColumns:
    profiles = [decode(path.read_bytes()) for path in paths]
    return BlobColumns(
        FolderStorage(folder, folder),
        (Series("service", "cpu"),),
        np.zeros(len(profiles), np.int32),
        np.array([profile.header.time_nanos for profile in profiles]),
        np.frombuffer(b"".join(profile.digest for profile in profiles), np.uint8).reshape(-1, 32),
        np.zeros(len(profiles), np.bool_),
    )


def take_in(rows: Rows, folder: Path, paths: list[Path]) -> dict[int, str]:
    blobs = stored(folder, paths)
    return rows.load(blobs, rows.missing(blobs))


def merged(rows: Rows) -> bytes:
    return encode(rows.collection.merge())


def read_from(path: Path, engine: str = "1") -> tuple[Rows, RowFile]:
    rows = Rows(STORED_LIMITS)
    file = RowFile(path, engine, rows)
    file.read()
    return rows, file


@pytest.mark.parametrize("size", [1, 2, 3])
def test_blobs_are_loaded_segment_by_segment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    for module in (row_cache,):
        monkeypatch.setattr(module, "SEGMENT_PROFILES", size)
    paths = [path for path in PROFILES if path.name.startswith("apisvc")]
    assert len(paths) > 2 * size + 1
    for count in (0, 1, size - 1, size, size + 1, 2 * size, 2 * size + 1):
        kept = RowCache(STORED_LIMITS, "1")
        kept.folder, kept.most_bytes = tmp_path / str(count), 1 << 30
        kept.folder.mkdir(exist_ok=True)
        for _ in range(2):
            numbers, unreadable = kept.load("x/cpu", stored(folder, paths[:count]))
            assert (numbers.tolist(), unreadable) == ([*range(count)], {})
        assert kept.rows("x/cpu").numbers(stored(folder, paths[:count])).tolist() == [*range(count)]
        if count:
            expected = encode(merge(decode(path.read_bytes()) for path in paths[:count]))
            assert merged(kept.rows("x/cpu")) == expected


def test_the_files_of_a_few_sets_of_services_stay(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "SEGMENT_PROFILES", 1)
    monkeypatch.setattr(row_cache, "_MOST_SET_FILES", 4)
    names = "+".join(f"{number}{'s' * 190}" for number in range(8))  # of files with shorter names

    def cache() -> RowCache:
        made = RowCache(STORED_LIMITS, "1")
        made.folder, made.most_bytes = tmp_path, 1 << 30
        return made

    first = cache()
    for count in (2, 3):
        for number in range(8):
            owner = f"{names}+{number}/cpu"
            # The files of some have been deleted meanwhile: what is in memory stays.
            assert not first.load(owner, stored(folder, PROFILES[:count]))[1]
            first.save()
            assert len(first.rows(owner).collection) == count
            if count == 2:
                assert len([*tmp_path.iterdir()]) <= 5
    expected = encode(merge(decode(path.read_bytes()) for path in PROFILES[:4]))
    second = cache()
    for number in range(8):
        owner = f"{names}+{number}/cpu"
        assert not second.load(owner, stored(folder, PROFILES[:4]))[1]
        assert merged(second.rows(owner)) == expected


def test_a_file_has_all_that_a_merge_needs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "SEGMENT_PROFILES", 3)
    paths = [path for path in PROFILES if path.name.startswith(("etl", "apisvc", "lintd"))]
    assert len(paths) > 8
    for count in range(1, 1 + len(paths)):
        rows, file = read_from(tmp_path / "x")
        assert len(rows.collection) == count - 1
        assert take_in(rows, folder, paths[:count]) == {}
        file.save()
        assert file.n_unsaved == 0
    rows, _ = read_from(tmp_path / "x")
    assert merged(rows) == encode(merge(decode(path.read_bytes()) for path in paths))
    half = range(0, len(paths), 2)
    assert encode(rows.collection.merge(half)) == encode(
        merge(decode(paths[number].read_bytes()) for number in half)
    )


def test_a_damaged_file_is_read_up_to_the_damage(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "SEGMENT_PROFILES", 2)
    rows, file = read_from(tmp_path / "x")
    sizes = [0]
    for count in (2, 4, 6, 7):
        take_in(rows, folder, PROFILES[:count])
        file.save()
        sizes.append((tmp_path / "x.rows").stat().st_size)
    assert sizes[3] == sizes[4]  # the seventh is in the tail
    segments, tail = (tmp_path / "x.rows").read_bytes(), (tmp_path / "x.tail").read_bytes()
    for size, good in ((sizes[3], 7), (sizes[3] - 1, 4), (sizes[2] + 1, 4), (sizes[2], 4), (sizes[1] - 8, 0)):
        (tmp_path / "x.rows").write_bytes(segments[:size])
        (tmp_path / "x.tail").write_bytes(tail)
        again, mended = read_from(tmp_path / "x")
        assert len(again.collection) == good
        # New profiles replace the damaged ones in the file.
        take_in(again, folder, PROFILES[:7])
        mended.save()
        again, _ = read_from(tmp_path / "x")
        assert len(again.collection) == 7
        assert merged(again) == merged(rows)


def test_a_tail_of_other_segments_is_ignored(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "SEGMENT_PROFILES", 2)
    rows, file = read_from(tmp_path / "x")
    take_in(rows, folder, PROFILES[:2])
    file.save()
    take_in(rows, folder, PROFILES[:3])
    file.save()
    tail = (tmp_path / "x.tail").read_bytes()
    (tmp_path / "x.rows").unlink()
    rows, file = read_from(tmp_path / "x")
    take_in(rows, folder, PROFILES[1:2])  # the same two in another order
    take_in(rows, folder, PROFILES[:2])
    file.save()
    (tmp_path / "x.tail").write_bytes(tail)
    assert len(read_from(tmp_path / "x")[0].collection) == 2


@given(data=st.data())
def test_a_damaged_byte_is_noticed(data: st.DataObject) -> None:
    packed = b"".join(pack(("1", Rows(STORED_LIMITS).collection.since(Rows(STORED_LIMITS).collection.mark))))
    assert unpack(memoryview(packed)) is not None
    at = data.draw(st.integers(0, len(packed) - 1))
    damaged = bytearray(packed)
    damaged[at] ^= data.draw(st.integers(1, 255))
    assert unpack(memoryview(damaged)) is None
    assert unpack(memoryview(packed)[:at]) is None


@given(data=st.data())
def test_a_damaged_byte_of_what_was_sent_is_noticed(data: st.DataObject) -> None:
    content = data.draw(st.lists(st.integers()) | st.binary(min_size=1))
    sent = pack_tightly(content)
    assert unpack_tight(sent) == content
    at = data.draw(st.integers(0, len(sent) - 1))
    damaged = bytearray(sent)
    damaged[at] ^= data.draw(st.integers(1, 255))
    # The last byte of the compressed bits has some that nobody reads.
    assert unpack_tight(bytes(damaged)) in (None, content)
    assert unpack_tight(sent[:at]) is None


@pytest.mark.parametrize(
    "column", ["headers", "stack_counts", "stacks", "value_counts", "inner_column_counts"]
)
@pytest.mark.parametrize("number", [1 << 20, -5])
def test_rows_that_do_not_fit_are_not_absorbed(
    folder: Path, tmp_path: Path, column: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ROW_CACHE, "folder", tmp_path)
    rows = Rows(STORED_LIMITS)
    take_in(rows, folder, PROFILES[:2])
    segment = rows.collection.since(Rows(STORED_LIMITS).collection.mark)
    (tmp_path / "sent").write_bytes(pack_tightly((ENGINE, segment)))
    absorb_rows("sound/cpu", tmp_path / "sent")
    assert len(ROW_CACHE.rows("sound/cpu").collection) == 2
    ROW_CACHE.delete("sound/cpu")
    wrong = getattr(segment.profiles, column).copy()
    wrong[-1] = number
    unsound = replace(segment, profiles=replace(segment.profiles, **{column: wrong}))
    (tmp_path / "sent").write_bytes(pack_tightly((ENGINE, unsound)))
    absorb_rows("unsound/cpu", tmp_path / "sent")
    assert len(ROW_CACHE.rows("unsound/cpu").collection) == 0


def test_another_order_of_fields_is_another_layout() -> None:
    one, same, other = (make_dataclass("Packed", names) for names in (["a", "b"], ["a", "b"], ["b", "a"]))
    assert layout_of([one]) == layout_of([same])
    assert layout_of([one]) != layout_of([other])


def test_a_file_of_another_version_is_ignored(folder: Path, tmp_path: Path) -> None:
    rows, file = read_from(tmp_path / "x")
    take_in(rows, folder, PROFILES[:1])
    file.save()
    assert len(read_from(tmp_path / "x", engine="2")[0].collection) == 0
    assert len(read_from(tmp_path / "x")[0].collection) == 1
    file.delete()
    assert [*tmp_path.iterdir()] == []


def test_a_full_disk_leaves_the_file_as_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_cache, "SEGMENT_PROFILES", 2)
    rows, file = read_from(tmp_path / "x")
    take_in(rows, folder, PROFILES[:2])
    file.save()
    size = (tmp_path / "x.rows").stat().st_size
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    for count in (3, 4):
        take_in(rows, folder, PROFILES[:count])
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, unlimited[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                file.save()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert [path.name for path in tmp_path.iterdir()] == ["x.rows"]
        assert (tmp_path / "x.rows").stat().st_size == size
    file.save()
    assert merged(read_from(tmp_path / "x")[0]) == merged(rows)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch harm",)


def reached_through(module: str, name: str, argument: str) -> bytes:
    """Return a pickle that calls a function which a module of the engine has imported."""
    texts = (b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name, argument))
    module_text, name_text, argument_text = texts
    return b"\x80\x04" + module_text + name_text + b"\x93" + argument_text + b"\x85R."


class Toucher:
    """Makes a file at the path that it is called with."""

    def __init__(self, name: str) -> None:
        Path(name).touch()


def in_frame(text: bytes) -> memoryview:
    """Return a text as `pack` would have packed it."""
    filled = text + bytes(-len(text) % 8)
    body = struct.pack("<3Q", 16 + len(filled), 1, len(text)) + filled
    return memoryview(blake2b(body).digest() + body)


def test_a_pickle_cannot_call_what_the_engine_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pprof_merge.command.files.Toucher", Toucher, raising=False)
    monkeypatch.setattr("pprof_merge.command.files.sys.Toucher", Toucher, raising=False)
    harm = tmp_path / "harm"
    for name in ("Toucher", "sys.Toucher"):
        assert unpack(in_frame(reached_through("pprof_merge.command.files", name, str(harm)))) is None
        assert not harm.exists()


@pytest.mark.parametrize("content", [Evil(), ("1", Evil()), ("1", os.getcwd)])
def test_a_hostile_pickle_does_nothing(
    content: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert unpack(in_frame(pickle.dumps(content, protocol=5))) is None
    assert not Path("harm").exists()


@pytest.mark.parametrize(
    "text",
    [
        b'["array", "|O", 1]',
        b'["array", "<i8", 1]',
        b'["array"]',
        b'["bytes"]',
        b'["texts"]',
        b'["what"]',
        b"[0]",
        b"[3, 1]",
        b"[99]",
        b"[-1, []]",
        b"[[]]",
        b'{"a": 1}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_no_segment_is_made_of_is_ignored(text: bytes) -> None:
    assert unpack(in_frame(text)) is None


@pytest.mark.parametrize("content", [("1", "no segment"), "x", ("1",), None])
def test_an_object_that_is_not_a_segment_is_ignored(content: object, tmp_path: Path) -> None:
    assert unpack_tight(pack_tightly(content)) == content
    packed = b"".join(pack(content))
    found = unpack(memoryview(packed))
    assert found is not None
    assert found.content == content
    (tmp_path / "x.rows").write_bytes(packed)
    assert len(read_from(tmp_path / "x")[0].collection) == 0


def test_a_cache_stays_within_its_memory_and_reads_the_rest_from_disk(folder: Path, tmp_path: Path) -> None:
    cache = RowCache(STORED_LIMITS, "1")
    cache.folder = tmp_path
    owners = ["a/cpu", "b/cpu", "c.d/heap"]
    for owner, path in zip(owners, PROFILES, strict=False):
        cache.load(owner, stored(folder, [path]))
        cache.enforce_budget(owner)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.cpu.tail", "b.cpu.tail", "c.d.heap.tail"]
    for owner, path in zip(owners, PROFILES, strict=False):
        assert merged(cache.rows(owner)) == encode(merge([decode(path.read_bytes())]))
    assert cache.used_bytes == 0
    cache.most_bytes = 1 << 30
    for owner in owners:
        cache.enforce_budget(owner)
    taken = cache.used_bytes
    cache.delete("a/cpu")
    assert 0 < cache.used_bytes < taken
    assert not (tmp_path / "a.cpu.tail").exists()
    assert len(cache.rows("a/cpu").collection) == 0


def test_rows_that_are_read_ahead_leave_memory_before_those_that_are_used(
    folder: Path, tmp_path: Path
) -> None:
    kept = RowCache(STORED_LIMITS, "1")
    kept.folder, kept.most_bytes = tmp_path, 1 << 30
    for owner in ("sends/cpu", "is merged/cpu"):
        kept.load(owner, stored(folder, PROFILES[:1]))
        kept.enforce_budget(owner)
    kept.load("sends/cpu", stored(folder, PROFILES[:2]), is_use=False)
    kept.most_bytes = kept.used_bytes
    kept.enforce_budget("sends/cpu")
    for path in (tmp_path / "sends.cpu.tail", tmp_path / "is merged.cpu.tail"):
        assert path.exists() == path.name.startswith("sends")
    assert len(kept.rows("sends/cpu").collection) == 2


def test_after_a_stop_no_blob_is_read_again(server: Server) -> None:
    for name in ("a", "b"):
        server.submit(profile_of(name))
    assert server.client.get("/readyz").json()["ready"] is True
    server.merge()
    assert server.stop() == 0
    for blob in server.blobs():
        blob.write_bytes(b"")
    server.start()
    server.wait_for_log("rows loaded")
    assert server.client.get("/readyz").json()["rows"] == {"read": 2, "of": 2, "behind": 0}
    server.submit(profile_of("c"))
    answer = server.merge()
    assert tally(answer.content) == {"a": 1, "b": 1, "c": 1}
    assert "PGO-Left-Out" not in answer.headers


def test_after_a_kill_blobs_are_read_before_they_are_asked_for(server: Server) -> None:
    for number in range(5):
        server.submit(profile_of(f"{number}", time_nanos=EPOCH + number), query={"service": f"s{number % 2}"})
    server.kill()
    server.start()
    server.wait_for_log("rows loaded", 2)
    assert {line["service"]: line["blobs"] for line in server.events("rows loaded")} == {"s0": 3, "s1": 2}
    assert tally(server.merge(query={"service": "s0"}).content) == {"0": 1, "2": 1, "4": 1}


def test_the_number_of_profiles_to_warm_is_known_at_once(server: Server) -> None:
    for number in range(20):
        server.submit(profile_of(f"{number}"), query={"service": f"s{number}"})
    server.kill()
    server.start()
    said = {"read": 0}
    while said["read"] < 20:
        said = server.client.get("/readyz").json()["rows"]
        assert said["of"] == 20 or (said["read"], said["of"]) == (0, 0)


def test_after_a_kill_only_the_last_blobs_are_read_again(server: Server) -> None:
    for number in range(row_cache.SEGMENT_PROFILES + 2):
        server.submit(profile_of(f"{number}", time_nanos=EPOCH + number))
    server.merge()
    server.submit(profile_of("late", time_nanos=EPOCH + 1000))
    server.merge()
    server.kill()
    (last,) = (blob for blob in server.blobs() if str(EPOCH + 1000) in blob.name)
    for blob in server.blobs():
        if blob != last:
            blob.write_bytes(b"")
    server.start()
    server.wait_for_log("rows loaded")
    server.submit(profile_of("later", time_nanos=EPOCH + 1001))
    answer = server.merge()
    assert "PGO-Left-Out" not in answer.headers
    expected = [*map(str, range(row_cache.SEGMENT_PROFILES + 2)), "late", "later"]
    assert tally(answer.content) == dict.fromkeys(expected, 1)
