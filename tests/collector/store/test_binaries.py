"""Stored programs: the newest are kept, and what is missing or can't be read is named.

The programs and the llvm-symbolizer here are empty shells; `engine/test_binaries` reads real ones.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from operator import itemgetter
from pathlib import Path

import pytest
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.errors import BinaryThere
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import Binaries
from structlog.testing import capture_logs

from tests.collector.engine.test_binaries import LLVM, builds, delete, listed, refused, upload
from tests.collector.small_program import hollow_tools, small_program
from tests.collector.store.test_store import opened
from tests.faults.stacks import DAY, profile_of
from tests.server import Server, bearer

IDS = [f"{number:08d}".encode() for number in range(3)]
PROGRAMS = [small_program(each) for each in IDS]


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    return {"PATH": hollow_tools(tmp_path / "tools")}


def test_what_is_stored_is_never_replaced(tmp_path: Path, tools: dict[str, str]) -> None:
    content = PROGRAMS[0]
    with Server(tmp_path, tools) as server:
        for _ in range(2):
            assert upload(server, content).status_code == 200
        assert "DELETE /v1/binaries/" in refused(upload(server, content + b"\0"), 409)
        (file,) = server.area("binaries").rglob("*.elf")
        assert file.read_bytes() == content
        assert refused(upload(server, content, key=server.merge_key), 403)
        assert server.client.get("/v1/binaries", headers=bearer(server.submit_key)).status_code == 403
        assert "it has no build id" in refused(upload(server, small_program(b"")), 400)
        assert "it has no symbols" in refused(upload(server, small_program(IDS[1], symbols=False)), 400)
        assert builds(server) == [IDS[0].hex()]
        assert not [*(server.data / "incoming").iterdir()]


def test_the_newest_are_kept(tmp_path: Path, tools: dict[str, str]) -> None:
    settings = {"PGOF_BINARIES_KEPT": "2", "PGOF_METRICS_OPEN": "true"}
    with Server(tmp_path / "server", tools | settings) as server:
        # The first one is uploaded again, so that it isn't the oldest.
        for number in (0, 1, 0, 2):
            assert upload(server, PROGRAMS[number]).status_code == 200
        assert builds(server) == [IDS[2].hex(), IDS[0].hex()]
        assert len(server.events("program deleted")) == 1
        assert "\npgo_collector_binaries 2.0\n" in server.client.get("/metrics").text
        server.kill()
        server.environment |= {"PGOF_BINARIES_KEPT": "10", "PGOF_BINARIES_MEGABYTES": "0.000001"}
        server.start()
        for program, id_ in zip(PROGRAMS, IDS, strict=True):
            assert upload(server, program).status_code == 200
            assert builds(server) == [id_.hex()]


@pytest.mark.folder
def test_old_ones_are_deleted(tmp_path: Path, tools: dict[str, str]) -> None:
    with Server(tmp_path, {**tools, "PGOF_BINARY_DAYS": "10"}) as server:
        assert upload(server, PROGRAMS[0]).status_code == 200
        (file,) = server.area("binaries").rglob("*.elf")
        for days, left in ((9, 1), (11, 0)):
            os.utime(file, times=(time.time() - days * 86400,) * 2)
            server.restart()
            server.wait_for_log("upkeep done")
            assert len(listed(server)) == left


@pytest.mark.sqlite
def test_a_backup_and_a_restore_hold_them(tmp_path: Path, tools: dict[str, str]) -> None:
    with Server(tmp_path / "own", tools) as server:
        for program in (PROGRAMS[0], small_program(IDS[0], lines=".comment")):
            assert upload(server, program).status_code == 200
        before = listed(server)
        assert {each["kind"] for each in before} == {"program", "symbols"}
        for _ in range(2):
            copied = server.run("backup", str(tmp_path / "backup"))
            assert copied.returncode == 0, copied.stderr
    other = Server(tmp_path / "other", {**tools, "PGOF_STORAGE": ""})
    restored = other.run("restore", str(tmp_path / "backup"))
    assert restored.returncode == 0, restored.stderr
    with other:
        # It is as if they had been uploaded now.
        after = [{**each, "uploaded": ""} for each in listed(other)]
        assert sorted(after, key=itemgetter("kind")) == sorted(
            ({**each, "uploaded": ""} for each in before), key=itemgetter("kind")
        )


def test_merges_name_those_that_are_there_and_help(tmp_path: Path, tools: dict[str, str]) -> None:
    with Server(tmp_path, tools) as server:
        assert server.submit(profile_of("work"), query={"service": "shop"}).status_code == 204
        assert upload(server, PROGRAMS[0]).status_code == 200
        named, other = LLVM | {"binary": IDS[0].hex()}, LLVM | {"binary": IDS[1].hex()}
        detail = refused(server.merge(query=named), 422)
        assert f"the program with the build id {IDS[0].hex()} doesn't help: " in detail
        assert "GET /v1/binaries" in refused(server.merge(query=other), 404)
        assert "format=llvm" in refused(server.merge(query={"service": "shop", "binary": "none"}), 400)
        assert IDS[1].hex() in refused(delete(server, IDS[1].hex()), 404)
        assert delete(server, IDS[0].hex()).status_code == 204
        assert listed(server) == []
        assert "GET /v1/binaries" in refused(server.merge(query=named), 404)


def test_where_they_are_off_or_cannot_be_read_it_is_said(tmp_path: Path, tools: dict[str, str]) -> None:
    with Server(tmp_path / "server", tools) as server:
        assert upload(server, PROGRAMS[0]).status_code == 200
        assert server.submit(profile_of("work"), query={"service": "shop"}).status_code == 204
        named = LLVM | {"binary": IDS[0].hex()}
        server.kill()
        server.environment["PATH"] = str(tmp_path)
        server.start()
        assert "llvm-symbolizer isn't on PATH" in refused(server.merge(query=named), 501)
        checked = server.run("check").stdout
        assert re.search(
            r"^binaries +warning +1 programs are stored, and can't help the format llvm",
            checked,
            re.MULTILINE,
        )
        server.kill()
        server.environment["PGOF_BINARIES_KEPT"] = "0"
        server.start()
        assert "PGOF_BINARIES_KEPT is 0" in refused(upload(server, b"x"), 501)
        assert "PGOF_BINARIES_KEPT is 0" in refused(server.merge(query=named), 501)
        assert "off: PGOF_BINARIES_KEPT is 0" in server.run("check").stdout


@pytest.mark.any_store
def test_failures_to_delete_and_races_leave_the_program_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with opened(tmp_path / "data") as here:
            settings = Settings(binaries_kept=1, binary_days=10)
            binaries = Binaries(here.store, here.tasks.workers, settings)
            area = here.store.blobs.storage.area("binaries")

            def body(content: bytes) -> Path:
                part = here.store.folder.new_part()
                part.write_bytes(content)
                return part

            async def stored() -> list[str]:
                return [file.stored.build_id for file in await binaries.all("shop")]

            # Another collector stores another program with the build id at the same time.
            with monkeypatch.context() as patch:
                upload = type(area).upload

                def overtaken(storage: FolderStorage, name: str, part: Path) -> None:
                    upload(storage, f"shop/{IDS[0].hex()}-{'0' * 64}.elf", body(PROGRAMS[0] + b"\0"))
                    upload(storage, name, part)

                patch.setattr(type(area), "upload", overtaken)
                with pytest.raises(BinaryThere, match="another program with the build id"):
                    await binaries.add("shop", body(PROGRAMS[0]))
            assert await stored() == [IDS[0].hex()]
            with monkeypatch.context() as patch:
                patch.setattr(
                    type(area), "delete", lambda _, names, **__: dict.fromkeys(names, OSError("EIO"))
                )
                with pytest.raises(OSError, match="EIO"):
                    await binaries.delete("shop", IDS[0].hex())
                with capture_logs() as logged:
                    await binaries.add("shop", body(PROGRAMS[1]))
                assert [line["event"] for line in logged] == ["file not deleted"]
            assert await stored() == [IDS[1].hex(), IDS[0].hex()]
            await binaries.add("shop", body(PROGRAMS[1]))  # which tries again
            assert await stored() == [IDS[1].hex()]
            later = time.time_ns() + 11 * DAY
            assert binaries.too_many(time.time_ns(), 0.5) == ""
            assert binaries.too_many(later, 0.5) == "1 of 1 programs"
            await binaries.delete_old(later)
            assert await stored() == []

    asyncio.run(play())
