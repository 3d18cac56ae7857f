"""The gain of a native program: profiled by perf and the agent, through a collector; built in four ways."""

from __future__ import annotations

from pathlib import Path

from pprof_merge import decode

from tests.bench import machine
from tests.bench.measure import progress, run
from tests.gains.builds import Builder
from tests.gains.costs import in_turns, instructions
from tests.gains.page import INSTRUMENTED, NONE, OURS, WITH_PROGRAM, Gain
from tests.gains.programs import Program
from tests.server import Server

_INSTANCES = 3


def gain(program: Program, builder: Builder, folder: Path, *, rounds: int, hertz: int, command: str) -> Gain:
    """Build a program in an empty folder, and return what its builds cost.

    It is profiled `hertz` times a second; `command` is what the page names for its rows. Raises
    NotComparableError if the builds differ in more than their profiles.
    """
    stamp = machine.stamp()
    plain = builder.build("none")
    progress(f"{program.name}: profiling {_INSTANCES} runs")
    merged, ours = profile(plain, program, builder, folder, hertz=hertz)
    samples = int(decode(merged.read_bytes()).samples.values[:, 0].sum())
    progress(f"{program.name}: {samples:,} samples; building")
    builds = {
        NONE: plain,
        OURS: builder.build("ours", ours),
        WITH_PROGRAM: builder.build("with-program", with_program(merged, plain, builder), flow=True),
        INSTRUMENTED: builder.instrumented(),
    }
    progress(f"{program.name}: all were built by: {builder.shared_flags(builds)}")
    commands = {name: [str(build), *program.arguments(program.timed)] for name, build in builds.items()}
    outputs = {name: run(command, folder).output.decode() for name, command in commands.items()}
    answers = {str(program.answer.findall(output)) for output in outputs.values()}
    assert len(answers) == 1, f"the builds answer differently: {answers}"
    counted = {}
    for name, build in builds.items():
        counted[name] = instructions(build, program.arguments(program.counted), folder)
        progress(f"{program.name}: {name}: {counted[name]:,} instructions")
    timed = in_turns(commands, rounds, folder)
    flow = f"with `{' '.join(builder.flow)}`" if builder.flow else "without a further flag"
    how = (
        f"{program.name}, {program.version}, built with `{builder.flags}`;\n"
        f"ours with the program {flow}. The profile has {samples:,} samples of\n"
        f"{_INSTANCES} runs, {hertz} a second. CPU times are of {rounds} rounds.\n\n{stamp}"
    )
    return Gain(program.name, builder.compiler, command, counted, timed, how)


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
