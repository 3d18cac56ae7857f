"""Servers are asked for builds whose functions have no names, in this process: the server is the test's own.

`test_real` has elfutils' server and a collector's own process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from pgo_collector.blobs.storage import BINARIES
from pgo_collector.catalog.leases import NO_LEASE, Lease, Leases, NoLeases
from pgo_collector.debuginfod import fetching
from pgo_collector.debuginfod.fetching import Fetching
from pgo_collector.model.profile_types import CPU
from pgo_collector.model.series import Series
from pgo_collector.serve.app import OpenStore
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import SHARED, Binaries
from pgo_collector.store.locks import Locks
from pgo_collector.submits.commit import Submission
from pprof_proto.profile_pb2 import Profile
from structlog.testing import capture_logs

from tests.collector.debuginfod_server import DebuginfodServer, File, endless, status
from tests.collector.queries.test_names import bare
from tests.collector.serve.test_background import until
from tests.collector.small_program import small_program
from tests.collector.store.test_store import opened, submission

pytestmark = pytest.mark.any_store


def build(number: int) -> bytes:
    return f"{number:08d}".encode()


async def submit(here: OpenStore, service: str, *builds: bytes) -> None:
    """Store a profile of each build, with an address in `work` and one that is in no function."""
    for seconds, each in enumerate(builds, 60):
        profile = Profile.FromString(bare(each, seconds))
        profile.location.add(id=100, mapping_id=1, address=profile.mapping[0].memory_start + 1)
        profile.sample.add(location_id=[100], value=profile.sample[0].value)
        async with here.store.part() as part:
            part.write_bytes(profile.SerializeToString())
            facts = (await submission(here, part)).facts
            await here.commits.add(Submission(part, Series(service, CPU), facts))


@asynccontextmanager
async def fetches(
    here: OpenStore, urls: str, leases: Leases | None = None, **settings: int
) -> AsyncIterator[list[str]]:
    """Ask these servers within the block."""
    outcomes: list[str] = []
    task = Fetching(
        here.store,
        here.tasks,
        here.binaries,
        Locks(leases or NoLeases()),
        Settings(debuginfod_urls=urls, **settings),
        observe=outcomes.append,
    )
    running = asyncio.create_task(task.run())
    try:
        yield outcomes
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.wait([running])


async def add_program(here: OpenStore, service: str, build_id: bytes, lines: str = ".debug_line") -> None:
    async with here.store.part() as part:
        part.write_bytes(small_program(build_id, lines=lines))
        await here.binaries.add(service, part)


async def stored(here: OpenStore) -> list[str]:
    return sorted(file.stored.build_id for file in await here.binaries.all(SHARED))


async def remembered(here: OpenStore, *builds: bytes) -> None:
    """Wait until what came of these builds is in the store; a stop just before that would lose it."""
    storage = here.store.blobs.storage.area(BINARIES)

    def are_there() -> bool:
        content = b""
        with suppress(FileNotFoundError):
            content = storage.read("_debuginfod/answers.json")
        return all(each.hex().encode() in content for each in builds)

    await until(are_there)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PAUSE_SECONDS", 0.05)


def test_a_stripped_program_that_was_uploaded_gets_its_debug_file(tmp_path: Path) -> None:
    async def play() -> None:
        with DebuginfodServer({f"{build(0).hex()}/debuginfo": small_program(build(0))}) as server:
            async with opened(tmp_path) as here:
                await add_program(here, "shop", build(0), ".comment")
                await submit(here, "shop", build(0))
                async with fetches(here, server.url) as outcomes:
                    await until(lambda: outcomes == ["found"])
                    (symbols,) = here.tasks.symbols_of("shop").stored
                    assert symbols.kind != "symbols"
                    await remembered(here, build(0))

    asyncio.run(play())


def test_builds_without_names_get_those_that_servers_have(tmp_path: Path) -> None:
    has_debug_file, has_program, has_neither = (build(number).hex() for number in range(3))
    files = {
        f"{has_debug_file}/debuginfo": small_program(build(0)),
        f"{has_program}/executable": small_program(build(1)),
    }

    async def play() -> None:
        with DebuginfodServer() as empty, DebuginfodServer(files) as server:
            urls = f"{empty.url} {server.url}/"
            async with opened(tmp_path) as here:
                await add_program(here, "shop", build(3))
                # The last two aren't build ids that a server could know.
                builds = build(0), build(1), build(2), build(0), build(3), b"short", bytes(65)
                await submit(here, "shop", *builds)
                async with fetches(here, urls) as outcomes:
                    await until(lambda: len(outcomes) == 3)
                    assert Counter(outcomes) == {"found": 2, "missing": 1}
                    assert await stored(here) == [has_debug_file, has_program]
                    both = [
                        f"{each}/{kind}"
                        for each in (has_program, has_neither)
                        for kind in ("debuginfo", "executable")
                    ]
                    assert sorted(empty.asked) == sorted([f"{has_debug_file}/debuginfo", *both])
                    assert sorted(server.asked) == sorted(empty.asked)
                    # New profiles are looked at, too, and no build is asked for again.
                    await submit(here, "cart", build(5), build(0), build(1), build(2))
                    await until(lambda: len(outcomes) == 4)
                    await remembered(here, *map(build, (0, 1, 2, 5)))
                    assert server.asked[5:] == [f"{build(5).hex()}/debuginfo", f"{build(5).hex()}/executable"]
                # Neither after a restart, nor by another collector, nor if a bound of the disk deletes it.
                await here.binaries.delete(SHARED, has_program)
                del server.asked[:]
                async with fetches(here, urls) as outcomes:
                    await submit(here, "till", build(6), build(1))
                    await until(lambda: len(outcomes) == 1)
                    assert server.asked == [f"{build(6).hex()}/debuginfo", f"{build(6).hex()}/executable"]
                # Other servers are asked for everything.
                async with fetches(here, server.url) as outcomes:
                    await until(lambda: "found" in outcomes)
                    assert await stored(here) == [has_debug_file, has_program]

    asyncio.run(play())


def test_files_that_give_no_names_are_refused(tmp_path: Path) -> None:
    files: dict[bytes, File] = {
        build(0): b"\x7fELF" + bytes(1000),
        build(1): small_program(build(9)),
        build(2): small_program(build(2), symbols=False),
        build(3): b"<html>not found</html>",
        build(4): endless,
        build(5): small_program(build(5))[:-200],
    }

    async def play() -> None:
        served = {f"{each.hex()}/debuginfo": file for each, file in files.items()}
        with DebuginfodServer(served) as server, capture_logs() as log:
            async with opened(tmp_path) as here:
                await submit(here, "shop", *files)
                async with fetches(here, server.url, binary_bytes=100_000) as outcomes:
                    await until(lambda: len(outcomes) == len(files))
                    assert {*outcomes} == {"unusable"}
                    # A program that can be used may be there all the same.
                    server.files |= {f"{build(6).hex()}/debuginfo": b"x"}
                    server.files |= {f"{build(6).hex()}/executable": small_program(build(6))}
                    await submit(here, "cart", build(6))
                    await until(lambda: len(outcomes) == len(files) + 1)
                assert await stored(here) == [build(6).hex()]
                assert not [*here.store.folder.incoming.iterdir()]
        reasons = {each["build_id"]: each["reason"] for each in log if each["event"] == "debug file unusable"}
        assert len(reasons) == len(files) + 1
        assert f"has the build id {build(9).hex()}" in reasons[build(1).hex()]
        assert "no symbols" in reasons[build(2).hex()]
        assert "PGOF_BINARY_BYTES" in reasons[build(4).hex()]

    asyncio.run(play())


def test_a_server_that_fails_rests_and_others_are_asked(tmp_path: Path) -> None:
    async def play() -> None:
        with DebuginfodServer() as failing, DebuginfodServer() as server, capture_logs() as log:
            failing.files = {f"{build(0).hex()}/debuginfo": status(503, ("Retry-After", "3600"))}
            failing.files |= {f"{build(1).hex()}/debuginfo": failing.files[f"{build(0).hex()}/debuginfo"]}
            server.files = {f"{build(1).hex()}/executable": small_program(build(1))}
            async with opened(tmp_path) as here:
                await submit(here, "shop", build(0), build(1))
                async with fetches(here, f"{failing.url} {server.url}") as outcomes:
                    await until(lambda: len(outcomes) == 2)
                    assert sorted(outcomes) == ["failed", "found"]
                    asked = len(failing.asked)
                    assert asked <= 2
                    await submit(here, "cart", build(2))
                    await until(lambda: len(outcomes) == 3)
                    assert outcomes[2] == "failed"  # the one that rests may have it
                    assert len(failing.asked) == asked
                # Where all rest, nothing is asked.
                async with fetches(here, failing.url) as outcomes:
                    await until(lambda: "failed" in outcomes)
                    await submit(here, "till", build(3), build(4))
                    await asyncio.sleep(0.5)
                    assert build(4).hex() not in "".join(failing.asked)
        (reason, *_) = (each["reason"] for each in log if each["event"] == "debug file not fetched")
        assert reason == "status 503"

    asyncio.run(play())


def test_a_service_with_many_builds_leaves_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgo_collector.debuginfod.fetching._BUILDS_PER_HOUR", 3)

    async def play() -> None:
        with DebuginfodServer() as server:
            async with opened(tmp_path) as here:
                await submit(here, "hostile", *map(build, range(10, 16)))
                await submit(here, "shop", build(0))
                async with fetches(here, server.url) as outcomes:
                    await until(lambda: len(outcomes) == 3)
                    await asyncio.sleep(0.5)
                    assert len(outcomes) == 3  # until an hour has passed
                asked = {path.partition("/")[0] for path in server.asked}
                assert len(asked) == 3
                assert build(0).hex() in asked

    asyncio.run(play())


def test_one_collector_at_a_time_asks(tmp_path: Path) -> None:
    class Held:
        """The leases of a catalog in which another collector has that of debuginfod, until it is free."""

        is_free = False

        def take(self, name: str) -> Lease | None:
            return NO_LEASE if self.is_free and name == "debuginfod" else None

    async def play() -> None:
        with DebuginfodServer() as server:
            async with opened(tmp_path) as here:
                await submit(here, "shop", build(0))
                leases = Held()
                async with fetches(here, server.url, leases) as outcomes:
                    await asyncio.sleep(0.3)
                    assert not server.asked
                    leases.is_free = True
                    await until(lambda: outcomes == ["missing"])

    asyncio.run(play())


def test_where_programs_are_not_taken_nothing_is_asked(tmp_path: Path) -> None:
    async def play() -> None:
        with DebuginfodServer() as server:
            async with opened(tmp_path) as here:
                await submit(here, "shop", build(0))
                settings = Settings(debuginfod_urls=server.url, binaries_kept=0)
                binaries = Binaries(here.store, here.tasks.workers, settings)
                locks = Locks(here.store.catalog.database.leases)
                await Fetching(here.store, here.tasks, binaries, locks, settings, observe=print).run()
                assert not server.asked

    asyncio.run(play())
