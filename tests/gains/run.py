"""Measure what programs gain, and write docs/gains.md: `python -m tests.gains.run PROGRAM ...`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.bench.measure import progress
from tests.gains import page
from tests.gains.go import go_gain, go_programs
from tests.gains.native import gain
from tests.gains.programs import PROGRAMS


def parser(names: list[str]) -> argparse.ArgumentParser:
    """Return the parser of the command line; `names` are those of the programs."""
    described = argparse.ArgumentParser(prog="make gains ARGS=", description="Measure what programs gain.")
    described.add_argument("programs", metavar="PROGRAM", nargs="+", choices=names, help=", ".join(names))
    described.add_argument("--clang", default="clang", help="the compiler, such as clang-19 (default: clang)")
    described.add_argument("--rounds", type=int, default=7, help="runs of each build (default: 7)")
    described.add_argument("--hertz", type=int, default=997, help="samples a second of CPU (default: 997)")
    described.add_argument(
        "--page", type=Path, default=page.FILE, metavar="FILE", help="where to write (default: docs)"
    )
    described.add_argument("--keep", type=Path, metavar="FOLDER", help="keep builds and profiles there")
    return described


def main() -> int:
    """Measure the programs one after another, and write the rows of each."""
    of_go = go_programs()
    options = parser([*PROGRAMS, *of_go]).parse_args()
    with tempfile.TemporaryDirectory(prefix="gains-") as scratch:
        for name in options.programs:
            folder = (options.keep or Path(scratch)).resolve() / name
            folder.mkdir(parents=True)
            measured = (
                go_gain(of_go[name], folder, options.rounds)
                if name in of_go
                else gain(PROGRAMS[name], options.clang, folder, options.rounds, options.hertz)
            )
            page.write(options.page, measured)
    progress(f"written: {options.page}; call `make docs`, which draws the chart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
