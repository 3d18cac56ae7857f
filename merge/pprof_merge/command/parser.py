"""The parser of the command line. Its import takes as long as merging some profiles: see `options`."""

from __future__ import annotations

import argparse
import os
import sys

from pprof_proto.release import ShowVersion

from pprof_merge.command.files import STANDARD_STREAM
from pprof_merge.compiled import ENGINE
from pprof_merge.errors import WeightingInvalid
from pprof_merge.formats import BOLT, FORMATS
from pprof_merge.merging.weights import PLAIN_WEIGHTING, WEIGHTS, parse_half_life

_COLUMNS = 80  # of a terminal that has no width


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    described = argparse.ArgumentParser(
        prog="pprof-merge",
        description="Merge pprof profiles into one. The order of the files makes no difference.",
        epilog=(
            "`pprof-merge view FILE` shows a profile in the browser, and `pprof-merge view FILE FILE` the"
            " difference of two. Exit status: 0, or 2 with a message that names the file or option at fault."
        ),
        formatter_class=_formatter,
    )
    described.add_argument("--version", action=ShowVersion, of="pprof-merge", more=f", engine {ENGINE}")
    described.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        default=STANDARD_STREAM,
        help="the file to write (default: standard output)",
    )
    described.add_argument(
        "--format",
        choices=[*FORMATS, BOLT.name],
        default="pprof",
        help="the format of the output (default: pprof)",
    )
    described.add_argument(
        "--binary",
        metavar="PROGRAM",
        help=(
            "for the formats llvm and bolt: the program that was profiled; for llvm, with debug lines, for"
            " better counts"
        ),
    )
    described.add_argument(
        "--symbolize",
        metavar="PROGRAM",
        action="append",
        help=(
            "name the functions of a program that was profiled without its symbols, by a copy of it that"
            " has them; may be repeated, also for libraries"
        ),
    )
    described.add_argument(
        "--rules",
        metavar="RULES",
        help="a file of rules: functions to drop, or to keep from being inlined",
    )
    described.add_argument(
        "--weight",
        choices=WEIGHTS,
        default=PLAIN_WEIGHTING.by,
        help=(
            "give the same weight to each sample (sum, the default), each second of profiling, each"
            " instance or each version"
        ),
    )
    described.add_argument(
        "--half-life",
        metavar="AGE",
        type=_half_life,
        default=PLAIN_WEIGHTING.half_life,
        help=(
            "halve a profile's weight for each AGE that it is older than the newest: a number and s,"
            " m, h, d or w, such as 7d"
        ),
    )
    described.add_argument(
        "--sample-labels",
        choices=("all", "stable"),
        default="all",
        help=(
            "which labels samples keep: all (the default), or stable, without those that differ for each"
            " request, such as `span id`"
        ),
    )
    described.add_argument(
        "--report",
        metavar="REPORT",
        help="also write a report on the merge to this file, as JSON",
    )
    described.add_argument(
        "--symbols",
        metavar="SYMBOLS",
        help=(
            "for the report: a file with the functions of a program, from `go tool nm` or nm, or one"
            " name per line"
        ),
    )
    described.add_argument(
        "--against",
        metavar="PROFILE",
        help="for the report: a profile to compare with, such as the last release",
    )
    described.add_argument(
        "-j",
        "--jobs",
        metavar="N",
        type=_at_least_one,
        default=1,
        help="the number of processes that read the files (default: 1)",
    )
    described.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a pprof profile, gzipped or bare; - is standard input",
    )
    return described


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return argparse's formatter, which would import `shutil` and all it needs to learn the width itself."""
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    if not width and sys.stdout.isatty():
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    return argparse.HelpFormatter(prog, width=(width or _COLUMNS) - 2)


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _half_life(text: str) -> int:
    try:
        return parse_half_life(text)
    except WeightingInvalid as error:
        raise argparse.ArgumentTypeError(str(error)) from None
