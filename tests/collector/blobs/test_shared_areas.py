"""Releases, programs and start lines in a bucket: collectors that share it see and change the same ones.

Tests over a Ceph run in the stage `shared` alone: it takes seconds to start.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pgo_collector.blobs.bucket import Bucket, BucketStorage, open_bucket
from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.storage import START_LINES
from pgo_collector.engine.start_lines import Additions, Tables
from pgo_collector.errors import CopyDamaged, NoSuchRelease
from pgo_collector.model.series import Series
from pgo_collector.releases.folder import Releases
from pgo_collector.releases.records import Choice, Release, Summary
from structlog.testing import capture_logs

from tests.catalogs import SharedSchema
from tests.collector.engine import test_binaries, test_symbols
from tests.collector.engine.test_joining import BUILD, LATER, ebpf
from tests.collector.exporting import assert_exported, export
from tests.collector.pushing import stored
from tests.collector.queries import test_names
from tests.collector.releases_seen import listed, state
from tests.faults.stacks import profile_of, tally
from tests.interop.ceph_cluster import Gateway
from tests.interop.postgres_cluster import Cluster
from tests.merge.binary.program import SOURCE
from tests.server import Server

T = TypeVar("T")
SERIES = Series("shop", "cpu")
TURNS = 20


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.any_store),
        pytest.param("bucket", marks=pytest.mark.bucket),
    ]
)
def both(request: pytest.FixtureRequest) -> list[BucketStorage]:
    """Two clients of the bucket, as two collectors have them; one that both use, if it is in memory."""
    if request.param == "memory":
        return [open_bucket(Bucket(request.getfixturevalue("memory_url"), 30, 4))] * 2
    url = request.getfixturevalue("url")
    return [BucketStorage(Bucket(url, seconds, 4)) for seconds in (30, 31)]


@pytest.fixture
def two(gateway: Gateway, postgres: Cluster, url: str, tmp_path: Path) -> Iterator[list[Server]]:
    """Two stopped collectors over the bucket and one catalog, each with a data folder of its own."""
    settings = {
        **gateway.environment,
        "PGOF_STORAGE": url,
        "PGOF_RELEASE_CHECK_SECONDS": "0",
        "PGOF_COPIES_MEGABYTES": "0.001",
    }
    servers = [Server(tmp_path / name, settings) for name in ("first", "second")]
    for server in servers:
        server.catalogs = SharedSchema(postgres.port, tmp_path)
    yield servers
    for server in servers:
        server.kill()


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Return what each call returns, each from a thread of its own."""
    barrier = threading.Barrier(len(calls))

    def call(function: Callable[[], T]) -> T:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [*pool.map(call, calls)]


def release(number: int, content: bytes) -> Release:
    return Release(
        number=number,
        time=datetime.now(UTC),
        reason="request",
        replaces=None,
        overlap=None,
        etag=hashlib.sha256(content).hexdigest(),
        digest=hashlib.sha256(content).hexdigest(),
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        samples=1,
        left_out=0,
        summary=Summary(verdict="used", profiles=1, outliers=0),
        report={},
    )


def test_of_two_that_make_a_release_one_is_first_and_readers_see_it_whole(
    both: list[BucketStorage], tmp_path: Path
) -> None:
    makers = [Releases(storage, SERIES) for storage in both]
    reader = Releases(both[0], SERIES)
    is_done = threading.Event()

    def read() -> int:
        """Open whatever there is; what is damaged or half there raises."""
        count = 0
        while not is_done.is_set():
            for number in reader.numbers():
                try:
                    reader.open(reader.release(number)).close()
                    count += 1
                except NoSuchRelease:  # pruned
                    continue
        return count

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            for turn in range(1, TURNS + 1):
                contents = [f"{turn} by {name}".encode() for name in "ab"]
                parts = [tmp_path / f"{turn}{name}" for name in "ab"]
                for part, content in zip(parts, contents, strict=True):
                    part.write_bytes(content)
                made = at_once(
                    lambda: makers[0].add(parts[0], release(turn, contents[0])),  # noqa: B023 - waited for
                    lambda: makers[1].add(parts[1], release(turn, contents[1])),  # noqa: B023
                )
                assert sorted(made) == [False, True]
                with reader.open(reader.release(turn)) as file:
                    assert file.read() == contents[made.index(True)]
                at_once(lambda: makers[0].prune(2), lambda: makers[1].prune(2))
        finally:
            is_done.set()
        assert reading.result()
    assert reader.numbers() == [TURNS, TURNS - 1]
    names = {of.name for of in both[0].area("releases").objects()}
    assert names == {
        f"shop/cpu/{number}{end}" for number in (TURNS, TURNS - 1) for end in (".pb.gz", ".json")
    }


