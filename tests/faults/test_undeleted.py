"""Files that can't be deleted: what was asked is done all the same, and they go once they can be deleted."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.faults.stacks import profile_of
from tests.server import Server
from tests.zygote import Zygote

pytestmark = [pytest.mark.folder, pytest.mark.sqlite]

# While the file that TESTS_FAILING names is there, no file below `incoming` can be deleted.
_PROGRAM = """
import errno, os
from tests import zygote
unlink = os.unlink
def failed(path, **rest):
    failing = os.environ.get("TESTS_FAILING", "")
    if "/incoming/" in os.fspath(path) and os.path.lexists(path) and os.path.exists(failing):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    unlink(path, **rest)
os.unlink = failed
zygote.serve_forks()
"""


@pytest.fixture(scope="module")
def failing_zygote() -> Iterator[Zygote]:
    """The process that collectors are forked from which can't delete parts while a file is there."""
    zygote = Zygote(program=_PROGRAM)
    yield zygote
    zygote.close()


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    return tmp_path / "failing"


@pytest.fixture
def server(tmp_path: Path, failing: Path, failing_zygote: Zygote) -> Iterator[Server]:
    with Server(tmp_path / "home", {"TESTS_FAILING": str(failing)}, failing_zygote) as server:
        yield server


def with_many_strings(profile: Profile) -> None:
    profile.string_table.extend(f"{number:0100}".encode() for number in range(1000))


def test_requests_whose_files_cannot_be_deleted(server: Server, failing: Path) -> None:
    failing.touch()
    big = gzip.compress(edited(profile_of("c"), with_many_strings), 0)
    assert len(big) > 64 << 10  # so it goes to a file
    for body in (profile_of("a"), profile_of("b"), big):
        assert server.submit(body).status_code == 204
    merged = server.merge()
    assert merged.status_code == 200
    assert server.client.get("/readyz").json()["fails"] == {"store": "Input/output error"}
    assert server.submit(b"no profile" * 10_000).status_code == 400
    parts = [*(server.data / "incoming").iterdir()]
    assert len(parts) >= 4
    logged = server.events("file not deleted")
    assert {line["file"] for line in logged} == {str(part) for part in parts}
    assert {line["reason"] for line in logged} == {"Input/output error"}
    assert not server.events("unexpected error")

    failing.unlink()
    for name in map(str, range(len(parts))):
        assert server.submit(profile_of(name)).status_code == 204
    assert not [*(server.data / "incoming").iterdir()]


def test_a_start_goes_on_with_parts_that_cannot_be_deleted(server: Server, failing: Path) -> None:
    server.stop()
    left = server.data / "incoming" / "left.part"
    left.touch()
    failing.touch()
    server.start()
    assert server.submit(profile_of("a")).status_code == 204
    assert left.exists()
    failing.unlink()
    assert server.submit(profile_of("b")).status_code == 204
    assert server.submit(profile_of("c")).status_code == 204
    assert not left.exists()
