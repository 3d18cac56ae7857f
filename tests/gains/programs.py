"""The programs whose gains are measured: their sources, how they are built, and what they are run with."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.gains.debian import sources_of

ROOT = Path(__file__).parents[2]
_WORK = Path(__file__).with_name("work")


@dataclass(frozen=True)
class Program:
    """A program of C, or of Rust.

    `unpack` puts its sources into a folder and returns their paths. One of C is built from all of them by one
    command, with `options` after the flags and `libraries` at the end; one of Rust by cargo in its crate. Its
    arguments are `work` and one of three amounts of it: `training` while profiled, `hertz` times a second,
    `timed` for CPU seconds, and `counted` for instructions. What `answer` matches in its output is the same
    in all builds. `flow` has LLVM's flags for a profile that has counts of lines that weren't sampled, beside
    those of all programs.
    """

    name: str
    version: str
    unpack: Callable[[Path], list[Path]]
    training: int
    timed: int
    counted: int
    work: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    answer: re.Pattern[str] = re.compile(r"(?s).+")
    is_rust: bool = False
    hertz: int = 997
    flow: tuple[str, ...] = ()

    def arguments(self, amount: int) -> tuple[str, ...]:
        """Return the arguments that make it do this amount of work."""
        return *self.work, str(amount)


def _json(folder: Path) -> list[Path]:
    return [Path(shutil.copy(ROOT / "docs" / "tutorial-c" / "json.c", folder))]


def _lua(folder: Path) -> list[Path]:
    sources = sources_of("lua5.4", folder) / "src"
    # A header that the package makes: where this machine's libraries are.
    (sources / "lua5.4-deb-multiarch.h").write_text('#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"\n')
    return [file for file in sorted(sources.glob("*.c")) if file.name != "luac.c"]


def _sqlite(folder: Path) -> list[Path]:
    """Return SQLite's sources in one file, which its makefile writes, and its own benchmark."""
    tree = sources_of("sqlite3", folder)
    for command in (["./configure", "--disable-tcl"], ["make", "sqlite3.c"]):
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [tree / "sqlite3.c", tree / "test" / "speedtest1.c"]


def _logs(folder: Path) -> list[Path]:
    return [Path(shutil.copytree(_WORK / "logs", folder / "logs"))]


PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "json",
            "of [the tutorial](tutorial-c.md)",
            _json,
            training=350,
            timed=20,
            counted=2,
        ),
        Program(
            "lua",
            "Debian's source package lua5.4",
            _lua,
            training=400,
            timed=30,
            counted=4,
            work=(str(_WORK / "work.lua"),),
            # Its hashes begin with the time otherwise.
            options=("-DLUA_USE_POSIX", "-Dluai_makeseed(L)=1u"),
            libraries=("-lm",),
        ),
        Program(
            "sqlite",
            "Debian's source package sqlite3, with its speedtest1",
            _sqlite,
            training=330,
            timed=15,
            counted=5,
            work=("--memdb", "--verify", "--size"),
            options=("-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"),
            libraries=("-lm",),
            answer=re.compile(r"Verification Hash: .*"),
            # Its time is spread over far more lines than that of the others: docs/gains-accounts.md.
            hertz=9973,
            flow=("-hot-callsite-threshold=10000",),
        ),
        Program(
            "logs",
            "a program of ours with Debian's crates regex and serde_json",
            _logs,
            training=300,
            timed=15,
            counted=1,
            is_rust=True,
        ),
    )
}
