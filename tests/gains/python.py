"""The gain of CPython, built as docs/tutorial-python-build.md has it: the page's commands are run.

The builds stay in `.dev/gains/python`. A run that was interrupted goes on behind the last step that was done.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import NamedTuple

from tests.bench import machine, report
from tests.bench.measure import progress, run
from tests.gains.builds import Toolchain, shared_flags
from tests.gains.costs import COUNTING, at_once, compared, counts_in, stripped
from tests.gains.debian import UNPACKED, needed, sources_of
from tests.gains.page import INSTRUMENTED, NONE, WITH_PROGRAM, Gain
from tests.interop.curl import total
from tests.interop.tutorial import Clone, commands
from tests.server import Server

NAME = "python"
PAGE = "tutorial-python-build.md"
# The builds of the page, by what docs/gains.md calls their profiles.
BUILDS = {NONE: "none", WITH_PROGRAM: "ours", INSTRUMENTED: "instrumented"}
WORK = UNPACKED.parent / NAME
_SITE = WORK / "site"
_SUITE = _SITE / "pyperformance" / "data-files" / "benchmarks"
# Each run has the same order of sets, and the page's packages.
ENVIRONMENT = ("env", "PYTHONHASHSEED=0", f"PYTHONPATH={_SITE}")
_HEAD = ("benchmark", "instructions", "saved by ours", "saved by instrumented", "of what instrumented saves")


class Benchmark(NamedTuple):
    """A benchmark of pyperformance: its folder and argument, and how many of its loops are measured.

    Instructions are the median of `layouts` runs, in which objects are at other addresses.
    """

    name: str
    loops: int
    argument: str = ""
    layouts: int = 1

    def arguments(self, loops: int) -> list[str]:
        """Return the arguments of a Python that runs it in one process, without a warm-up."""
        asked = ["--worker", "--warmups=0", "--values=1", f"--loops={loops}"]
        given = [self.argument] if self.argument else []
        return [str(_SUITE / f"bm_{self.name}" / "run_benchmark.py"), *asked, *given]


# 100 to 600 million instructions each.
BENCHMARKS = (
    Benchmark("deltablue", 3),
    Benchmark("json_dumps", 1),
    Benchmark("logging", 150, "format"),
    Benchmark("nbody", 1, "--iterations=2000"),
    Benchmark("pickle", 50, "pickle"),
    Benchmark("regex_effbot", 1),
    Benchmark("regex_v8", 1),
    Benchmark("richards", 1, layouts=5),
)
_COUNTED = str(Path(__file__).with_name("work") / "python" / "counted.py")
# How much more of them takes CPU time.
_TIMED = 10


def python_gain(folder: Path, rounds: int) -> Gain:
    """Build CPython, and return what its builds cost; `folder` is for the collector."""
    needed("clang", "curl", "dpkg-source", "llvm-profdata", "make", "perf", "strip", "valgrind", "wrk")
    stamp = machine.stamp()
    WORK.mkdir(parents=True, exist_ok=True)
    with Server(folder / "collector") as server:
        _follow_the_page(Clone(folder / "clone", server))
    builds = {profile: WORK / "source" / f"python-{name}" for profile, name in BUILDS.items()}
    flags = shared_flags(builds)
    progress(f"{NAME}: all were built by commands such as: {flags}")
    # The first round compiles modules of Python, which isn't counted below.
    seconds = _seconds(builds, rounds, folder)
    counts = _instructions(builds, folder)
    samples = total((WORK / "merged.pb.gz").read_bytes())[0]
    how = (
        f"Debian's source package python3.11, built by [these commands]({PAGE}), without LTO. The\n"
        f"profile has {samples:,} samples of a service of FastAPI under two loads, and of a job that reads\n"
        "tables and logs. Instrumented is what `--enable-optimizations` counts in Python's own tests.\n"
        "Measured is what neither has: benchmarks of pyperformance. The first table has geometric means:\n"
        f"of the instructions below, of some loops without the start, and of CPU times of {_TIMED} times as\n"
        f"many with the start, in {rounds} rounds. richards's instructions are medians of five runs, since\n"
        "they depend on the addresses of objects.\n\n"
        f"{report.table(_HEAD, rows_of(counts))}\n\n{stamp}"
    )
    return Gain(
        NAME,
        f"clang {Toolchain('clang').version}",
        f'make gains ARGS="{NAME}"',
        {build: [round(geometric_mean(of_build.values()))] for build, of_build in counts.items()},
        compared(seconds),
        how,
    )


def _follow_the_page(clone: Clone) -> None:
    """Run the page's commands that weren't run here yet, or that follow one that has changed since."""
    blocks = commands(PAGE)
    first, *steps, _ = blocks
    done = WORK / "done"
    done.mkdir(exist_ok=True)
    for number, (step, name) in enumerate(zip(steps, marks(blocks)[1:-1], strict=True), 1):
        title = f"{NAME}: step {number} of {len(steps)}: {step.strip().splitlines()[0]}"
        if (done / name).exists():
            progress(f"{title}: was done here before")
            continue
        progress(title)
        if number == 1:  # in another way, since apt may have no sources
            with tempfile.TemporaryDirectory(dir=WORK) as unpacked:
                sources = sources_of("python3.11", Path(unpacked))
                shutil.rmtree(WORK / "source", ignore_errors=True)
                sources.rename(WORK / "source")
        else:
            clone.paste(first + step, {"/tmp/python-build": str(WORK)})  # noqa: S108 - as the page has it
        (done / name).touch()


def marks(blocks: Sequence[str]) -> list[str]:
    """Return a name for each block of commands, which changes with the block and with those before it."""
    return [
        hashlib.sha256("\0".join(blocks[:number]).encode()).hexdigest()
        for number in range(1, len(blocks) + 1)
    ]


def _instructions(builds: Mapping[str, Path], folder: Path) -> dict[str, dict[str, int]]:
    """Return the instructions of each benchmark's loops, by build and benchmark."""
    counts = at_once(lambda named: instructions_of(*named, folder), builds.items())
    return dict(zip(builds, counts, strict=True))


