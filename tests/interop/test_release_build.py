"""A pipeline that builds with the release: nothing is compiled again until there is reason to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.go_toolchain import go
from tests.server import Server

OTHER_PROGRAM = sorted((Path(__file__).parents[1] / "testdata" / "profiles").glob("compile-*.pb.gz"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "server", {"PGOF_RELEASE_CHECK_SECONDS": "0"}) as server:
        yield server


@pytest.mark.exhaustive
@pytest.mark.alike(1, family="Go compiles its library")
@pytest.mark.long
def test_what_is_built_is_cached_until_there_is_a_new_release(server: Server, tmp_path: Path) -> None:
    """Takes half a minute: with each of two profiles Go compiles all of its library that the program uses."""
    plain, program, profile = (tmp_path / name for name in ("plain", "program", "default.pgo"))

    def build_with_the_release() -> tuple[str, list[str]]:
        """The number of the release, and the packages that Go compiles: it names those that aren't cached."""
        answer = server.release()
        assert answer.status_code == 200, answer.text
        profile.write_bytes(answer.content)
        # Nothing is optimized: it takes a third of the time, and has no part in what is cached.
        compiled = go("build", "-v", "-gcflags=all=-N -l", f"-pgo={profile}", "-o", program).split()
        return answer.headers["PGO-Release"], compiled

    def submit_a_run() -> None:
        # So many samples that runs are much more alike than a release has to be.
        subprocess.run([plain, tmp_path / "cpu.pb.gz", "3"], check=True, stdout=subprocess.DEVNULL)
        assert server.submit((tmp_path / "cpu.pb.gz").read_bytes()).status_code == 204

    go("build", "-pgo=off", "-o", plain)
    for _ in "12":
        submit_a_run()
    number, compiled = build_with_the_release()
    assert number == "1"
    assert {"runtime", "fmt", "example.test/workload"} <= {*compiled}

    merge = server.merge().content
    for _ in "12":
        submit_a_run()
        built = program.read_bytes()
        assert server.merge().content != merge
        assert build_with_the_release() == ("1", [])
        assert program.read_bytes() == built

    for file in OTHER_PROGRAM:
        assert server.submit(file.read_bytes()).status_code == 204
    number, compiled = build_with_the_release()
    assert number == "2"
    assert {"runtime", "fmt", "example.test/workload"} <= {*compiled}
