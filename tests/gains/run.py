"""Measure what programs gain, and write docs/gains.md: `python -m tests.gains.run PROGRAM ...`.

What was measured here for that page isn't measured again unless `--again` asks for it, so a run that was
interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.measure import progress
from tests.gains import curve, fleet, page, postgres, python
from tests.gains.builds import ClangBuilder, Toolchain
from tests.gains.go import GoProgram, go_gain
from tests.gains.go_programs import go_programs
from tests.gains.go_servers import SERVERS
from tests.gains.native import gain
from tests.gains.programs import PROGRAMS, ROOT
from tests.gains.rust import RustBuilder
from tests.gains.servers import server_gain

_ALL = "all"
# How many profiles are taken of a program.
_OF_GO, _OF_OTHERS = 5, 3
_DONE = ROOT / ".dev" / "gains" / "done"
# By program: how many samples its profile has, from which smaller ones are drawn.
_CURVES = {"json": 320_000, "lua": 1_000_000, "sqlite": 100_000, "logsum": 3200, "gotype": 3500}


def parser(names: list[str]) -> argparse.ArgumentParser:
    """Return the parser of the command line; `names` are those of the programs."""
    described = argparse.ArgumentParser(prog="make gains ARGS=", description="Measure what programs gain.")
    choices = [*names, _ALL]
    described.add_argument(
        "programs",
        metavar="PROGRAM",
        nargs="+",
        choices=choices,
        help=f"{', '.join(names)}, or all, which are those of the table of programs",
    )
    described.add_argument("--again", action="store_true", help="measure also what was measured here before")
    described.add_argument("--clang", default="clang", help="the compiler, such as clang-19 (default: clang)")
    described.add_argument(
        "--profiles",
        type=int,
        help="profiles that are taken, and built with (default: 5 of a Go program, 3 of another)",
    )
    described.add_argument("--rounds", type=int, default=9, help="runs of each build (default: 9)")
    described.add_argument("--hertz", type=int, help="samples a second of CPU (default: the program's)")
    described.add_argument("--samples", type=int, help="how many samples a curve has at most")
    described.add_argument(
        "--page", type=Path, default=page.FILE, metavar="FILE", help="where to write (default: docs)"
    )
    described.add_argument("--keep", type=Path, metavar="FOLDER", help="keep builds and profiles there")
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the programs one after another, and write the rows of each."""
    of_go = go_programs()
    curves = [curve.PREFIX + name for name in _CURVES]
    programs = [
        name for name in (*PROGRAMS, *of_go, *SERVERS, postgres.NAME, python.NAME) if name in page.KINDS
    ]
    options = parser([*programs, fleet.NAME, *curves]).parse_args(arguments)
    asked = programs if _ALL in options.programs else options.programs
    with tempfile.TemporaryDirectory(prefix="gains-") as scratch:
        for number, name in enumerate(asked, 1):
            progress(f"{name}: {number} of {len(asked)}")
            done = _DONE / f"{name}-{Path(options.clang).name}"
            # Rows on another page are a trial.
            is_kept = options.page == page.FILE
            if is_kept and done.exists() and not options.again:
                progress(f"{name}: was measured here before; measure it again with --again")
                continue
            folder = (options.keep or Path(scratch)).resolve() / name
            folder.mkdir(parents=True)
            if name in curves:
                _measure_curve(name, of_go, folder, options)
            elif name == fleet.NAME:
                fleet.measure(of_go, folder, options.page)
            else:
                for gained in _gains(name, of_go, folder, options):
                    page.write(options.page, gained)
            if options.keep is None:
                shutil.rmtree(folder)
            if is_kept:
                _DONE.mkdir(parents=True, exist_ok=True)
                done.touch()
    progress(f"written: {options.page}; call `make docs`, which draws the charts")
    return 0


def _gains(
    name: str, of_go: Mapping[str, GoProgram], folder: Path, options: argparse.Namespace
) -> list[page.Gain]:
    other = "" if options.clang == "clang" else f" --clang {Path(options.clang).name}"
    command = f'make gains ARGS="{name}{other}"'
    if name in of_go:
        return [go_gain(of_go[name], folder, options.profiles or _OF_GO, options.rounds)]
    if name in SERVERS:
        return [server_gain(SERVERS[name](), folder, options.profiles or _OF_GO, options.rounds)]
    toolchain = Toolchain(options.clang)
    if name == postgres.NAME:
        return postgres.postgres_gains(toolchain, folder, options.rounds, command)
    if name == python.NAME:
        return [python.python_gain(folder, options.rounds)]
    program = PROGRAMS[name]
    kind = RustBuilder if program.is_rust else ClangBuilder
    builder = kind(program, toolchain, folder)
    measured = gain(
        program,
        builder,
        folder,
        profiles=options.profiles or _OF_OTHERS,
        rounds=options.rounds,
        hertz=options.hertz or program.hertz,
        command=command,
    )
    return [measured]


def _measure_curve(
    name: str, of_go: Mapping[str, GoProgram], folder: Path, options: argparse.Namespace
) -> None:
    program = name.removeprefix(curve.PREFIX)
    samples = options.samples or _CURVES[program]
    asked = f" --samples {options.samples}" if options.samples else ""
    subject: curve.Subject = (
        curve.GoSubject(of_go[program], folder, samples)
        if program in of_go
        else curve.NativeSubject(PROGRAMS[program], folder, samples)
    )
    curve.measure(subject, options.page, f'make gains ARGS="{name}{asked}"', page.INTRODUCTION)


if __name__ == "__main__":
    sys.exit(main())
