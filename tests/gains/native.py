"""The gain of a program of C: profiled by perf and the agent, through a collector, and built in four ways."""

from __future__ import annotations

from pathlib import Path

from pprof_merge import decode

from tests.bench import machine
from tests.bench.measure import progress, run
from tests.gains.builds import FLAGS, Builder, Toolchain, shared_flags
from tests.gains.costs import in_turns, instructions
from tests.gains.page import INSTRUMENTED, NONE, OURS, WITH_PROGRAM, Gain
from tests.gains.programs import Program
from tests.server import Server

_INSTANCES = 3


def gain(program: Program, clang: str, folder: Path, rounds: int, hertz: int) -> Gain:
    """Build a program in an empty folder, and return what its builds cost.

    It is profiled `hertz` times a second. Raises NotComparableError if the builds differ in more than their
    profiles.
    """
    stamp, toolchain = machine.stamp(), Toolchain(clang)
    builder = Builder(program, toolchain, folder)
    plain = builder.build("none")
    progress(f"{program.name}: profiling {_INSTANCES} runs")
    samples = _profile(plain, program, toolchain, folder, hertz)
    progress(f"{program.name}: {samples:,} samples; building")
    with_program = f"-fprofile-sample-use={folder}/with-program.prof"
    builds = {
        NONE: plain,
        OURS: builder.build("ours", f"-fprofile-sample-use={folder}/ours.prof"),
        WITH_PROGRAM: builder.build("with-program", with_program, *toolchain.flow),
        INSTRUMENTED: builder.instrumented(),
    }
    progress(f"{program.name}: all were built by: {shared_flags(builds)}")
    commands = {name: [str(build), *program.timed] for name, build in builds.items()}
    outputs = {name: run(command, folder).output.decode() for name, command in commands.items()}
    answers = {str(program.answer.findall(output)) for output in outputs.values()}
    assert len(answers) == 1, f"the builds answer differently: {answers}"
    counted = {}
    for name, build in builds.items():
        counted[name] = instructions(build, program.counted, folder)
        progress(f"{program.name}: {name}: {counted[name]:,} instructions")
    timed = in_turns(commands, rounds, folder)
    flow = f"with `{' '.join(toolchain.flow)}`" if toolchain.flow else "without a further flag"
    flags = " ".join((*FLAGS, *program.options))
    how = (
        f"{program.name}, {program.version}, built with `{flags}`; ours with the program {flow}.\n"
        f"The profile has {samples:,} samples of {_INSTANCES} runs, {hertz} a second. CPU times are of\n"
        f"{rounds} rounds.\n\n{stamp}"
    )
    other = "" if clang == "clang" else f" --clang {Path(clang).name}"
    command = f'make gains ARGS="{program.name}{other}"'
    return Gain(program.name, f"clang {toolchain.version}", command, counted, timed, how)


def _profile(plain: Path, program: Program, toolchain: Toolchain, folder: Path, hertz: int) -> int:
    """Profile runs, send them to a collector, write our profiles, and return the number of samples."""
    recording, merged = folder / "perf.data", folder / "merged.pb.gz"
    service = {"service": program.name}
    with Server(folder / "collector") as server:
        for instance in range(_INSTANCES):
            perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(hertz), "-g", "--buildid-mmap"]
            toolchain.run([*perf, "-o", str(recording), str(plain), *program.training])
            profile = folder / f"{instance}.pb.gz"
            toolchain.run(["pgo-agent", "convert", recording, "-o", profile])
            labels = {"labels": f"instance={instance}"}
            server.submit(profile.read_bytes(), query=service | labels).raise_for_status()
        recording.unlink()
        merged.write_bytes(server.merge(query=service).raise_for_status().content)
        ours = server.merge(format_="llvm", query=service).raise_for_status()
        (folder / "ours.prof").write_bytes(ours.content)
    command = ["pprof-merge", "--format", "llvm", "--binary", str(plain)]
    toolchain.run([*command, "-o", str(folder / "with-program.prof"), str(merged)])
    return int(decode(merged.read_bytes()).samples.values[:, 0].sum())