def instructions_of(build: str, python: Path, folder: Path) -> dict[str, int]:
    """Return the instructions of each benchmark's loops, without what the first of them and the start take.

    The start is the same for all, which are forked then, and so counted once.
    """
    bare = stripped(python, python.with_name(f"{python.name}-stripped"))
    processes, log = folder / f"{python.name}.txt", folder / f"{python.name}.log"
    runs = [
        (of, loops, 100 * layout)
        for of in BENCHMARKS
        for layout in range(of.layouts)
        for loops in (1, 1 + of.loops)
    ]
    asked = [" ".join([str(moved), *benchmark.arguments(loops)]) for benchmark, loops, moved in runs]
    command = [*ENVIRONMENT, *COUNTING, f"--log-file={log}", str(bare), _COUNTED, str(processes), *asked]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    of_process = counts_in(log)
    counts = [of_process[process] for process in processes.read_text().split()]
    taken: dict[str, list[int]] = {benchmark.name: [] for benchmark in BENCHMARKS}
    for (benchmark, *_), few, many in zip(runs[::2], counts[::2], counts[1::2], strict=True):
        taken[benchmark.name].append(many - few)
    found = {name: round(median(of_name)) for name, of_name in taken.items()}
    progress(f"{NAME}: {build}: instructions: {found}")
    return found


def _seconds(builds: Mapping[str, Path], rounds: int, folder: Path) -> dict[str, list[float]]:
    """Return the geometric mean of the CPU seconds that the benchmarks take, by build, of each round."""
    seconds: dict[str, list[float]] = {build: [] for build in builds}
    for round_ in range(rounds + 1):
        of_round: dict[str, list[float]] = {build: [] for build in builds}
        for benchmark in BENCHMARKS:
            arguments = benchmark.arguments(_TIMED * benchmark.loops)
            for build, python in builds.items():
                of_round[build].append(run([*ENVIRONMENT, python, *arguments], folder).cost.cpu)
        if round_:  # the first fills caches
            for build, of_build in of_round.items():
                seconds[build].append(geometric_mean(of_build))
        progress(f"{NAME}: round {round_} of {rounds}")
    return seconds


def rows_of(counts: Mapping[str, Mapping[str, int]]) -> Iterator[Sequence[str]]:
    """Yield what the builds save of each benchmark's instructions, by the counts of each build."""
    for name, none in counts[NONE].items():
        ours, best = (none - counts[build][name] for build in (WITH_PROGRAM, INSTRUMENTED))
        share = f"{100 * ours / best:.0f} %" if best > 0 else ""
        yield name, f"{none / 1e6:,.0f} M", f"{100 * ours / none:.1f} %", f"{100 * best / none:.1f} %", share
