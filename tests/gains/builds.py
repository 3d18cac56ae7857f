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
# What may differ between builds that are compared: the profile, the pass that reads it, and the names of
# files that are written, one of which clang 19 adds.
_OF_THE_PROFILE = re.compile(
    r" (-o \S+|-dumpdir \S+|-fprofile-(?:sample-)?use=\S+|-mllvm -sample-profile-use-profi)(?= |$)"
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

    def run(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
        """Return what a command prints, with LLVM's tools and this workspace's on its path."""
        every = {**self.environment, **(environment or {})}
        done = subprocess.run(command, env=every, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.stderr.write(done.stderr)
            done.check_returncode()
        return done.stdout

    @property
    def flow(self) -> tuple[str, ...]:
        """Return the flags for a profile that has counts of lines that weren't sampled."""
        return () if self.version < 14 else ("-mllvm", "-sample-profile-use-profi")


class Builder:
    """Builds a program from one tree of sources."""

    def __init__(self, program: Program, toolchain: Toolchain, folder: Path) -> None:
        self._program, self._toolchain, self._folder = program, toolchain, folder
        (folder / "sources").mkdir()
        self._sources = program.unpack(folder / "sources")

    def build(self, name: str, *flags: str) -> Path:
        """Return the program, built with these flags beside those that all builds have."""
        binary = self._folder / name
        program = self._program
        # Profiles of other versions of LLVM don't warn of all that they lack; sources of others warn a lot.
        command = ["clang", "-w", *FLAGS, *program.options, *flags, "-o", str(binary)]
        self._toolchain.run([*command, *map(str, self._sources), *program.libraries])
        return binary

    def instrumented(self) -> Path:
        """Return the program built with the counts of an instrumented one that did the training's work."""
        counting = self.build("counting", "-fprofile-generate")
        raw, merged = self._folder / "counts.profraw", self._folder / "counts.profdata"
        self._toolchain.run([str(counting), *self._program.training], {"LLVM_PROFILE_FILE": str(raw)})
        self._toolchain.run(["llvm-profdata", "merge", "-o", merged, raw])
        return self.build("instrumented", f"-fprofile-use={merged}")


def shared_flags(programs: Mapping[str, Path]) -> str:
    """Return the command that all programs were built with, less what says where their profiles are.

    Raises NotComparableError if there is more than one.
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
    (line,) = command
    return line


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
    previous = None
    while previous != command:
        previous, command = command, _OF_THE_PROFILE.sub("", command)
    return command


def _words(commands: frozenset[str]) -> set[str]:
    return {word for command in commands for word in command.split(" ")}