def test_a_release_that_one_pins_while_another_deletes_it_is_there_or_not_pinned(
    both: list[BucketStorage], tmp_path: Path
) -> None:
    first, second = (Releases(storage, SERIES) for storage in both)
    outcomes = set()

    def pinned(number: int) -> bool:
        try:
            first.pin(number)
        except NoSuchRelease:
            return False
        return True

    for turn in range(1, TURNS + 1):
        for number in (2 * turn - 1, 2 * turn):
            part = tmp_path / str(number)
            part.write_bytes(b"%d" % number)
            assert first.add(part, release(number, b"%d" % number))
            first.make_current()
        is_pinned, _ = at_once(lambda: pinned(2 * turn - 1), lambda: second.prune(1))  # noqa: B023
        choice = second.choice()
        assert choice is not None
        second.open(second.release(choice.number)).close()
        if is_pinned:
            assert choice == Choice(number=2 * turn - 1, pinned=True)
            assert first.unpin(2 * turn - 1)
        outcomes.add(is_pinned)
        first.make_current()
    assert outcomes


def test_a_new_release_leaves_what_another_has_pinned(both: list[BucketStorage], tmp_path: Path) -> None:
    first, second = (Releases(storage, SERIES) for storage in both)
    for number in range(1, TURNS + 1):
        part = tmp_path / str(number)
        part.write_bytes(b"x")
        assert second.add(part, release(number, b"x"))
        at_once(lambda: first.pin(1), second.make_current)
        assert first.choice() == second.choice() == Choice(number=1, pinned=True)
        first.unpin(1)
        second.make_current()
        assert first.choice() == Choice(number=number, pinned=False)


@pytest.fixture
def made(both: list[BucketStorage], tmp_path: Path) -> list[Releases]:
    """The releases as two collectors have them: 1, 2 and 3, which is current."""
    first, second = (Releases(storage, SERIES) for storage in both)
    for number in range(1, 4):
        part = tmp_path / str(number)
        part.write_bytes(b"%d" % number)
        assert first.add(part, release(number, b"%d" % number))
        first.make_current()
    return [first, second]


def test_one_that_was_just_deleted_is_not_pinned(made: list[Releases]) -> None:
    first, second = made
    second.prune(1)
    with pytest.raises(NoSuchRelease, match="no release 1"):
        first.pin(1)
    assert first.choice() == Choice(number=3, pinned=False)
    assert first.next_number() == first.next_number(is_patient=False) == 4


