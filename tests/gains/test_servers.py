"""Gains of Go servers: real instances are loaded and scraped, and what can't be had is named."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.gains import servers
from tests.gains.debian import needed, unpack_go
from tests.gains.go import go_programs
from tests.gains.page import KINDS, NONE, OURS
from tests.oracle.oracle import GO


@pytest.mark.system("wrk", "openssl", "apt-get", "dpkg-deb")
@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.alike(1, family="measuring suites")
def test_a_server_is_profiled_and_measured(tmp_path: Path) -> None:
    """Takes a quarter of a minute: packages are fetched, and Go compiles goldmark and chroma."""
    pages = servers.Pages(seconds=1)
    pages.source.unpack()
    # What a build costs isn't asked here, so it has Go's library from the usual cache.
    asked = subprocess.run([GO, "env", "GOCACHE"], check=True, capture_output=True, text=True)
    (tmp_path / "go-cache").symlink_to(asked.stdout.strip())
    built = pages.source.build(tmp_path / "none")
    assert built.cost.size > 1_000_000
    assert built.cost.cpu > 0
    pages.prepare(tmp_path)
    (tmp_path / "1").mkdir()
    merged, guide = servers.profile_servers(pages, built.binary, tmp_path / "1", seconds=2)
    profile = Profile.FromString(gzip.decompress(merged.read_bytes()))
    functions = {profile.string_table[function.name].decode() for function in profile.function}
    # What each of the three loads needs: Markdown, sources, and the list in a template.
    for package in ("yuin/goldmark", "alecthomas/chroma", "html/template", "compress/flate", "crypto/"):
        assert any(package in name for name in functions), package
    assert guide.stat().st_size > 0
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


def test_each_program_has_a_kind() -> None:
    assert {*go_programs(), *servers.SERVERS} <= {*KINDS}


@pytest.mark.parametrize(("text", "milliseconds"), [("527.00us", 0.527), ("1.55ms", 1.55), ("2.01s", 2010)])
def test_times_of_wrk_are_read(text: str, milliseconds: float) -> None:
    assert servers.milliseconds(text) == pytest.approx(milliseconds)
