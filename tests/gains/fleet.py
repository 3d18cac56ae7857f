"""Questions of those who profile a fleet, answered with real Go programs: a table of docs/gains.md.

May services share one profile? Does the last release's profile do? Does trimming to what Go's compiler reads
lose anything? Should each instance count alike? Are ten samples enough, which is asked of other programs too,
and has a table of its own? The answers are executed instructions that builds save.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Protocol

from elftools.elf.elffile import ELFFile

from tests.bench import machine, report
from tests.bench.measure import progress
from tests.bench.report import Section
from tests.gains.costs import at_once
from tests.gains.curve import rows_by_samples, section_by_samples
from tests.gains.debian import UNPACKED, needed
from tests.gains.go import GoProgram, profiles_of, submit
from tests.gains.page import INTRODUCTION
from tests.oracle.oracle import GO, go_environment
from tests.server import Server, bearer

NAME = "fleet"
TITLE = "What a fleet asks"
# Programs, and modules of which an earlier version is the last release.
_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "esbuild": ("github.com/evanw/esbuild@v0.16.17",),
    "glua": (),
    "markdown": ("github.com/yuin/goldmark@v1.4.13", "github.com/alecthomas/chroma/v2@v2.3.0"),
}
_HEAD = ("program", "profile", "instructions saved", "of what its own saves")
_SAMPLES, _COUNTS = (10, 100, 1000), 3
_ABOUT = f"""`make gains ARGS="{NAME}"`: the share of its instructions that a program saves with other
profiles than its own of today; with fewer samples, [see below](#how-many-samples-are-enough). The
last releases are esbuild 0.16.17 before 0.17.0, and goldmark 1.4.13 and chroma 2.3.0 before 1.5.4 and 2.5.0.
Each figure is the median of {_COUNTS} counts, which differ by up to 1 % of all instructions. A profile that
isn't trimmed has all stacks; the command fails if it makes other machine code than `format=go`, so what a
program saves by the two differs by chance. Each instance counts alike with `weight=instance`; without, it
counts by its samples. markdown is a program of ours that renders pages of these docs with goldmark and
chroma."""
OWN, WHOLE, EVEN = "its own", "the same, not trimmed", "its own, each instance alike"
SHARED, _LAST = "one of all three", "of the last release"


class Subject(Protocol):
    """A program that is built with profiles; `guided` is the latest build."""

    @property
    def name(self) -> str: ...
    @property
    def guided(self) -> Path: ...
    def saved(self, profile: bytes) -> float:
        """Return the share of the instructions that a build with a profile saves."""


@dataclass(frozen=True)
class _Subject:
    """A program in a folder, with the instructions of its build without a profile."""

    program: GoProgram
    folder: Path
    none: float

    @property
    def name(self) -> str:
        """Return as `Subject` documents."""
        return self.program.source.name

    @property
    def guided(self) -> Path:
        """Return as `Subject` documents."""
        return self.folder / "guided"

    def saved(self, profile: bytes) -> float:
        """Return as `Subject` documents."""
        # Go writes the name of the profile into the program, so all have the same.
        guide = self.folder / "default.pgo"
        guide.write_bytes(profile)
        self.program.source.build(self.guided, guide)
        return 1 - _instructions(self.program, self.guided, self.folder) / self.none


def measure(programs: Mapping[str, GoProgram], folder: Path, page: Path) -> None:
    """Measure in an empty folder, and write the table and how it was measured."""
    needed("strip", "valgrind")
    stamp, rows = machine.stamp(), list[tuple[str, ...]]()
    with Server(folder / "collector") as server:
        subjects = [_profiled(programs[name], folder / name, server) for name in _PROGRAMS]
        shared = _merged(server, *_PROGRAMS)
        for subject in subjects:
            profiles = {
                OWN: _merged(server, subject.name),
                WHOLE: _merged(server, subject.name, format="pprof"),
                EVEN: _merged(server, subject.name, weight="instance"),
                SHARED: shared,
            }
            if modules := _PROGRAMS[subject.name]:
                profiles[_LAST] = _last_release(subject, modules, server)
            saved = saved_by(subject, profiles)
            rows += rows_of(subject.name, saved)
            _write_samples(subject, profiles[WHOLE], saved[OWN], page)
    body = f"{_ABOUT}\n\n{report.table(_HEAD, rows)}\n\n{stamp}"
    report.write(page, [Section(TITLE, body)], INTRODUCTION)


def _write_samples(subject: _Subject, collected: bytes, full: float, page: Path) -> None:
    """Write what a program saves with some of the samples, of what it saves with all."""
    title = f"{subject.name}, {subject.program.source.compiler}"
    rows = [*rows_by_samples(title, collected, subject.saved, full, _SAMPLES)]
    report.write(page, [section_by_samples(page, rows)], INTRODUCTION)


def _merged(server: Server, *services: str, **parameters: str) -> bytes:
    query = {"format": "go", "service": services, **parameters}
    asked = server.client.get("/v1/merge", params=query, headers=bearer(server.merge_key))
    return asked.raise_for_status().content


def _profiled(program: GoProgram, folder: Path, server: Server) -> _Subject:
    """Build a program without a profile, and submit profiles of its instances."""
    folder.mkdir()
    name = program.source.name
    progress(f"{NAME}: {name}: building and profiling")
    program.source.unpack()
    plain = program.source.build(folder / "none").binary
    submit(server, name, profiles_of(plain, program, folder))
    return _Subject(program, folder, _instructions(program, plain, folder))


def _last_release(subject: _Subject, modules: Sequence[str], server: Server) -> bytes:
    """Return the profile of an earlier version of a program, whose modules Go's proxy has."""
    progress(f"{NAME}: {subject.name}: building and profiling {', '.join(modules)}")
    service, folder = f"{subject.name}-last", subject.folder / "last"
    folder.mkdir()
    sources = folder / "gopath" / "src"
    for module in modules:
        path, _, _ = module.partition("@")
        asked = [GO, "mod", "download", "-modcacherw", "-json", module]
        said = subprocess.run(asked, cwd=folder, env=_online(), check=True, capture_output=True, text=True)
        shutil.copytree(json.loads(said.stdout)["Dir"], sources / path, copy_function=shutil.copyfile)
    program = replace(subject.program, source=replace(subject.program.source, before=(folder / "gopath",)))
    plain = program.source.build(folder / "none").binary
    submit(server, service, profiles_of(plain, program, folder))
    return _merged(server, service)


def _online() -> dict[str, str]:
    """Return an environment in which Go fetches modules, and keeps them in `.dev`."""
    every = {key: value for key, value in go_environment().items() if key not in {"GOPROXY", "GOENV"}}
    return every | {"GOMODCACHE": str(UNPACKED.parent / "modules")}


def saved_by(subject: Subject, profiles: Mapping[str, bytes]) -> dict[str, float]:
    """Return the share that a program saves with each of the profiles. Fails if trimming changes a build."""
    saved, codes = dict[str, float](), set[str]()
    for kind, profile in profiles.items():
        saved[kind] = subject.saved(profile)
        progress(f"{NAME}: {subject.name}: {kind}: {100 * saved[kind]:.1f} %")
        if kind in (OWN, WHOLE):
            codes.add(_code(subject.guided))
    assert len(codes) == 1, "trimming changed what the compiler does"
    return saved


def rows_of(program: str, saved: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    """Yield a program's rows by what it saves with each profile."""
    for kind, share in saved.items():
        of_own = f"{100 * share / saved[OWN]:.0f} %" if saved[OWN] > 0 else ""
        yield program, kind, f"{100 * share:.1f} %", of_own


def _instructions(program: GoProgram, binary: Path, folder: Path) -> float:
    return median(at_once(partial(program.instructions, folder=folder), _COUNTS * (binary,)))


def _code(binary: Path) -> str:
    """Return the hash of a program's machine code."""
    with binary.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".text")
        assert section is not None
        return hashlib.sha256(section.data()).hexdigest()
