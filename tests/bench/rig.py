"""The rig that all groups of benchmarks share: the programs, and the profiles that they run on."""

from __future__ import annotations

import compileall
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.bench.measure import Cost, progress, within
from tests.oracle.oracle import build, go_root, go_tool

ROOT = Path(__file__).parents[2]
ENGINE = (sys.executable, "-m", "tests.bench.engine")
LARGE = 10_000
# The number of profiles to submit after the large merge.
MORE = 60


@dataclass
class Rig:
    """The programs and the profiles.

    `sources` are real profiles. All counts are divided by `scale`. All files are written below `scratch`.
    `profefe` is a binary of profefe, if there is one.
    """

    sources: list[Path]
    scratch: Path
    scale: int = 1
    profefe: Path | None = None

    def count(self, profiles: int) -> int:
        """Return a number of profiles, divided by the scale."""
        return max(2, profiles // self.scale)

    def rounds(self, most: int) -> int:
        """Return how often to measure: once at a small scale, which only tries the suite."""
        return most if self.scale == 1 else 1

    @property
    def pgbench(self) -> tuple[str, ...]:
        """Return options of pgbench. At a small scale it leaves most of both cores to other tests."""
        return () if self.scale == 1 else ("--rate=200",)

    @cached_property
    def go(self) -> Path:
        """Return the `go` binary itself; the one in PATH may be a script that starts it."""
        return go_root() / "bin/go"

    @cached_property
    def pprof(self) -> Path:
        """Return the program that `go tool pprof` runs."""
        return go_tool("pprof")

    @cached_property
    def pprof_merge(self) -> Path:
        """Return the command, with its modules compiled: pip does it on installation, a workspace doesn't."""
        for package in ("proto", "merge"):
            compileall.compile_dir(ROOT / package, quiet=1)
        return Path(sys.executable).parent / "pprof-merge"

    @cached_property
    def gobench(self) -> Path:
        """Return the program for Go's side of measurements within a process."""
        folder = self.scratch / "gobench"
        folder.mkdir()
        return build(folder, Path(__file__).with_name("gobench.go"))

    @cached_property
    def real(self) -> Path:
        """Return a folder of copies of the sources."""
        return self._made("real", self.sources, self.count(LARGE) + MORE)

    @cached_property
    def mutated(self) -> Path:
        """Return a folder of copies with differing stacks: see gobench.go."""
        folder = self.scratch / "mutated"
        count = self.count(LARGE) + MORE
        progress(f"making {count} mutated profiles")
        real = self.real
        folder.mkdir()
        subprocess.run([self.gobench, "mutate", real, str(count), folder], check=True)
        return folder

    @cached_property
    def compiler(self) -> Path:
        """Return a folder of copies of the Go compiler's own profile."""
        return self._made("compiler", [go_root() / "src/cmd/compile/default.pgo"], self.count(200))

    @cached_property
    def go_at_large(self) -> dict[Path, Cost]:
        """Return the cost of Go's full merge of `LARGE` profiles, as pgo-fleet merges; run once, for a
        minute.
        """
        return {folder: self._go_merge(folder) for folder in (self.real, self.mutated)}

    def _go_merge(self, folder: Path) -> Cost:
        count = self.count(LARGE)
        cost = within([self.gobench, "merge", folder, str(count), "1"], self.scratch)
        progress(f"{count} {folder.name}: Go: {cost.cpu:.1f} s CPU, {cost.wall:.1f} s, {cost.memory:.0f} MiB")
        return cost

    def _made(self, name: str, sources: list[Path], count: int) -> Path:
        progress(f"making {count} {name} profiles")
        folder = self.scratch / name
        program = [sys.executable, "-m", "tests.bench.corpus"]
        subprocess.run([*program, folder, str(count), *sources], cwd=ROOT, check=True)
        return folder
