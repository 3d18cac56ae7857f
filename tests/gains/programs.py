"""The programs whose gains are measured: their sources, how they are built, and what they are run with."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_WORK = Path(__file__).with_name("work")
_TARGETS = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)"


@dataclass(frozen=True)
class Program:
    """A program of C.

    `unpack` puts its sources into a folder and returns their paths. It is built from all of them by one
    command, with `options` after the flags and `libraries` at the end. It is run with one of three amounts of
    the same work: `training` while profiled, `timed` for CPU seconds, and `counted` for instructions. What
    `answer` matches in its output is the same in all builds.
    """

    name: str
    version: str
    unpack: Callable[[Path], list[Path]]
    training: tuple[str, ...]
    timed: tuple[str, ...]
    counted: tuple[str, ...]
    options: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    answer: re.Pattern[str] = re.compile(r"(?s).+")


def _json(folder: Path) -> list[Path]:
    return [Path(shutil.copy(ROOT / "docs" / "tutorial-c" / "json.c", folder))]


def _lua(folder: Path) -> list[Path]:
    sources = _debian("lua5.4", folder) / "src"
    # A header that the package makes: where this machine's libraries are.
    (sources / "lua5.4-deb-multiarch.h").write_text('#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"\n')
    return [file for file in sorted(sources.glob("*.c")) if file.name != "luac.c"]


def _sqlite(folder: Path) -> list[Path]:
    """Return SQLite's sources in one file, which its makefile writes, and its own benchmark."""
    tree = _debian("sqlite3", folder)
    for command in (["./configure", "--disable-tcl"], ["make", "sqlite3.c"]):
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [tree / "sqlite3.c", tree / "test" / "speedtest1.c"]


def _lua_work(amount: int) -> tuple[str, ...]:
    return str(_WORK / "work.lua"), str(amount)


def _sqlite_work(size: int) -> tuple[str, ...]:
    return "--memdb", "--verify", "--size", str(size)


PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "json",
            "of [the tutorial](tutorial-c.md)",
            _json,
            training=("350",),
            timed=("20",),
            counted=("2",),
        ),
        Program(
            "lua",
            "Debian's source package lua5.4",
            _lua,
            training=_lua_work(400),
            timed=_lua_work(30),
            counted=_lua_work(4),
            # Its hashes begin with the time otherwise.
            options=("-DLUA_USE_POSIX", "-Dluai_makeseed(L)=1u"),
            libraries=("-lm",),
        ),
        Program(
            "sqlite",
            "Debian's source package sqlite3, with its speedtest1",
            _sqlite,
            training=_sqlite_work(60),
            timed=_sqlite_work(15),
            counted=_sqlite_work(5),
            options=("-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"),
            libraries=("-lm",),
            answer=re.compile(r"Verification Hash: .*"),
        ),
    )
}


def _debian(package: str, folder: Path) -> Path:
    """Unpack a source package of the distribution that apt is configured for, and return its folder."""
    apt = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial", "parts"):
        (apt / part).mkdir(parents=True)
    described = ["apt-get", "indextargets", "--format", _TARGETS, "Created-By: Packages", "Origin: Debian"]
    lines = set[str]()
    for target in _said(described).splitlines():
        uri, release, component = target.split("|")
        lines.add(f"deb-src {uri} {release} {component}\n")
    if not lines:
        raise FileNotFoundError("apt knows no sources of Debian: call apt-get update")
    (apt / "sources.list").write_text("".join(sorted(lines)))
    options = (
        f"Dir::Etc::SourceList={apt}/sources.list",
        f"Dir::Etc::SourceParts={apt}/parts",
        f"Dir::State::Lists={apt}/lists",
        f"Dir::Cache={apt}/cache",
        "APT::Sandbox::User=root",
    )
    get = ["apt-get", "--quiet", "--quiet", *(f"--option={option}" for option in options)]
    for command in (["update"], ["source", package]):
        subprocess.run([*get, *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (tree,) = (path.parent for path in folder.glob("*/debian"))
    return tree


def _said(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
