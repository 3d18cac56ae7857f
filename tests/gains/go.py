"""The gain of a Go program that profiles itself: built without a profile and with a collector's merge."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from tests.bench import machine
from tests.bench.measure import progress, run
from tests.gains.costs import at_once, compared, instructions
from tests.gains.debian import GOPATH, SourcePackage, needed, unpack, unpack_go
from tests.gains.page import NONE, OURS, Built, Gain, Latency
from tests.oracle.oracle import GO, go_environment, go_root
from tests.server import Server

INSTANCES = 3
WORK = Path(__file__).with_name("work")
# DWARF isn't needed here, and takes a sixth of a build.
_FLAGS = ("-gcflags=all=-dwarf=false", "-ldflags=-w")
# Instructions are counted with one thread and without the garbage collector: two counts differ little then.
_ALIKE = ("env", "GOMAXPROCS=1", "GOGC=off")
_SAID_ALIKE = "Instructions are counted with `GOMAXPROCS=1 GOGC=off`, so without the garbage collector.\n"


class GoBuild(NamedTuple):
    """A program that was built, and what the build cost."""

    binary: Path
    cost: Built


@dataclass(frozen=True)
class GoSource:
    """The sources of a program: `package`, as it is named in `folder`.

    It is a part of a module, or, if there are names in `debian`, built from the Go sources in these packages
    of Debian, and from what they depend on, or from the source package `origin`. `before` are folders that
    GOPATH has before these. `inputs` are packages with files that it is run on.
    """

    name: str
    version: str
    folder: Path
    package: str
    debian: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    before: tuple[Path, ...] = ()
    origin: SourcePackage | None = None

    @property
    def compiler(self) -> str:
        """Return the name and version of the compiler."""
        asked = [GO, "env", "GOVERSION"]
        said = subprocess.run(asked, env=go_environment(), check=True, capture_output=True, text=True)
        return f"Go {said.stdout.strip().removeprefix('go')}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of its builds."""
        origin = [self.origin.gopath] if self.origin else []
        path = os.pathsep.join(map(str, (*self.before, *origin, GOPATH)))
        debian = {"GO111MODULE": "off", "GOFLAGS": "", "GOPATH": path}
        return {**go_environment(), **(debian if self.debian or origin else {})}

    def unpack(self) -> None:
        """Get the packages of Debian. Raises FileNotFoundError if apt doesn't know one of them."""
        unpack_go(self.debian)
        unpack(self.inputs)
        if self.origin:
            self.origin.unpack()

    def build(self, binary: Path, profile: Path | None = None) -> GoBuild:
        """Build the program, with a profile or none, and count the cost, of which none is saved by a cache.

        Builds into one folder share a cache, in which no two are alike.
        """
        every = self.environment | {"GOCACHE": str(binary.parent / "go-cache")}
        command = [GO, "build", *_FLAGS, f"-pgo={profile or 'off'}", "-o", str(binary), self.package]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=self.folder, env=every, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return GoBuild(binary, Built(binary.stat().st_size, cpu))


@dataclass(frozen=True)
class GoProgram:
    """A program that writes a CPU profile to the file that `flag` names.

    `training` has the arguments of each instance while it is profiled; `counted` are those for instructions,
    and `timed`, of programs in the table, those for CPU seconds. `apart` says how the work differs. `library`
    are the packages of Go's library in which it spends its time. `start` is the beginning of its command.
    """

    source: GoSource
    training: tuple[tuple[str, ...], ...]
    counted: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()
    apart: str = "The profiled work is of the same kind as what is measured."
    flag: str = "-cpuprofile"
    library: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    def command(self, build: Path, *arguments: str) -> list[str]:
        """Return the command that runs a build of it."""
        return [*self.start, str(build), *arguments]

    def instructions(self, build: Path, folder: Path) -> int:
        """Return how many instructions a build of it executes."""
        return instructions(build, self.counted, folder, _ALIKE)


def go_gain(program: GoProgram, folder: Path, profiles: int, rounds: int) -> Gain:
    """Build a program in an empty folder, with each of several profiles, and return what its builds cost."""
    stamp, source = machine.stamp(), program.source
    needed("strip", "valgrind")
    progress(f"{source.name}: getting its sources and building it without a profile")
    source.unpack()
    plain_build = source.build(folder / "none")
    builds = built(source, plain_build, folder, profiles, partial(profile_go, program=program))
    plain, *guided = (build.binary for build in builds.every)
    outputs = {run(program.command(build, *program.timed), folder).output for build in (plain, *guided)}
    assert len(outputs) == 1, "the builds answer differently"
    counted = dict[str, list[int]]()
    if program.counted:
        first, *ours = at_once(partial(program.instructions, folder=folder), (plain, *guided))
        counted = {NONE: [first], OURS: ours}
        progress(f"{source.name}: instructions: {counted}")
    seconds: dict[str, list[float]] = {NONE: [], OURS: []}
    for number in range(1, rounds + 1):
        none = run(program.command(plain, *program.timed), folder).cost.cpu
        for build in guided:
            seconds[NONE].append(none)
            seconds[OURS].append(run(program.command(build, *program.timed), folder).cost.cpu)
        progress(f"{source.name}: round {number} of {rounds}")
    alike = _SAID_ALIKE if counted else ""
    how = (
        f"{builds.how} {program.apart}\n"
        f"{profiles} profiles were taken, each of {len(program.training)} runs: {builds.taken}.\n"
        f"{alike}CPU times are of the builds with all profiles, in {rounds} rounds.\n\n{stamp}"
    )
    return builds.gain(seconds, how, counted=counted)


