"""Measures pprof-merge beside Go, and writes docs/benchmarks.md.

The two take turns, so that whatever else the machine does strikes both; what counts is the median.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.oracle.oracle import GO, go_environment, go_root, running

ROOT = Path(__file__).parents[2]
PROFILES = sorted((ROOT / "tests/testdata/profiles").glob("*.gz"))
INPUTS = Path(__file__).with_name("inputs.py")
REPORT = ROOT / "docs/benchmarks.md"
PPROF_MERGE = str(Path(sys.executable).parent / "pprof-merge")
ROUNDS = 5

DECODING = """
import json, sys, time
from pathlib import Path
from pprof_merge import decode
profiles = [Path(name).read_bytes() for name in sys.argv[1:]]
decode(profiles[0])
began = time.process_time()
for profile in profiles:
    decode(profile)
print(json.dumps(time.process_time() - began))
"""


class Cost(NamedTuple):
    """Of one process: seconds of all cores, seconds on the clock, most memory in MiB."""

    cpu: float
    wall: float
    memory: float


class Pair(NamedTuple):
    """The medians of both."""

    ours: Cost
    go: Cost


def cost(command: list[str], folder: Path) -> Cost:
    """Runs a command to its end."""
    began = time.perf_counter()
    environment = {**go_environment(), "PPROF_TMPDIR": str(folder), "PPROF_BINARY_PATH": os.devnull}
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=null, stderr=null)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - began, usage.ru_maxrss / 1024)


def compare(count: int, sources: list[Path], pprof: str) -> Pair:
    """Merges `count` profiles with both commands."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "profiles")
        subprocess.run([sys.executable, INPUTS, str(count), folder, *sources], check=True)
        names = sorted(file.name for file in folder.iterdir())
        ours, go = [], []
        for _ in range(ROUNDS):
            ours.append(cost([PPROF_MERGE, "-o", "../ours", *names], folder))
            go.append(cost([pprof, "-symbolize=none", "-proto", "-output=../go", *names], folder))
    return Pair(_median(ours), _median(go))


def compare_decoding(sources: list[Path]) -> tuple[float, float]:
    """Seconds a profile, ours and Go's, in processes that run already."""
    many = sources * 5
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch, "oracle")) as oracle:
        ours, go = [], []
        for _ in range(ROUNDS):
            command = [sys.executable, "-c", DECODING, *map(str, many)]
            ours.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
            go.append(oracle.parse_seconds([source.read_bytes() for source in many]))
    return median(ours) / len(many), median(go) / len(many)


def main() -> None:
    """Measures, and writes the report."""
    default = go_root() / "src/cmd/compile/default.pgo"
    pprof = subprocess.run([GO, "tool", "-n", "pprof"], env=go_environment(), check=True, capture_output=True)
    program = pprof.stdout.decode().strip()
    busy = os.getloadavg()[0]
    lines = [
        "| input | Go ÷ ours: CPU | clock | memory | ours: CPU | clock | memory |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    cases = [(f"{count} small profiles", count, PROFILES) for count in (10, 50, 200)]
    for name, count, sources in [*cases, ("10 of the compiler's `default.pgo`", 10, [default])]:
        ours, go = compare(count, sources, program)
        ratios = " | ".join(f"{theirs / mine:.2f}" for mine, theirs in zip(ours, go, strict=True))
        lines.append(f"| {name} | {ratios} | {ours.cpu:.2f} s | {ours.wall:.2f} s | {ours.memory:.0f} MiB |")
        _show(lines[-1])
    decoding = []
    for name, sources in (("small profile", PROFILES), ("the compiler's `default.pgo`", [default])):
        mine, theirs = compare_decoding(sources)
        decoding.append(f"| {name} | {theirs / mine:.2f} | {1000 * mine:.2f} ms |")
        _show(decoding[-1])
    REPORT.write_text(_report(lines, decoding, busy))


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _median(costs: list[Cost]) -> Cost:
    return Cost(*map(median, zip(*costs, strict=True)))


def _machine() -> str:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    model = models[0].split(":")[1].strip() if models else platform.machine()
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def _report(merging: list[str], decoding: list[str], busy: float) -> str:
    go = subprocess.run([GO, "version"], env=go_environment(), check=True, capture_output=True, text=True)
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "protobuf", "isal", "deflate"))
    today = dt.datetime.now(dt.UTC).date()
    return f"""# Benchmarks

Written by `make bench` on {today}: {_machine()}; load {busy:.1f} at the start.
Python {platform.python_version()}, {versions}; {go.stdout.split()[2]}.

## Merging: whole processes

`pprof-merge` beside `pprof -symbolize=none -proto` (the program that `go tool pprof` runs, started
without the `go` command before it). The two take turns, {ROUNDS} times; each number is a median. A ratio
above 1 means that ours takes less. CPU is the time of all cores together: Go's parses on all of them at
once, ours on one.

{chr(10).join(merging)}

The small profiles are those in `tests/testdata/profiles`, over and over with other times, 29 to 110 KB
of protobuf each.

## Decoding: within a process

`decode` beside `profile.Parse`, a profile at a time, inflating included.

| input | Go ÷ ours: CPU | ours |
|---|---:|---:|
{chr(10).join(decoding)}
"""


if __name__ == "__main__":
    main()
