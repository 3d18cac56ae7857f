"""The wheel of the merge engine: built with mypyc by each Python that is here, and run beside the schema."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pprof_merge import compress, decode, encode, merge

ROOT = Path(__file__).parents[2]
# Prints whether an interpreter works, and has the headers that a build needs.
_HAS_HEADERS = (
    "import sysconfig, pathlib; print((pathlib.Path(sysconfig.get_path('include')) / 'Python.h').exists())"
)

pytestmark = pytest.mark.exhaustive


def interpreters() -> list[str]:
    """Return the Pythons 3.11 to 3.14 that can build, on PATH or of pyenv; the one of the tests is first."""
    found = {sys.version_info.minor: sys.executable}
    for minor in range(11, 15):
        # On PATH, pyenv has scripts that run only the version which it was told to.
        of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python3.{minor}"))
        for path in filter(None, (shutil.which(f"python3.{minor}"), *map(str, of_pyenv))):
            asked = subprocess.run([path, "-c", _HAS_HEADERS], capture_output=True, text=True, check=False)
            if asked.stdout.strip() == "True":
                found.setdefault(minor, path)
    return [*found.values()]


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    environment = os.environ | variables
    finished = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def environment(python: str, folder: Path) -> Path:
    """Make an environment without packages; return the folder of its programs."""
    run(python, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    return folder / "bin"


def pip(programs: Path, *arguments: str | Path, **variables: str) -> None:
    """Run the pip of the tests for an environment; to give each a pip takes seconds."""
    command = (sys.executable, "-m", "pip", "--python", programs / "python", "--quiet")
    run(*command, "--disable-pip-version-check", *arguments, cwd=programs.parent.parent, **variables)


@pytest.mark.alike(1)
@pytest.mark.parametrize("python", interpreters())
def test_the_wheel_is_compiled_and_merges(python: str, profiles: Path, tmp_path: Path) -> None:
    """Build, install and run the wheel: two environments and a compilation take minutes on a busy machine."""
    source = tmp_path / "merge"
    shutil.copytree(ROOT / "merge", source, ignore=shutil.ignore_patterns("_compiled", "__pycache__"))
    builder = environment(python, tmp_path / "builder")
    locked = ROOT / "requirements" / "build.txt"
    pip(builder, "install", "--no-compile", "--require-hashes", "--no-deps", "-r", locked)
    built = tmp_path / "built"
    # All other tests run what `make setup` has optimized, as the images do; it takes gcc four times as long.
    flags = {"PPROF_MERGE_OPTIMIZE": "0"}
    pip(builder, "wheel", "--no-deps", "--no-build-isolation", "-w", built, source, ROOT / "proto", **flags)
    wheel, schema = sorted(built.iterdir())
    assert not wheel.name.endswith("none-any.whl")

    clean = environment(python, tmp_path / "clean")
    pins = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements/serve.txt").read_text(), re.MULTILINE)
    (tmp_path / "constraints.txt").write_text("\n".join(pins))
    pip(clean, "install", "--no-compile", "--only-binary", ":all:", "-c", "constraints.txt", wheel, schema)
    assert run(clean / "pprof-merge", "--version", cwd=tmp_path).endswith("engine compiled\n")
    files = sorted(profiles.glob("lintd-*"))
    run(clean / "pprof-merge", "-j", "2", "-o", "merged", *files, cwd=tmp_path)
    merged = merge(decode(file.read_bytes()) for file in files)
    assert (tmp_path / "merged").read_bytes() == compress(encode(merged))