class Profiled(NamedTuple):
    """The collector's merge of instances and its release for the compiler, as files, and its report on them.

    `hottest` is the share of time below the hottest call that isn't inlined yet, from 0 to 1.
    """

    merged: Path
    guide: Path
    samples: int
    hottest: float


class GoBuilds(NamedTuple):
    """The builds of a program: without a profile, and with each of several."""

    source: GoSource
    plain: GoBuild
    guided: Sequence[GoBuild]
    profiles: Sequence[Profiled]

    @property
    def every(self) -> list[GoBuild]:
        """Return all builds, the one without a profile first."""
        return [self.plain, *self.guided]

    @property
    def how(self) -> str:
        """Return how they were built, in words."""
        return (
            f"{self.source.name}, {self.source.version}, built with `-pgo=off` and `-pgo=default.pgo`,\n"
            f"both without DWARF (`{' '.join(_FLAGS)}`)."
        )

    @property
    def taken(self) -> str:
        """Return what is in the profiles, in words."""
        samples = sorted(each.samples for each in self.profiles)
        shares = sorted(each.hottest for each in self.profiles)
        return (
            f"{samples[0]:,} to {samples[-1]:,} samples, with\n"
            f"{100 * shares[0]:.0f} to {100 * shares[-1]:.0f} % of the time below the hottest call"
        )

    def gain(
        self,
        seconds: Mapping[str, Sequence[float]],
        how: str,
        counted: Mapping[str, Sequence[int]] = MappingProxyType({}),
        latencies: Mapping[str, Latency] = MappingProxyType({}),
    ) -> Gain:
        """Return the gain by CPU seconds of rounds, and instructions or latencies if there are any."""
        costs = [build.cost for build in self.guided]
        middle = Built(round(median(cost.size for cost in costs)), median(cost.cpu for cost in costs))
        return Gain(
            self.source.name,
            self.source.compiler,
            f'make gains ARGS="{self.source.name}"',
            counted,
            compared(seconds),
            how,
            {NONE: self.plain.cost, OURS: middle},
            latencies,
        )


def built(
    source: GoSource,
    plain: GoBuild,
    folder: Path,
    profiles: int,
    profile: Callable[[Path, Path], Profiled],
) -> GoBuilds:
    """Build a program with each of several profiles of its plain build.

    `profile` profiles instances of a binary, which run in a new folder.
    """
    taken, guided = list[Profiled](), list[GoBuild]()
    for number in range(1, profiles + 1):
        title = f"{source.name}, profile {number} of {profiles}"
        progress(f"{title}: profiling instances at once")
        (folder / str(number)).mkdir()
        taken.append(profile(plain.binary, folder / str(number)))
        progress(f"{title}: {taken[-1].samples:,} samples, {taken[-1].hottest:.0%} below a call; building")
        guided.append(source.build(folder / f"ours-{number}", taken[-1].guide))
    return GoBuilds(source, plain, guided, taken)


def copied_sources(program: GoProgram, folder: Path) -> dict[Path, Path]:
    """Return copies of a program's sources and those of its library packages, which may change, by source."""
    places = [program.source.folder, *(go_root() / "src" / package for package in program.library)]
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
    source, overlay = program.source, binary.with_suffix(".json")
    overlay.write_text(json.dumps({"Replace": {str(source): str(copy) for source, copy in copies.items()}}))
    guided = [] if profile is None else [f"-gcflags=-pgoprofile={profile}"]
    guided += [f"-gcflags={package}=-pgoprofile={profile}" for package in program.library if profile]
    command = [GO, "build", f"-overlay={overlay}", "-pgo=off", *guided, "-o", str(binary), source.package]
    subprocess.run(command, cwd=source.folder, env=go_environment(), check=True, stdout=subprocess.DEVNULL)
    return binary


def profile_go(
    plain: Path, folder: Path, program: GoProgram, training: Sequence[Sequence[str]] = ()
) -> Profiled:
    """Profile instances at once, which do the program's training, or another."""
    with Server(folder / "collector") as server:
        server.query = {"service": program.source.name}
        submit(server, program.source.name, profiles_of(plain, program, folder, training))
        return collected(server, folder)


def submit(server: Server, service: str, profiles: Iterable[bytes]) -> None:
    """Submit the profile of each instance of a service."""
    for instance, profile in enumerate(profiles):
        query = {"service": service, "labels": f"instance={instance}"}
        server.submit(profile, query=query).raise_for_status()


def collected(server: Server, folder: Path) -> Profiled:
    """Return what a collector has of the service that `server.query` names, with files in a folder."""
    merged, guide = folder / "merged.pb.gz", folder / "default.pgo"
    merged.write_bytes(server.merge().raise_for_status().content)
    guide.write_bytes(server.release().raise_for_status().content)
    said = server.ask("/v1/report", **server.query).raise_for_status().json()
    hottest = said["gain"]["hottest_call"]
    return Profiled(merged, guide, said["totals"]["samples/count"], hottest["share"] if hottest else 0.0)


def profiles_of(
    plain: Path, program: GoProgram, folder: Path, training: Sequence[Sequence[str]] = ()
) -> list[bytes]:
    """Run instances, some at once, and return the profile that each of them writes into a folder."""

    def profiled(instance: int, arguments: Sequence[str]) -> bytes:
        profile = folder / f"{instance}.pb.gz"
        run(program.command(plain, f"{program.flag}={profile}", *arguments), folder)
        return profile.read_bytes()

    every = training or program.training
    with ThreadPoolExecutor(INSTANCES) as pool:
        return [*pool.map(profiled, range(len(every)), every)]
