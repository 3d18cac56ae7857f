"""Fixtures: a release of the commit that is checked out, and Pythons to install it with."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.dist import build

ROOT = Path(__file__).parents[2]
_LOCKS = ("collector", "agent", "build")


@dataclass(frozen=True)
class Release:
    """The files of a release, and wheels of what its packages need."""

    files: Path
    others: Path

    @property
    def offline(self) -> dict[str, str]:
        """Return the variables with which pip finds other packages here, and looks nowhere else."""
        variables = ("NO_INDEX", "DISABLE_PIP_VERSION_CHECK", "NO_COMPILE", "QUIET")
        return {f"PIP_{name}": "1" for name in variables} | {"PIP_FIND_LINKS": str(self.others)}


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command that succeeds; return what it prints."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path, python: str = sys.executable) -> Path:
    """Make an environment of an interpreter; return the folder of its programs."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin"


@pytest.fixture(scope="session", autouse=True)
def _quickly() -> None:
    """Compile the engine without optimizing it, which takes gcc a quarter of the time.

    All other tests run what `make setup` has optimized.
    """
    os.environ["PPROF_MERGE_OPTIMIZE"] = "0"


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release that was built with the Python of the tests, once for all workers of pytest, in a minute."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "release"
    folder.mkdir(exist_ok=True)
    made = Release(folder / "dist", folder / "others")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.others.exists():
            build(made.files, [sys.executable])
            _download(made)
    return made


def _download(release: Release) -> None:
    """Fetch all that the packages of a release need, which pip is told where to find."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    part = release.others.with_suffix(".part")
    locked = [option for name in _LOCKS for option in ("-r", ROOT / "requirements" / f"{name}.txt")]
    command = (*pip, "download", "--no-deps", "--require-hashes", "--dest", part, *locked)
    run(*command, cwd=release.files)
    part.rename(release.others)
