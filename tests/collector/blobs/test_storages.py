"""The contract of storages of blobs: of a folder, and of buckets in memory, of a Ceph and of Azurite."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pgo_collector.blobs.bucket import Bucket, open_bucket
from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.blobs.storage import MISSING, NewBlob, Storage

NAME = "svc/cpu/region=a%2Fb/2026-11-25/1-00.pb.gz"
OTHER = "svc/cpu/region=a%2Fb/2026-11-26/2-00.pb.gz"


@pytest.fixture(
    params=[
        pytest.param("folder", marks=pytest.mark.any_store),
        pytest.param("memory_url", marks=pytest.mark.any_store),
        pytest.param("url", marks=pytest.mark.bucket),
        pytest.param("azure_url", marks=pytest.mark.bucket),
    ]
)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        for name in ("blobs", "incoming", "releases"):
            (tmp_path / name).mkdir()
        return FolderStorage(tmp_path / "blobs", tmp_path / "incoming")
    return open_bucket(Bucket(request.getfixturevalue(request.param), 30, 4))


def new(name: str, content: bytes, beside: str = "") -> NewBlob:
    return NewBlob(name, beside, content, len(content))


def test_all_storages_do_the_same(storage: Storage, tmp_path: Path) -> None:
    storage.verify()
    storage.ping()
    assert storage.size(NAME) == MISSING
    with pytest.raises(FileNotFoundError):
        storage.read(NAME)
    assert storage.create([new(NAME, b"one"), new(OTHER, b"two")]) == {}
    in_file = tmp_path / "in_file.part"
    in_file.write_bytes(b"three")
    assert storage.create([NewBlob("svc/cpu/2026-11-25/3-00.pb.gz", "", in_file, 5)]) == {}
    before = time.time_ns()
    storage.replace("svc/cpu/2026-11-25/3-00.inputs", b"inputs")
    other = pickle.loads(pickle.dumps(storage))  # noqa: S301 - as for a worker
    *found, missing = other.read_all([NAME, OTHER, "svc/cpu/2026-11-25/3-00.pb.gz", "svc/none"])
    assert found == [b"one", b"two", b"three"]
    assert isinstance(missing, FileNotFoundError)
    assert [*storage.read_all([NAME, OTHER], 2)] == [b"ne", b"wo"]
    assert storage.read(NAME, 1000) == b"one"
    with storage.open(NAME) as file:
        assert file.read() == b"one"
    assert abs(storage.written_nanos("svc/cpu/2026-11-25/3-00.inputs") - before) < 600 * 10**9
    assert {of.name: of.size for of in storage.objects()} == {
        NAME: 3,
        OTHER: 3,
        "svc/cpu/2026-11-25/3-00.pb.gz": 5,
        "svc/cpu/2026-11-25/3-00.inputs": 6,
    }
    listed = storage.lister()
    folders = {}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        of = listed(folder)
        assert of is not None
        folders[folder] = {name: of.size(name) for name in of.files}
        waiting += [f"{folder}/{name}" if folder else name for name in of.folders]
    assert folders == {
        "": {},
        "svc": {},
        "svc/cpu": {},
        "svc/cpu/region=a%2Fb": {},
        "svc/cpu/region=a%2Fb/2026-11-25": {"1-00.pb.gz": 3},
        "svc/cpu/region=a%2Fb/2026-11-26": {"2-00.pb.gz": 3},
        "svc/cpu/2026-11-25": {"3-00.pb.gz": 5, "3-00.inputs": 6},
    }
    assert listed("svc/cpu/2026-11-27") is None
    assert storage.delete([NAME, "svc/none", OTHER]) == {}
    storage.remove_folders(["svc/cpu/region=a%2Fb/2026-11-25"])
    assert storage.size(NAME) == storage.size(OTHER) == MISSING


def test_all_storages_do_the_same_beside_the_blobs(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    area, copies = storage.area("releases"), Copies(tmp_path / "copies", 1 << 20)
    area.add("svc/cpu/1.json", b"first")
    with pytest.raises(FileExistsError):
        area.add("svc/cpu/1.json", b"second")
    in_file = tmp_path / "in_file.part"
    in_file.write_bytes(b"a file")
    area.add("svc/cpu/1.pb.gz", in_file)
    in_file.unlink()  # in a folder it is now the object
    in_file.write_bytes(b"another file")
    area.upload("svc/other/1.pb.gz", in_file)
    first = area.versions("svc/cpu", time.time_ns())
    assert first.keys() == {"1.json", "1.pb.gz"}
    assert area.update("svc/cpu/1.json", lambda content: (content or b"") + b", second")
    assert area.update("svc/cpu/choice.json", lambda content: content or b"new")
    assert not area.update("svc/cpu/1.json", lambda _: None)
    now = area.versions("svc/cpu", time.time_ns())
    assert {name for name in now if now[name] != first.get(name)} == {"1.json", "choice.json"}
    assert {of.name: of.version for of in area.objects("svc/cpu")} == {
        f"svc/cpu/{name}": version for name, version in now.items()
    }
    assert {of.name: of.size for of in area.objects()} == {
        "svc/cpu/1.json": 13,
        "svc/cpu/1.pb.gz": 6,
        "svc/cpu/choice.json": 3,
        "svc/other/1.pb.gz": 12,
    }
    with area.open_local("svc/other/1.pb.gz", "1", copies) as local:
        assert Path(local.name).read_bytes() == b"another file"
    assert storage.create([new(NAME, b"one")]) == {}
    assert [of.name for of in storage.objects()] == [NAME]
    assert area.delete([of.name for of in area.objects()], durably=True) == {}
    assert [*area.objects()] == [] == [*area.objects("svc/cpu")]


def test_a_failed_attempt_is_replaced(storage: Storage) -> None:
    storage.replace(NAME, b"left by a failed attempt")
    storage.replace("svc/beside.inputs", b"inputs")
    assert storage.create([new(NAME, b"content", "svc/beside.inputs")]) == {}
    assert storage.read(NAME) == b"content"
    assert storage.size("svc/beside.inputs") == MISSING


def test_a_name_that_is_too_long_fails_alone(storage: Storage) -> None:
    long = f"svc/cpu/{'/'.join(['k=' + 'x' * 300] * 9)}/2026-11-25/1-00.pb.gz"
    failures = storage.create([new(long, b"one"), new(NAME, b"two")])
    assert [*failures] == [long]
    assert storage.read(NAME) == b"two"


def test_of_concurrent_writers_one_wins(storage: Storage) -> None:
    area = storage.area("releases")
    with ThreadPoolExecutor(8) as pool:
        for turn in range(10):
            barrier = threading.Barrier(8)

            def added(number: int, barrier: threading.Barrier, turn: int) -> int | None:
                barrier.wait()
                try:
                    area.add(f"turn{turn}", b"%d" % number)
                except FileExistsError:
                    return None
                return number

            won = [*pool.map(lambda number: added(number, barrier, turn), range(8))]  # noqa: B023 - waited for
            (first,) = (number for number in won if number is not None)
            assert area.read(f"turn{turn}") == b"%d" % first
