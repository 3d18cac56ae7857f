"""A collector with its blobs in Azure, for which Azurite stands in; `test_bucket` tries call by call."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stacks import EPOCH, profile_of, tally
from tests.interop.azurite import Azurite
from tests.server import Server

pytestmark = pytest.mark.system


@pytest.fixture
def environment(azurite: Azurite) -> dict[str, str]:
    return {"PGOF_STORAGE": f"az://{azurite.new_bucket()}/pgo", "PGOF_CATALOG": "", **azurite.environment}


@pytest.fixture
def server(environment: dict[str, str], tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "azure", environment) as server:
        yield server


def fill(server: Server) -> None:
    for number in range(40):
        profile = profile_of(f"f{number % 7}", time_nanos=EPOCH + number)
        assert server.submit(profile, query={"labels": f"region={number % 3}"}).status_code == 204


def test_merges_are_the_same_bytes_as_of_a_folder(server: Server, tmp_path: Path) -> None:
    with Server(tmp_path / "folder", {"PGOF_STORAGE": "", "PGOF_CATALOG": ""}) as folder:
        for one in (server, folder):
            fill(one)
        assert server.merge().content == folder.merge().content
        assert server.combine().content == folder.combine().content
        assert server.release().content == folder.release().content
        assert server.merge(format_="go").content == folder.merge(format_="go").content


def test_the_container_alone_rebuilds_the_catalog(server: Server) -> None:
    fill(server)
    assert server.combine(query={"labels": "region=1"}).status_code == 200
    before = server.merge().content
    released = server.release().content
    server.kill()
    shutil.rmtree(server.data / "rows")
    server.reindex()
    server.start()
    assert server.merge().content == before
    assert server.release().content == released
    assert server.submit(profile_of("new")).status_code == 204
    assert tally(server.merge().content)["new"] == 1


def test_profiles_are_deleted(server: Server) -> None:
    fill(server)
    assert server.combine().status_code == 200
    server.stop()
    server.environment["PGOF_KEEP_COMBINED_DAYS"] = "1"
    server.start()
    server.wait_for_log("upkeep done")
    assert server.merge().status_code == 404
    server.stop()
    server.reindex()
    server.start()
    assert server.merge().status_code == 404
