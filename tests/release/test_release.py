"""The files of a release: the same each time, with sums and lists, and an engine that merges as this one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from pprof_merge import compress, decode, encode, merge

from tests.release.conftest import ROOT, Release, environment, run
from tools import dist
from tools.dist import DISTRIBUTIONS, CannotBuild, build, interpreters

# Not `long`: each worker of pytest would begin with one, and wait until another has built the release.
pytestmark = [pytest.mark.exhaustive, pytest.mark.system("npm")]
PROFILES = sorted((ROOT / "tests" / "testdata" / "profiles").glob("lintd-*.pb.gz"))


@pytest.mark.alike(1, family="a release")
def test_two_builds_of_a_commit_have_the_same_bytes(release: Release, tmp_path: Path) -> None:
    build(tmp_path / "again", [sys.executable])
    again = {file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()}
    first = {file.name: file.read_bytes() for file in release.files.iterdir()}
    assert first.keys() == again.keys()
    assert [name for name in first if first[name] != again[name]] == []


def test_each_distribution_has_an_sdist_and_a_wheel_for_any_python_with_the_licence(release: Release) -> None:
    sums = run("sha256sum", "--check", "SHA256SUMS", cwd=release.files).splitlines()
    assert {line.partition(":")[0] for line in sums} == {
        file.name for file in release.files.iterdir() if file.name != "SHA256SUMS"
    }
    for distribution in DISTRIBUTIONS.values():
        name = distribution.replace("-", "_")
        (sdist,) = release.files.glob(f"{name}-*.tar.gz")
        (wheel,) = release.files.glob(f"{name}-*-py3-none-any.whl")
        with tarfile.open(sdist) as archive:
            assert any(member.endswith("/LICENSE") for member in archive.getnames())
        with zipfile.ZipFile(wheel) as archive:
            assert any(member.endswith("licenses/LICENSE") for member in archive.namelist())
    (wheel,) = release.files.glob("pgo_collector-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "pgo_collector/ui/speedscope/index.html" in archive.namelist()


@pytest.mark.alike(1, family="a release")
@pytest.mark.parametrize("python", interpreters())
def test_the_engine_is_compiled_for_each_python_and_for_older_systems(
    release: Release, python: str, tmp_path: Path
) -> None:
    """Another interpreter than that of the tests compiles the engine here, for half a minute."""
    files = release.files
    if python != sys.executable:
        files = tmp_path / "dist"
        dist.Release(tmp_path / "tree", files).compile_engine(python)
    (wheel,) = files.glob("pprof_merge-*manylinux*.whl")
    assert "manylinux2014_x86_64" in wheel.name  # glibc 2.17, of 2012
    with zipfile.ZipFile(wheel) as archive:
        assert "pprof_merge/_compiled/installed/trained" in archive.namelist()
    programs = environment(tmp_path / "clean", python)
    pins = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements/collector.txt").read_text(), re.MULTILINE)
    (tmp_path / "constraints.txt").write_text("\n".join(pins))
    how = ("--quiet", "--no-compile", "--only-binary", ":all:", "--constraint", "constraints.txt")
    run(programs / "pip", "install", *how, "--find-links", release.files, wheel, cwd=tmp_path)
    assert run(programs / "pprof-merge", "--version", cwd=tmp_path).endswith("engine compiled\n")
    run(programs / "pprof-merge", "-j", "2", "-o", "merged", *PROFILES, cwd=tmp_path)
    merged = merge(decode(file.read_bytes()) for file in PROFILES)
    assert (tmp_path / "merged").read_bytes() == compress(encode(merged))


@pytest.mark.parametrize("distribution", ["pgo-collector", "pgo-agent"])
def test_a_list_has_what_the_lock_has(release: Release, distribution: str) -> None:
    (file,) = release.files.glob(f"{distribution}-*.cdx.json")
    listed = json.loads(file.read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert listed["metadata"]["component"]["name"] == distribution
    found = {component["purl"].partition("@")[0]: component["version"] for component in listed["components"]}
    lock = release.files / f"requirements-{distribution.partition('-')[2]}.txt"
    locked = dict(line.split(" ")[0].split("==") for line in lock.read_text().splitlines() if "==" in line)
    ours = {"pkg:pypi/pprof-proto", "pkg:pypi/pprof-merge", "pkg:npm/speedscope"}
    assert {f"pkg:pypi/{name}": version for name, version in locked.items()} == {
        purl: version for purl, version in found.items() if purl not in ours
    }
    assert ours & found.keys() == (ours if distribution == "pgo-collector" else {"pkg:pypi/pprof-proto"})


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(CannotBuild, match="has other files than those of a release"):
        build(tmp_path, [])
    assert (tmp_path / "mine").exists()


def test_the_commit_is_in_what_is_built(release: Release) -> None:
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    (wheel,) = release.files.glob("pprof_proto-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert commit in archive.read("pprof_proto/release.py").decode()
