"""Our command writes what `go tool pprof -symbolize=none -proto` writes, for files in any order.

The first run of `go tool pprof` on a machine builds it, which takes about 20 s.
"""

from __future__ import annotations

import gzip
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.merge.command.installed import pprof_merge
from tests.merge.differential import canonical, read
from tests.oracle.builder import World, seeded
from tests.oracle.content import content, difference
from tests.oracle.oracle import go_environment, go_root, go_tool

if TYPE_CHECKING:
    from pathlib import Path


def pprof(profiles: list[bytes], folder: Path) -> bytes:
    """Return the merge that `go tool pprof` makes of the profiles in this order, as bare protobuf."""
    for number, profile in enumerate(profiles):
        (folder / f"{number:03}").write_bytes(profile)
    names = [f"{number:03}" for number in range(len(profiles))]
    # Do not use settings or binaries of this machine's user.
    environment = {**go_environment(), "PPROF_TMPDIR": str(folder), "PPROF_BINARY_PATH": os.devnull}
    command: list[str | Path] = [go_tool("pprof"), "-symbolize=none", "-proto", "-output=merged", *names]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return gzip.decompress((folder / "merged").read_bytes())


def check_as_pprof(profiles: list[bytes], folder: Path) -> None:
    theirs = pprof(canonical(profiles), folder)
    finished = pprof_merge(*(folder / f"{number:03}" for number in reversed(range(len(profiles)))))
    assert finished.returncode == 0, finished.stderr
    ours = gzip.decompress(finished.stdout)
    assert difference(content(ours), content(theirs)) == ""
    assert ours == theirs


@pytest.mark.parametrize("pattern", ["*", "*lab-*", "compile-*"])
def test_real_profiles(pattern: str, profiles: Path, tmp_path: Path) -> None:
    check_as_pprof(read(profiles, f"{pattern}.gz"), tmp_path)


def test_the_compilers_own_profile(profiles: Path, tmp_path: Path) -> None:
    default = go_root() / "src/cmd/compile/default.pgo"
    check_as_pprof([default.read_bytes(), *read(profiles, "compile-*")], tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_generated_profiles(seed: int, tmp_path: Path) -> None:
    random = seeded(seed)
    world = World(random)
    # Avoid what Go's command does besides merging: it drops frames by the profile's expressions, adds a
    # mapping if there is none, and merges sample types with one name.
    while world.remarks or not world.binaries or len(set(world.sample_types)) < len(world.sample_types):
        world = World(random)
    check_as_pprof([world.profile() for _ in range(4)], tmp_path)
