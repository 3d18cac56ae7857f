"""Builds of one program, without a profile and with several, and whether they may be compared.

clang writes the command line into each program (`-frecord-command-line`), so the programs themselves say how
they were built.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from elftools.elf.elffile import ELFFile

from tests.gains.programs import Program

# Those of the C tutorial, and what makes the program say how it was built.
FLAGS = (
    "-O2",
    "-g",
    "-fdebug-info-for-profiling",
    "-fno-omit-frame-pointer",
    "-Wl,--build-id=sha1",
    "-frecord-command-line",
)
# For a profile that has counts of lines that weren't sampled. Calls that never run are inlined if they are as
# small as those that an instrumented build inlines before it counts; LLVM's default is 45.
_FLOW = ("-sample-profile-use-profi", "-inline-cold-callsite-threshold=75")
# What may differ between builds that are compared: the profile, how it is read, and the names of files that
# are written, some of which clang 19 adds.
_LLVM = "|".join((*_FLOW, r"-hot-callsite-threshold=\d+"))
_OF_THE_PROFILE = re.compile(
    rf" (-o \S+|-dumpdir \S+|-fprofile-(?:\w+-)?use=[^\s\"]+|-mllvm (?:{_LLVM}))(?=[ \"]|$)"
)
_COMPILER, _COMMAND = ".comment", ".GCC.command.line"


class NotComparableError(Exception):
    """Two programs that differ in more than their profile, or that don't say how they were built."""


class Toolchain:
    """A clang, with the tools of its own version of LLVM."""

    def __init__(self, clang: str) -> None:
        found = shutil.which(clang)
        if found is None:
            raise FileNotFoundError(f"there is no {clang}; install clang and llvm")
        self._folder = Path(found).resolve().parent
        path = f"{self._folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path}
        version = re.search(r"version (\d+)", self.run(["clang", "--version"]))
        assert version is not None
        self.version = int(version[1])

    def run(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> str:
        """Return what a command prints, with LLVM's tools and this workspace's on its path."""
        every = {**self.environment, **(environment or {})}
        done = subprocess.run(command, env=every, cwd=folder, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.stderr.write(done.stderr)
            done.check_returncode()
        return done.stdout

    def merge_counts(self, raw: Path) -> Path:
        """Return the profile that an instrumented program's counts make, beside them."""
        merged = raw.with_suffix(".profdata")
        self.run(["llvm-profdata", "merge", "-o", merged, raw])
        return merged


class Builder(Protocol):
    """Builds one program from one tree of sources, with flags that differ in the profile alone.

    `compiler` is its name and version, `flags` are those of all builds, and `flow` those for a profile that
    has counts of lines that weren't sampled.
    """

    toolchain: Toolchain
    compiler: str
    flags: str
    flow: tuple[str, ...]

    def build(self, name: str, profile: Path | None = None, *, flow: bool = False) -> Path:
        """Return the program, built with this sampled profile or with none."""

    def instrumented(self) -> Path:
        """Return the program built with the counts of an instrumented one that did the training's work."""

    def shared_flags(self, programs: Mapping[str, Path]) -> str:
        """Return what all programs were built with. Raises NotComparableError if that differs."""


class ClangBuilder:
    """Builds a program of C by one command."""

    def __init__(self, program: Program, toolchain: Toolchain, folder: Path) -> None:
        self.toolchain = toolchain
        self.compiler = f"clang {toolchain.version}"
        self.flags = " ".join((*FLAGS, *program.options))
        self.flow = flow_flags(toolchain, program.flow)
        self._program, self._folder = program, folder
        (folder / "sources").mkdir()
        self.sources = program.unpack(folder / "sources")

    def build(self, name: str, profile: Path | None = None, *, flow: bool = False) -> Path:
        """Build as `Builder` documents."""
        guided = [] if profile is None else [f"-fprofile-sample-use={profile}"]
        return self._build(name, *guided, *(self.flow if flow else ()))

    def instrumented(self) -> Path:
        """Build as `Builder` documents."""
        counting, raw = self._build("counting", "-fprofile-generate"), self._folder / "counts.profraw"
        self.toolchain.run(
            [str(counting), *self._program.arguments(self._program.training)], {"LLVM_PROFILE_FILE": str(raw)}
        )
        return self._build("instrumented", f"-fprofile-use={self.toolchain.merge_counts(raw)}")

    def shared_flags(self, programs: Mapping[str, Path]) -> str:
        """Compare what the programs say of themselves, as `Builder` documents."""
        return shared_flags(programs)

    def _build(self, name: str, *flags: str) -> Path:
        binary, program = self._folder / name, self._program
        # Profiles of other versions of LLVM don't warn of all that they lack; sources of others warn a lot.
        command = ["clang", "-w", *FLAGS, *program.options, *flags, "-o", str(binary)]
        self.toolchain.run([*command, *map(str, self.sources), *program.libraries])
        return binary


def flow_flags(toolchain: Toolchain, of_program: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return clang's flags for a profile that has counts of lines that weren't sampled.

    `of_program` are LLVM's flags that a program has besides.
    """
    used = _FLOW if toolchain.version >= 14 else _FLOW[1:]
    return tuple(word for flag in (*used, *of_program) for word in ("-mllvm", flag))


def shared_flags(programs: Mapping[str, Path]) -> str:
    """Return the commands that all programs were built with, less what says where their profiles are.

    Programs of many files have many commands, of which one is returned. Raises NotComparableError if programs
    differ in them.
    """
    commands: dict[str, tuple[str, frozenset[str]]] = {}
    for name, program in programs.items():
        commands[name] = _built_with(program)
    (first, (compiler, command)), *others = commands.items()
    for name, (other_compiler, other_command) in others:
        if other_compiler != compiler:
            raise NotComparableError(f"{first} was built by {compiler}, and {name} by {other_compiler}")
        if other_command != command:
            only = " ".join(sorted(_words(command) ^ _words(other_command)))
            raise NotComparableError(f"{first} and {name} were built with different flags: {only}")
    return min(command)


def _built_with(program: Path) -> tuple[str, frozenset[str]]:
    """Return the compiler of a program, and its command lines without what is about the profile."""
    with program.open("rb") as file:
        elf = ELFFile(file)
        sections = {name: elf.get_section_by_name(name) for name in (_COMPILER, _COMMAND)}
        strings = {
            name: {part.decode() for part in section.data().split(b"\0") if part} if section else set()
            for name, section in sections.items()
        }
    if not strings[_COMMAND]:
        raise NotComparableError(f"{program} doesn't say how it was built: build it with {FLAGS[-1]}")
    lines = frozenset(_without_profile(line) for line in strings[_COMMAND])
    return ", ".join(sorted(strings[_COMPILER])), lines


def _without_profile(command: str) -> str:
    # A word with spaces in it has them escaped: PostgreSQL compiles its own flags in, as text.
    previous, command = None, command.replace("\\ ", " ")
    while previous != command:
        previous, command = command, _OF_THE_PROFILE.sub("", command)
    return command


def _words(commands: frozenset[str]) -> set[str]:
    return {word for command in commands for word in command.split(" ")}
