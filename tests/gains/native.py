"""The gain of a native program: profiled by perf and the agent, through a collector; built in four ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

from tests.bench import machine
from tests.bench.measure import progress, run
from tests.gains.builds import Builder
from tests.gains.costs import at_once, in_turns, instructions
from tests.gains.debian import needed
from tests.gains.go import submit
from tests.gains.page import INSTRUMENTED, NONE, OURS, WITH_PROGRAM, Gain
from tests.gains.programs import Program
from tests.interop.curl import total
from tests.server import Server

_INSTANCES = 3


class _Taken(NamedTuple):
    """A profile: how many samples it has, and the files for LLVM, made without the program and with it."""

    samples: int
    ours: Path
    with_program: Path


def gain(
    program: Program, builder: Builder, folder: Path, *, profiles: int, rounds: int, hertz: int, command: str
) -> Gain:
    """Build a program in an empty folder, with each of several profiles, and return what its builds cost.

    It is profiled `hertz` times a second; `command` is what the page names for its rows. Raises
    NotComparableError if the builds differ in more than their profiles.
    """
    needed("perf", "strip", "valgrind")
    stamp = machine.stamp()
    plain = builder.build("none")
    taken = [
        _taken(plain, program, builder, folder / str(number), hertz) for number in range(1, profiles + 1)
    ]
    builds = {NONE: [plain], **_built(program, builder, taken)}
    every = [build for of_kind in builds.values() for build in of_kind]
    flags = builder.shared_flags({build.name: build for build in every})
    progress(f"{program.name}: all were built by: {flags}")
    answers = {
        str(program.answer.findall(run(_timed(program, build), folder).output.decode())) for build in every
    }
    assert len(answers) == 1, f"the builds answer differently: {answers}"
    arguments = program.arguments(program.counted)
    counts = dict(
        zip(every, at_once(lambda build: instructions(build, arguments, folder), every), strict=True)
    )
    counted = {kind: [counts[build] for build in of_kind] for kind, of_kind in builds.items()}
    progress(f"{program.name}: instructions: {counted}")
    middle = counted[WITH_PROGRAM].index(median_low(counted[WITH_PROGRAM]))
    chosen = {
        kind: of_kind[middle if kind in (OURS, WITH_PROGRAM) else 0] for kind, of_kind in builds.items()
    }
    timed = in_turns({kind: _timed(program, build) for kind, build in chosen.items()}, rounds, folder)
    flow = f"with `{' '.join(builder.flow)}`" if builder.flow else "without a further flag"
    least, most = min(each.samples for each in taken), max(each.samples for each in taken)
    how = (
        f"{program.name}, {program.version}, built with `{builder.flags}`;\n"
        f"ours with the program {flow}. {profiles} profiles were taken, each of\n"
        f"{_INSTANCES} runs, {hertz} times a second: {least:,} to {most:,} samples. CPU times are of the\n"
        f"build whose profile has the median, in {rounds} rounds.\n\n{stamp}"
    )
    return Gain(program.name, builder.compiler, command, counted, timed, how)


def _taken(plain: Path, program: Program, builder: Builder, folder: Path, hertz: int) -> _Taken:
    """Profile the program into a new folder."""
    title = f"{program.name}, profile {folder.name}"
    progress(f"{title}: profiling {_INSTANCES} runs")
    folder.mkdir()
    merged, ours = profile(plain, program, builder, folder, hertz=hertz)
    samples = total(merged.read_bytes())[0]
    progress(f"{title}: {samples:,} samples")
    return _Taken(samples, ours, with_program(merged, plain, builder))


def _built(program: Program, builder: Builder, taken: Sequence[_Taken]) -> dict[str, list[Path]]:
    """Return the builds with each profile, and the instrumented one."""
    progress(f"{program.name}: building with each profile, and instrumented")
    ours, flowing = list[Callable[[], Path]](), list[Callable[[], Path]]()
    for number, each in enumerate(taken, 1):
        ours.append(partial(builder.build, f"ours-{number}", each.ours))
        flowing.append(partial(builder.build, f"with-program-{number}", each.with_program, flow=True))
    instrumented, *builds = at_once(lambda build: build(), [builder.instrumented, *ours, *flowing])
    return {OURS: builds[: len(ours)], WITH_PROGRAM: builds[len(ours) :], INSTRUMENTED: [instrumented]}


def _timed(program: Program, build: Path) -> list[str]:
    return [str(build), *program.arguments(program.timed)]


def profile(
    plain: Path, program: Program, builder: Builder, folder: Path, *, hertz: int, amount: int = 0
) -> tuple[Path, Path]:
    """Profile runs, send them to a collector, and return its merge and its profile for LLVM, as files.

    As many run at once as there are cores. The work of a run is the program's training, or another amount.
    """
    merged, ours = folder / "merged.pb.gz", folder / "ours.prof"
    service, tools = {"service": program.name}, builder.toolchain
    work = program.arguments(amount or program.training)

    def recorded(instance: int) -> bytes:
        recording, converted = folder / f"{instance}.perf.data", folder / f"{instance}.pb.gz"
        perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(hertz), "-g", "--buildid-mmap"]
        tools.run([*perf, "-o", recording, plain, *work])
        tools.run(["pgo-agent", "convert", recording, "-o", converted])
        recording.unlink()
        return converted.read_bytes()

    with Server(folder / "collector") as server:
        submit(server, program.name, at_once(recorded, range(_INSTANCES)))
        merged.write_bytes(server.merge(query=service).raise_for_status().content)
        ours.write_bytes(server.merge(format_="llvm", query=service).raise_for_status().content)
    return merged, ours


def with_program(merged: Path, plain: Path, builder: Builder) -> Path:
    """Return the profile for LLVM of a merge and the program that was profiled, as a file beside it."""
    written = merged.with_suffix(".prof")
    command: list[str | Path] = ["pprof-merge", "--format", "llvm", "--binary", plain, "-o", written, merged]
    builder.toolchain.run(command)
    return written
