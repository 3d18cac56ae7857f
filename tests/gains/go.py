"""The gain of a Go program that profiles itself: built without a profile and with a collector's merge."""

from __future__ import annotations

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
    samples = _profile(plain, program, folder)
    progress(f"{program.name}: {samples:,} samples; building")
    builds = {NONE: plain, OURS: _build(program, folder / "ours", str(folder / "default.pgo"))}
    commands = {name: [str(build), *program.timed] for name, build in builds.items()}
    answers = {run(command, folder).output for command in commands.values()}
    assert len(answers) == 1, f"the builds answer differently: {answers}"
    timed = in_turns(commands, rounds, folder)
    version = subprocess.run([GO, "env", "GOVERSION"], env=go_environment(), check=True, capture_output=True)
    how = (
        f"{program.name} {program.version}, built with `-pgo=off` and `-pgo=default.pgo`.\n"
        f"The profile has {samples:,} samples of {_INSTANCES} runs. CPU times are of {rounds} rounds.\n\n"
        f"{stamp}"
    )
    compiler = f"Go {version.stdout.decode().strip().removeprefix('go')}"
    return Gain(program.name, compiler, f'make gains ARGS="{program.name}"', {}, timed, how)


def _build(program: GoProgram, binary: Path, pgo: str) -> Path:
    command = [GO, "build", f"-pgo={pgo}", "-o", str(binary), program.package]
    subprocess.run(command, cwd=_MODULE, env=go_environment(), check=True, stdout=subprocess.DEVNULL)
    return binary


def _profile(plain: Path, program: GoProgram, folder: Path) -> int:
    """Profile runs, write the collector's merge for the compiler, and return the number of samples."""
    service = {"service": program.name}
    with Server(folder / "collector") as server:
        for instance in range(_INSTANCES):
            profile = folder / f"{instance}.pb.gz"
            run([str(plain), "-cpuprofile", str(profile), *program.training], folder)
            labels = {"labels": f"instance={instance}"}
            server.submit(profile.read_bytes(), query=service | labels).raise_for_status()
        merged = server.merge(query=service).raise_for_status().content
        guide = server.merge(format_="go", query=service).raise_for_status().content
    (folder / "default.pgo").write_bytes(guide)
    return int(decode(merged).samples.values[:, 0].sum())
