"""The gain of a native program: profiled by perf and the agent, through a collector; built in four ways."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

from pprof_merge import decode

from tests.bench import machine
from tests.bench.measure import progress, run
from tests.gains.builds import Builder
from tests.gains.costs import at_once, in_turns, instructions
from tests.gains.debian import needed
from tests.gains.page import INSTRUMENTED, NONE, OURS, WITH_PROGRAM, Gain
from tests.gains.programs import Program
from tests.server import Server

_INSTANCES = 3


class _Guided(NamedTuple):
    """The builds with one profile, by what docs/gains.md calls it, and how many samples it has."""

    samples: int
    builds: dict[str, Path]


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
    guided = [
        _guided(plain, program, builder, folder / str(number), hertz) for number in range(1, profiles + 1)
    ]
    others = {NONE: plain, INSTRUMENTED: builder.instrumented()}
    sets = [others, *(of.builds for of in guided)]
    every = [(name, build) for of in sets for name, build in of.items()]
    flags = builder.shared_flags({build.name: build for _, build in every})
    progress(f"{program.name}: all were built by: {flags}")
    answers = {
        str(program.answer.findall(run(_timed(program, build), folder).output.decode())) for _, build in every
    }
    assert len(answers) == 1, f"the builds answer differently: {answers}"
    arguments = program.arguments(program.counted)
    counts = at_once(lambda build: instructions(build, arguments, folder), (build for _, build in every))
    counted: dict[str, list[int]] = {NONE: [], OURS: [], WITH_PROGRAM: [], INSTRUMENTED: []}
    for (name, _), count in zip(every, counts, strict=True):
        counted[name].append(count)
    progress(f"{program.name}: instructions: {counted}")
    middle = counted[WITH_PROGRAM].index(median_low(counted[WITH_PROGRAM]))
    builds = {NONE: plain, **guided[middle].builds, INSTRUMENTED: others[INSTRUMENTED]}
    timed = in_turns({name: _timed(program, build) for name, build in builds.items()}, rounds, folder)
    flow = f"with `{' '.join(builder.flow)}`" if builder.flow else "without a further flag"
    least, most = min(of.samples for of in guided), max(of.samples for of in guided)
    how = (
        f"{program.name}, {program.version}, built with `{builder.flags}`;\n"
        f"ours with the program {flow}. {profiles} profiles were taken, each of\n"
        f"{_INSTANCES} runs, {hertz} times a second: {least:,} to {most:,} samples. CPU times are of the\n"
        f"build whose profile has the median, in {rounds} rounds.\n\n{stamp}"
    )
    return Gain(program.name, builder.compiler, command, counted, timed, how)


def _guided(plain: Path, program: Program, builder: Builder, folder: Path, hertz: int) -> _Guided:
    """Profile the program into a new folder, and return its builds with that profile."""
    title = f"{program.name}, profile {folder.name}"
    progress(f"{title}: profiling {_INSTANCES} runs")
    folder.mkdir()
    merged, ours = profile(plain, program, builder, folder, hertz=hertz)
    samples = int(decode(merged.read_bytes()).samples.values[:, 0].sum())
    progress(f"{title}: {samples:,} samples; building")
    with_flow = with_program(merged, plain, builder)
    with ThreadPoolExecutor() as pool:
        sampled = pool.submit(builder.build, f"ours-{folder.name}", ours)
        flowing = pool.submit(builder.build, f"with-program-{folder.name}", with_flow, flow=True)
    return _Guided(samples, {OURS: sampled.result(), WITH_PROGRAM: flowing.result()})


def _timed(program: Program, build: Path) -> list[str]:
    return [str(build), *program.arguments(program.timed)]


def profile(
    plain: Path, program: Program, builder: Builder, folder: Path, *, hertz: int, amount: int = 0
) -> tuple[Path, Path]:
    """Profile runs, send them to a collector, and return its merge and its profile for LLVM, as files.

    The work of a run is the program's training, or another amount.
    """
    recording, merged, ours = (folder / name for name in ("perf.data", "merged.pb.gz", "ours.prof"))
    service, tools = {"service": program.name}, builder.toolchain
    arguments = program.arguments(amount or program.training)
    with Server(folder / "collector") as server:
        for instance in range(_INSTANCES):
            perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(hertz), "-g", "--buildid-mmap"]
            tools.run([*perf, "-o", str(recording), str(plain), *arguments])
            converted = folder / f"{instance}.pb.gz"
            tools.run(["pgo-agent", "convert", recording, "-o", converted])
            labels = {"labels": f"instance={instance}"}
            server.submit(converted.read_bytes(), query=service | labels).raise_for_status()
        recording.unlink()
        merged.write_bytes(server.merge(query=service).raise_for_status().content)
        ours.write_bytes(server.merge(format_="llvm", query=service).raise_for_status().content)
    return merged, ours


def with_program(merged: Path, plain: Path, builder: Builder) -> Path:
    """Return the profile for LLVM of a merge and the program that was profiled, as a file beside it."""
    written = merged.with_suffix(".prof")
    command: list[str | Path] = ["pprof-merge", "--format", "llvm", "--binary", plain, "-o", written, merged]
    builder.toolchain.run(command)
    return written
