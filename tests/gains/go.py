"""The gain of a Go program that profiles itself: built without a profile and with a collector's merge."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pprof_merge import decode

from tests.bench import machine
from tests.bench.measure import progress, run
from tests.gains.costs import in_turns
from tests.gains.page import NONE, OURS, Gain
from tests.gains.programs import ROOT
from tests.oracle.oracle import GO, go_environment, go_root
from tests.server import Server

_INSTANCES = 3
_MODULE = ROOT / "docs" / "tutorial-go"


@dataclass(frozen=True)
class GoProgram:
    """A program that takes `-cpuprofile FILE`, and its package, as it is named in the tutorial's module.

    It is run with `training` while profiled and with `timed` for CPU seconds.
    """

    name: str
    version: str
    package: str
    training: tuple[str, ...]
    timed: tuple[str, ...]

    @property
    def compiler(self) -> str:
        """Return the name and version of the compiler."""
        asked = [GO, "env", "GOVERSION"]
        said = subprocess.run(asked, env=go_environment(), check=True, capture_output=True, text=True)
        return f"Go {said.stdout.strip().removeprefix('go')}"


def go_programs() -> dict[str, GoProgram]:
    """Return the programs by name."""
    sources = go_root() / "src"
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
    gofmt = GoProgram("gofmt", "on the toolchain's sources", "cmd/gofmt", ("-l", *whole), ("-l", *some))
    logsum = GoProgram("logsum", "of [the tutorial](tutorial-go.md)", ".", ("300",), ("40",))
    return {program.name: program for program in (gofmt, logsum)}


def go_gain(program: GoProgram, folder: Path, rounds: int) -> Gain:
    """Build a program in an empty folder, and return what its builds cost."""
    stamp = machine.stamp()
    plain = _build(program, folder / "none", "off")
    progress(f"{program.name}: profiling {_INSTANCES} runs")
    merged, guide = profile_go(plain, program, folder, program.training)
    samples = int(decode(merged.read_bytes()).samples.values[:, 0].sum())
    progress(f"{program.name}: {samples:,} samples; building")
    builds = {NONE: plain, OURS: _build(program, folder / "ours", str(guide))}
    commands = {name: [str(build), *program.timed] for name, build in builds.items()}
    answers = {run(command, folder).output for command in commands.values()}
    assert len(answers) == 1, f"the builds answer differently: {answers}"
    timed = in_turns(commands, rounds, folder)
    how = (
        f"{program.name} {program.version}, built with `-pgo=off` and `-pgo=default.pgo`.\n"
        f"The profile has {samples:,} samples of {_INSTANCES} runs. CPU times are of {rounds} rounds.\n\n"
        f"{stamp}"
    )
    return Gain(program.name, program.compiler, f'make gains ARGS="{program.name}"', {}, timed, how)


def _build(program: GoProgram, binary: Path, pgo: str) -> Path:
    command = [GO, "build", f"-pgo={pgo}", "-o", str(binary), program.package]
    subprocess.run(command, cwd=_MODULE, env=go_environment(), check=True, stdout=subprocess.DEVNULL)
    return binary


def copied_module(folder: Path) -> Path:
    """Return a copy of the tutorial's module, for changes."""
    return Path(shutil.copytree(_MODULE, folder / "module"))


def build_package(binary: Path, module: Path, profile: Path | None = None) -> Path:
    """Return the program of a module; a profile guides its own package, and not those of the library."""
    guided = [] if profile is None else [f"-gcflags=-pgoprofile={profile}"]
    command = [GO, "build", "-pgo=off", *guided, "-o", str(binary), "."]
    subprocess.run(command, cwd=module, env=go_environment(), check=True, stdout=subprocess.DEVNULL)
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
