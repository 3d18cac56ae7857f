"""Gains of Go servers: real instances are loaded and scraped, and what can't be had is named."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.gains import go_servers, postgres, python, servers
from tests.gains.debian import SourcePackage, needed, unpack_go
from tests.gains.go import GoSource
from tests.gains.go_programs import go_programs
from tests.gains.page import KINDS, NONE, OURS
from tests.gains.programs import PROGRAMS, ROOT
from tests.oracle.oracle import GO


def use_the_usual_cache(folder: Path) -> None:
    """Let builds into a folder have Go's library from there: what they cost isn't asked here."""
    asked = subprocess.run([GO, "env", "GOCACHE"], check=True, capture_output=True, text=True)
    (folder / "go-cache").symlink_to(asked.stdout.strip())


@pytest.mark.system("wrk", "openssl", "apt-get", "dpkg-deb")
@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.alike(1, family="measuring suites")
def test_a_server_is_profiled_and_measured(tmp_path: Path) -> None:
    """Takes a quarter of a minute: packages are fetched, and Go compiles goldmark and chroma."""
    pages = go_servers.Pages(seconds=1)
    pages.source.unpack()
    use_the_usual_cache(tmp_path)
    built = pages.source.build(tmp_path / "none")
    assert built.cost.size > 1_000_000
    assert built.cost.cpu > 0
    pages.prepare(tmp_path)
    (tmp_path / "1").mkdir()
    taken = servers.profile_servers(pages, built.binary, tmp_path / "1", seconds=6)
    profile = Profile.FromString(gzip.decompress(taken.merged.read_bytes()))
    functions = {profile.string_table[function.name].decode() for function in profile.function}
    # What each of the three loads needs: Markdown, sources, and the list in a template.
    for package in ("yuin/goldmark", "alecthomas/chroma", "html/template", "compress/flate", "crypto/"):
        assert any(package in name for name in functions), package
    assert taken.guide.stat().st_size > 0
    assert taken.samples == sum(sample.value[0] for sample in profile.sample)
    assert 0 < taken.hottest < 1
    seconds, latencies = servers.in_turns(pages, [built, built], 1, tmp_path)
    assert all(0 < each < 600 for each in seconds[NONE] + seconds[OURS])
    assert all(0 < latencies[name].p50 <= latencies[name].p99 for name in (NONE, OURS))


def test_what_is_not_installed_is_named() -> None:
    with pytest.raises(
        FileNotFoundError, match="no such-program, such-tool: apt install such-program such-tool"
    ):
        needed("sh", "such-program", "such-tool")


@pytest.mark.system("apt-get")
def test_a_package_that_apt_does_not_know_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"golang-such-package-dev.*apt-get update"):
        unpack_go(["golang-such-package-dev"])


@pytest.mark.system("apt-get", "dpkg-deb")
@pytest.mark.exhaustive
def test_a_source_package_is_built_from_as_a_part_of_gopath(tmp_path: Path) -> None:
    def add_a_command(sources: Path) -> None:
        (sources / "command").mkdir()
        imported = 'import "github.com/mattn/go-isatty"'
        text = f"package main\n\n{imported}\n\nfunc main() {{ print(isatty.IsTerminal(0)) }}\n"
        (sources / "command" / "main.go").write_text(text)

    name, path = "golang-github-mattn-go-isatty", "github.com/mattn/go-isatty"
    package = SourcePackage(name, path, "testify", add_a_command)
    shutil.rmtree(package.gopath, ignore_errors=True)
    source = GoSource("isatty", "", ROOT, f"{package.path}/command", origin=package)
    source.unpack()
    use_the_usual_cache(tmp_path)
    built = source.build(tmp_path / "isatty").binary
    said = subprocess.run([built], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert said.stderr == b"false"


def test_each_program_of_the_table_can_be_measured() -> None:
    known = {*PROGRAMS, *go_programs(), *go_servers.SERVERS, postgres.NAME, python.NAME}
    assert {*go_servers.SERVERS} <= {*KINDS} <= known


@pytest.mark.parametrize(("text", "milliseconds"), [("527.00us", 0.527), ("1.55ms", 1.55), ("2.01s", 2010)])
def test_times_of_wrk_are_read(text: str, milliseconds: float) -> None:
    assert go_servers.milliseconds(text) == pytest.approx(milliseconds)
