"""What all groups of benchmarks share: the programs, and the profiles that they are run on."""

from __future__ import annotations

import compileall
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.bench.measure import Cost, progress, within
from tests.oracle.oracle import GO, build, go_environment, go_root

ROOT = Path(__file__).parents[2]
ENGINE = (sys.executable, "-m", "tests.bench.engine")
LARGE = 10_000
# So many more, to be submitted once the large merge is there.
MORE = 60


@dataclass
class Rig:
    """`sources` are real profiles; all counts are divided by `scale`; all files are below `scratch`;
    `profefe` is a program of it, if there is one.
    """

    sources: list[Path]
    scratch: Path
    scale: int = 1
    profefe: Path | None = None

    def count(self, profiles: int) -> int:
        """How many to take for that many."""
        return max(2, profiles // self.scale)

    def rounds(self, most: int) -> int:
        """How often to measure: who only tries the suite needs no medians."""
        return most if self.scale == 1 else 1

    @cached_property
    def go(self) -> Path:
        """The `go` command itself: the one of the environment is a script that starts it."""
        return go_root() / "bin/go"

    @cached_property
    def pprof(self) -> Path:
        """The program that `go tool pprof` runs."""
        command = [GO, "tool", "-n", "pprof"]
        found = subprocess.run(command, env=go_environment(), check=True, capture_output=True, text=True)
        return Path(found.stdout.strip())

    @cached_property
    def pprof_merge(self) -> Path:
        """The command, its modules compiled: pip does that where it installs them, but not in a workspace."""
        for package in ("proto", "merge"):
            compileall.compile_dir(ROOT / package, quiet=1)
        return Path(sys.executable).parent / "pprof-merge"

    @cached_property
    def gobench(self) -> Path:
        """Go's side of what is measured within a process."""
        folder = self.scratch / "gobench"
        folder.mkdir()
        return build(folder, Path(__file__).with_name("gobench.go"))

    @cached_property
    def real(self) -> Path:
        """The folder of the sources, again and again."""
        return self._made("real", self.sources, self.count(LARGE) + MORE)

    @cached_property
    def mutated(self) -> Path:
        """The same with stacks that differ: see gobench.go."""
        folder = self.scratch / "mutated"
        count = self.count(LARGE) + MORE
        progress(f"making {count} mutated profiles")
        real = self.real
        folder.mkdir()
        subprocess.run([self.gobench, "mutate", real, str(count), folder], check=True)
        return folder

    @cached_property
    def compiler(self) -> Path:
        """The folder of copies of the Go compiler's own profile."""
        return self._made("compiler", [go_root() / "src/cmd/compile/default.pgo"], self.count(200))

    @cached_property
    def go_at_large(self) -> dict[Path, Cost]:
        """Go's full merge of `LARGE` profiles, as pgo-fleet merges: once each, for it takes a minute."""
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
