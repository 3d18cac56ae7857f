"""The gain of a Go program that profiles itself: built without a profile and with a collector's merge."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from pprof_merge import decode

from tests.bench import machine
from tests.bench.measure import progress, run
from tests.gains.costs import in_turns, instructions
from tests.gains.page import NONE, OURS, Gain
from tests.gains.programs import ROOT
from tests.oracle.oracle import GO, go_environment, go_root
from tests.server import Server

_INSTANCES = 3
_TUTORIAL = ROOT / "docs" / "tutorial-go"
_WORK = Path(__file__).with_name("work")
# Instructions are counted with one thread and without the garbage collector: two counts differ little then.
_ALIKE = ("env", "GOMAXPROCS=1", "GOGC=off")


@dataclass(frozen=True)
class GoProgram:
    """A program that takes `-cpuprofile FILE`, and its package, as it is named in its module.

    It is run with one of three amounts of work: `training` while profiled, `timed` for CPU seconds, and
    `counted` for instructions. `library` are the packages of Go's library in which it spends its time.
    """

    name: str
    version: str
    module: Path
    package: str
    training: tuple[str, ...]
    timed: tuple[str, ...]
    counted: tuple[str, ...]
    library: tuple[str, ...] = ()

    @property
    def compiler(self) -> str:
        """Return the name and version of the compiler."""
        asked = [GO, "env", "GOVERSION"]
        said = subprocess.run(asked, env=go_environment(), check=True, capture_output=True, text=True)
        return f"Go {said.stdout.strip().removeprefix('go')}"

    def instructions(self, build: Path, folder: Path) -> int:
        """Return how many instructions a build of it executes."""
        return instructions(build, self.counted, folder, _ALIKE)


def go_programs() -> dict[str, GoProgram]:
    """Return the programs by name."""
    root, sources = str(go_root()), go_root() / "src"
    # Some files below testdata are wrong on purpose, and end gofmt with an error.
    whole, some = (
        tuple(
            str(file)
            for part in parts
            for file in sorted((sources / part).rglob("*.go"))
            if "testdata" not in file.parts
        )
        for parts in (("",), ("cmd/compile", "go", "net", "runtime"))
    )
    every = (
        GoProgram(
            "gofmt",
            "on the toolchain's sources",
            _TUTORIAL,
            "cmd/gofmt",
            training=("-l", *whole),
            timed=("-l", *some),
            counted=("-l", *(file for file in some if "/go/" in file)),
        ),
        GoProgram(
            "logsum",
            "of [the tutorial](tutorial-go.md)",
            _TUTORIAL,
            ".",
            training=("300",),
            timed=("40",),
            counted=("2",),
        ),
        GoProgram(
            "gotype",
            "a program of ours that checks packages of Go's library by `go/types`",
            _WORK / "gotype",
            ".",
            training=("2", root, "net/http"),
            timed=("1", root, "fmt"),
            counted=("1", root, "strconv"),
            library=("go/ast", "go/constant", "go/parser", "go/scanner", "go/token", "go/types"),
        ),
    )
    return {program.name: program for program in every}


def go_gain(program: GoProgram, folder: Path, profiles: int, rounds: int) -> Gain:
    """Build a program in an empty folder, with each of several profiles, and return what its builds cost."""
    stamp = machine.stamp()
    plain = _build(program, folder / "none", "off")
    samples, guided = list[int](), list[Path]()
    for number in range(1, profiles + 1):
        progress(f"{program.name}, profile {number}: profiling {_INSTANCES} runs")
        (folder / str(number)).mkdir()
        merged, guide = profile_go(plain, program, folder / str(number), program.training)
        samples.append(int(decode(merged.read_bytes()).samples.values[:, 0].sum()))
        progress(f"{program.name}, profile {number}: {samples[-1]:,} samples; building")
        guided.append(_build(program, folder / f"ours-{number}", str(guide)))
    answers = {run([str(build), *program.timed], folder).output for build in (plain, *guided)}
    assert len(answers) == 1, f"the builds answer differently: {answers}"
    builds = {NONE: [plain], OURS: guided}
    counted = {name: [program.instructions(build, folder) for build in of] for name, of in builds.items()}
    progress(f"{program.name}: instructions: {counted}")
    middle = guided[counted[OURS].index(median_low(counted[OURS]))]
    commands = {name: [str(build), *program.timed] for name, build in ((NONE, plain), (OURS, middle))}
    timed = in_turns(commands, rounds, folder)
    how = (
        f"{program.name}, {program.version}, built with `-pgo=off` and `-pgo=default.pgo`.\n"
        f"{profiles} profiles were taken, each of {_INSTANCES} runs: {min(samples):,} to {max(samples):,}\n"
        f"samples. Instructions are counted with `GOMAXPROCS=1 GOGC=off`, so without the garbage collector.\n"
        f"CPU times are of the build whose profile has the median, in {rounds} rounds.\n\n{stamp}"
    )
    return Gain(program.name, program.compiler, f'make gains ARGS="{program.name}"', counted, timed, how)


def _build(program: GoProgram, binary: Path, pgo: str) -> Path:
    command = [GO, "build", f"-pgo={pgo}", "-o", str(binary), program.package]
    subprocess.run(command, cwd=program.module, env=go_environment(), check=True, stdout=subprocess.DEVNULL)
    return binary


def copied_sources(program: GoProgram, folder: Path) -> dict[Path, Path]:
    """Return copies of a program's sources and those of its library packages, which may change, by source."""
    places = [program.module, *(go_root() / "src" / package for package in program.library)]
    sources = [
        file for place in places for file in sorted(place.glob("*.go")) if not file.stem.endswith("_test")
    ]
    copies = {source: folder / f"{number}-{source.name}" for number, source in enumerate(sources)}
    for source, copy in copies.items():
        copy.write_text(source.read_text())
    return copies


def build_packages(
    program: GoProgram, binary: Path, copies: Mapping[Path, Path], profile: Path | None = None
) -> Path:
    """Return the program, built from copies; a profile guides its own package and its library packages."""
    overlay = binary.with_suffix(".json")
    overlay.write_text(json.dumps({"Replace": {str(source): str(copy) for source, copy in copies.items()}}))
    guided = [] if profile is None else [f"-gcflags=-pgoprofile={profile}"]
    guided += [f"-gcflags={package}=-pgoprofile={profile}" for package in program.library if profile]
    command = [GO, "build", f"-overlay={overlay}", "-pgo=off", *guided, "-o", str(binary), program.package]
    subprocess.run(command, cwd=program.module, env=go_environment(), check=True, stdout=subprocess.DEVNULL)
    return binary


def profile_go(plain: Path, program: GoProgram, folder: Path, work: tuple[str, ...]) -> tuple[Path, Path]:
    """Profile runs, and return the collector's merge and its profile for the compiler, as files."""
    service, merged, guide = {"service": program.name}, folder / "merged.pb.gz", folder / "default.pgo"
    with Server(folder / "collector") as server:
        for instance in range(_INSTANCES):
            profile = folder / f"{instance}.pb.gz"
            run([str(plain), "-cpuprofile", str(profile), *work], folder)
            labels = {"labels": f"instance={instance}"}
            server.submit(profile.read_bytes(), query=service | labels).raise_for_status()
        merged.write_bytes(server.merge(query=service).raise_for_status().content)
        guide.write_bytes(server.merge(format_="go", query=service).raise_for_status().content)
    return merged, guide