def test_one_that_another_pins_while_it_is_deleted_stays(
    made: list[Releases], both: list[BucketStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made
    area = both[0].area("releases")
    delete = area.delete

    def overtaken(names: Sequence[str], *, durably: bool = False) -> dict[str, OSError]:
        second.pin(1)
        return delete(names, durably=durably)

    monkeypatch.setattr(area, "delete", overtaken)
    first.prune(2)
    assert first.choice() == Choice(number=1, pinned=True)
    assert first.numbers() == [3, 2, 1]
    first.open(first.release(1)).close()


def test_one_that_another_deletes_at_the_same_time_is_deleted_once(
    made: list[Releases], both: list[BucketStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made
    area = both[0].area("releases")
    read, is_pruned = area.read, iter([False])

    def overtaken(name: str, *of: Any) -> bytes:
        if name == "shop/cpu/1.json" and next(is_pruned, True) is False:
            second.prune(2)
        return read(name, *of)

    monkeypatch.setattr(area, "read", overtaken)
    with capture_logs() as logged:
        first.prune(2)
    assert [(line["event"], line["release"]) for line in logged] == [("release deleted", 1)]
    assert first.numbers() == [3, 2]


def test_a_record_whose_put_is_answered_late_counts_if_it_is_the_same(
    both: list[BucketStorage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier try of the put has arrived, and its answer was lost."""
    releases, area = Releases(both[0], SERIES), both[0].area("releases")
    add = area.add

    def add_twice(name: str, content: bytes | Path) -> None:
        add(name, content)
        if name.endswith(".json"):
            add(name, content)

    part = tmp_path / "part"
    part.write_bytes(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(area, "add", add_twice)
        assert releases.add(part, release(1, b"x"))
    assert not releases.add(part, release(1, b"x"))
    area.add("shop/cpu/2.json", b"another collector's")
    assert not releases.add(part, release(2, b"x"))
    assert area.read("shop/cpu/2.json") == b"another collector's"


def test_of_several_changes_none_is_lost(both: list[BucketStorage]) -> None:
    areas = [storage.area(START_LINES) for storage in both]

    def count(content: bytes | None) -> bytes:
        return b"%d" % (int(content or 0) + 1)

    for _ in range(5):
        assert all(at_once(*(lambda area=area: area.update("shop/count", count) for area in areas * 2)))
    assert areas[0].read("shop/count") == b"20"
    assert not areas[0].update("shop/count", lambda _: None)


def test_tables_grow_by_what_each_adds(both: list[BucketStorage], tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    areas = [storage.area(START_LINES) for storage in both]
    tables = Tables(areas[1], Copies(tmp_path / "copies", 1 << 20))
    for turn in range(5):
        at_once(
            *(
                lambda name=name, area=area: Additions(area, "shop", 1000, 0).add(
                    {BUILD: {f"{name}{turn}": ("/a.go", 10)}},  # noqa: B023 - waited for
                    is_uploaded=True,
                )
                for name, area in zip("fg", areas, strict=True)
            )
        )
        known = tables.read("shop", BUILD, tables.versions("shop", time.time_ns() + LATER))
        assert known is not None
        for name in (f"{each}{number}" for each in "fg" for number in range(turn + 1)):
            found = known.find(name, "/a.go")
            assert found is not None, name
            assert found.has(10, 1), name
    assert tables.read("shop", "another", tables.versions("shop", 0)) is None


def test_copies_are_bounded_checked_and_made_once(both: list[BucketStorage], tmp_path: Path) -> None:
    area, folder = both[0].area("binaries"), tmp_path / "copies"
    folder.mkdir()
    copies = Copies(folder, 40 << 20)
    contents = [bytes([number]) * (17 << 20) for number in range(3)]  # of more than one piece
    for number, content in enumerate(contents):
        part = tmp_path / "part"
        part.write_bytes(content)
        area.upload(f"shop/{number}", part)
        sha256 = hashlib.sha256(content).hexdigest()
        for _ in range(2):
            with area.open_local(f"shop/{number}", sha256, copies, sha256) as file:
                assert file.read() == content
        with area.open(f"shop/{number}") as file:
            assert file.read() == content
    assert sorted(path.stat().st_size for path in folder.iterdir()) == [17 << 20] * 2
    area.replace("shop/0", b"damaged")
    with pytest.raises(CopyDamaged):
        area.open_local("shop/0", "another version", copies, hashlib.sha256(contents[0]).hexdigest())
    assert len([*folder.iterdir()]) == 2


@pytest.mark.bucket
def test_collectors_have_the_same_releases(two: list[Server]) -> None:
    first, second = two
    first.start()
    for service in ("default", "shop", "search"):
        assert first.submit(profile_of("a"), query={"service": service}).status_code == 204
    second.start()
    assert second.merge().content == first.merge().content
    for service in ("default", "shop", "search"):
        made = at_once(*(lambda server=server: server.ask("/v1/release", service=service) for server in two))  # noqa: B023
        assert [answer.status_code for answer in made] == [200, 200], [answer.text for answer in made]
        assert made[0].content == made[1].content
        assert {answer.headers["PGO-Release"] for answer in made} == {"1"}
        assert len(first.ask("/v1/releases", service=service).json()["releases"]) == 1
    assert first.submit(profile_of("b")).status_code == 204
    assert first.releases(method="POST").status_code == 201
    assert listed(second) == listed(first)
    assert tally(second.release().content) == {"a": 1, "b": 1}
    assert second.releases("/1/pin", "PUT").status_code == 200
    assert state(first) == state(second) == ([2, 1], 1, True)
    folded = at_once(*(lambda server=server: server.release(format_="folded") for server in two))
    assert folded[0].content == folded[1].content
    assert first.releases("/1/pin", "DELETE").status_code == 200
    assert state(second) == ([2, 1], 1, False)
    second.stop()
    shutil.rmtree(second.data)
    second.start()
    assert listed(second) == listed(first)
    assert not second.events("unknown file ignored")


@pytest.mark.bucket
def test_collectors_have_the_same_start_lines(two: list[Server]) -> None:
    for server in two:
        server.start()
    first, second = two
    uploaded = at_once(
        lambda: test_symbols.upload(first, test_symbols.symbols(BUILD, f=10)),
        lambda: test_symbols.upload(second, test_symbols.symbols(BUILD, g=20)),
    )
    assert [answer["status"] for answer in uploaded] == [200, 200]
    for server in two:
        assert_exported(export(server, ebpf("shop", test_symbols.STACK, time.time_ns() + LATER)))
        assert ("cpu", {"start_lines": "symbols"}) in stored(server, "shop")
        report = server.ask("/v1/report", service="shop").json()
        assert report["joined"]["start_lines"] == 1.0


@pytest.mark.bucket
@test_binaries.pytestmark
def test_collectors_have_the_same_programs(two: list[Server], tmp_path: Path) -> None:
    program, other = (
        test_binaries.built(tmp_path / name, source=SOURCE.replace("i * 3", f"i * {factor}"))
        for name, factor in (("one", 3), ("two", 5))
    )
    profile = test_binaries.profile_of_program(program, 30)
    first, second = two
    first.start()
    assert first.submit(profile, query={"service": "shop"}).status_code == 204
    second.start()
    for each in (program, other):
        assert test_binaries.upload(first, each.read_bytes()).status_code == 200
    assert test_binaries.listed(second) == test_binaries.listed(first)
    expected = test_binaries.by_command(program, [profile], tmp_path)
    for server in two:
        assert server.merge(query=test_binaries.LLVM).content == expected
        assert len([*(server.data / "copies").iterdir()]) == 1
        assert not [*(server.data / "binaries").iterdir()]
    changed = program.read_bytes() + b"\0"
    assert "DELETE" in test_binaries.refused(test_binaries.upload(second, changed), 409)
    assert test_binaries.delete(second, test_binaries.build_id(program)).status_code == 204
    assert test_binaries.builds(first) == [test_binaries.build_id(other)]


@pytest.mark.bucket
def test_a_program_that_one_collector_has_names_functions_on_another_soon(two: list[Server]) -> None:
    first, second = two
    first.start()
    assert first.submit(test_names.bare(test_names.BUILD_ID), query={"service": "shop"}).status_code == 204
    second.start()

    def folded() -> str:
        return second.merge(format_="folded", query={"service": "shop"}).text

    assert test_names.BARE in folded()
    test_names.upload(first, "shop")
    deadline = time.monotonic() + 60
    while test_names.BARE in folded():
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert "main;work" in folded()
