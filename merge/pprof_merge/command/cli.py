"""The command `pprof-merge`: reads its options and files, writes their merge.

Modules that only some calls need are imported where they are used, and NumPy with them: to import them would
take longer than to merge ten profiles. Modules with named tuples do without postponed annotations, which
would be compiled one by one at the import.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pprof_proto.release import ShowVersion

from pprof_merge.command.files import STANDARD_STREAM, BadInputError, read, write
from pprof_merge.command.parallel import collect
from pprof_merge.compiled import ENGINE
from pprof_merge.errors import BinaryInvalid, ProfileError, RulesInvalid, WeightingInvalid
from pprof_merge.formats import FORMATS, Format
from pprof_merge.heap import keep_heap
from pprof_merge.merging.batch import Batch
from pprof_merge.merging.weights import PLAIN_WEIGHTING, WEIGHTS, Weighting, parse_half_life, times_until
from pprof_merge.profile import Profile
from pprof_merge.streams import say

if TYPE_CHECKING:
    from pprof_merge.analysis.rules import Rules

_BAD_INPUT = 2
# Columns of a profile are smaller. Those of all profiles grow by being copied, and old ones are given back.
_KEPT_BLOCK = 8 << 20
_COLUMNS = 80  # of a terminal that has no width
_MOST_TOLD = 5  # build ids in a message
# A command that another package adds, and the group of its entry point.
_VIEW, _COMMANDS = "view", "pprof_merge.commands"
_INTERRUPTED = 130  # what shells give for SIGINT


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
        choices=FORMATS,
        default="pprof",
        help="the format of the output (default: pprof)",
    )
    described.add_argument(
        "--binary",
        metavar="PROGRAM",
        help="for the format llvm: the program that was profiled, with debug lines, for better counts",
    )
    described.add_argument(
        "--symbolize",
        metavar="PROGRAM",
        action="append",
        default=[],
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == [_VIEW]:
        return _view(given[1:])
    keep_heap(_KEPT_BLOCK)
    command = parser()
    options = command.parse_args(given)
    wanted = FORMATS[options.format]
    if wanted.binary and options.output == STANDARD_STREAM and sys.stdout.isatty():
        command.error("standard output is a terminal; name a file with -o")
    if options.binary is not None and wanted.name != "llvm":
        command.error("--binary needs --format llvm")
    _check_report(command, options)
    try:
        rules = None if options.rules is None else _rules(options.rules)
        weighting = Weighting(options.weight, options.half_life)
        batch = collect(options.files, options.jobs, every_label=options.sample_labels == "all")
        _check_weighable(options.files, batch, weighting)
        depth = None if rules else wanted.depth  # rules match in whole stacks
        merged = _named(_merged(batch, options, weighting, depth, rules), options.symbolize)
        merged = _ruled(merged, rules)
        formatted = _formatted if options.binary is None else partial(_with_binary, options.binary)
        write(options.output, formatted(merged, wanted))
    except (BadInputError, ProfileError) as error:
        say(f"pprof-merge: {error}")
        return _BAD_INPUT
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _view(arguments: Sequence[str]) -> int:
    """Run the command `view`, whose pages are the collector's: it is installed by itself."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - see _Version

    for command in entry_points(group=_COMMANDS, name=_VIEW):
        gc.enable()  # the entry point disables it for a command that ends soon
        sys.exit(command.load()(arguments))  # an end with all that has to be done, such as deleting files
    say("pprof-merge: view needs the collector's pages: pip install pgo-collector")
    return _BAD_INPUT


def _check_report(command: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.report is None and (options.symbols or options.against):
        command.error("--symbols and --against need --report")
    if options.report == options.output == STANDARD_STREAM:
        command.error(
            "the merge and the report can't both go to standard output; name a file with -o or --report"
        )


def _check_weighable(names: Sequence[str], batch: Batch, weighting: Weighting) -> None:
    for name, profile in zip(names, batch.profiles, strict=True):
        if refusal := weighting.refusal(profile.duration_nanos):
            raise BadInputError(f"{name}: {refusal}")


def _rules(name: str) -> Rules:
    from pprof_merge.analysis.rules import parse_rules  # noqa: PLC0415 - imports NumPy

    try:
        return parse_rules(read(name))
    except RulesInvalid as error:
        raise BadInputError(f"{name}: {error}") from error


def _merged(
    batch: Batch, options: argparse.Namespace, weighting: Weighting, depth: int | None, rules: Rules | None
) -> Profile:
    """Return the merge of the files; write the report on it, if one is wanted."""
    if weighting.is_plain and options.report is None:
        return batch.merge(depth)
    from pprof_merge.command.report_file import write_report  # noqa: PLC0415 - imports NumPy
    from pprof_merge.merging.collection import Collection  # noqa: PLC0415 - imports NumPy

    times = times_until(time.time_ns(), [profile.time_nanos for profile in batch.profiles])
    collection = Collection(batch=batch)
    if options.report is not None:
        write_report(
            options.report,
            collection,
            options.files,
            symbols=options.symbols,
            against=options.against,
            rules=rules,
            binary=options.binary,
        )
    return collection.merge(weighting=weighting, depth=depth, times=times)


def _named(merged: Profile, programs: Sequence[str]) -> Profile:
    """Return the merge with the names that programs know. Raises BadInputError."""
    if not programs:
        return merged
    from pathlib import Path  # noqa: PLC0415 - as below
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - as below

    from pprof_merge.merging import merge  # noqa: PLC0415 - imports NumPy
    from pprof_merge.symbols import SymbolTable, with_names, write_table  # noqa: PLC0415 - as above

    tables = {}
    with TemporaryDirectory(prefix="pprof-merge-") as folder:
        for number, program in enumerate(programs):
            table = Path(folder) / str(number)
            try:
                with table.open("wb") as file:
                    build_id = write_table(Path(program), file)
                _check_known(program, build_id, merged)
                tables[build_id] = found = SymbolTable.open(table)
                if found.missing:
                    say(f"pprof-merge: --symbolize {program}: {found.missing}")
            except ModuleNotFoundError as error:
                raise BadInputError(
                    f"--symbolize needs {error.name}: pip install 'pprof-merge[binary]'"
                ) from None
            except BinaryInvalid as error:
                raise BadInputError(f"--symbolize {program}: {error}") from error
            except OSError as error:
                raise BadInputError(f"--symbolize {program}: {error.strerror}") from error
        return merge([with_names(merged, tables)])


def _check_known(program: str, build_id: str, merged: Profile) -> None:
    """Raise BadInputError if no mapping of the merge is of a program."""
    known = {merged.strings[row].decode(errors="replace") for row in merged.mappings.build_id.tolist()} - {""}
    if build_id not in known:
        of = ", ".join(sorted(known)[:_MOST_TOLD]) or "none"
        raise BadInputError(
            f"--symbolize {program}: its build id is {build_id}, and those in the profiles are: {of}"
        )


def _ruled(merged: Profile, rules: Rules | None) -> Profile:
    if not rules:
        return merged
    from pprof_merge.analysis.rules import apply_rules  # noqa: PLC0415 - imports NumPy

    return apply_rules(merged, rules)


def _formatted(profile: Profile, wanted: Format) -> bytes:
    try:
        return wanted.write(profile)
    except ProfileError as error:
        raise BadInputError(f"--format {wanted.name}: {error}") from error


def _with_binary(path: str, profile: Profile, wanted: Format) -> bytes:
    from pprof_merge.binary import llvm_with_binary  # noqa: PLC0415 - imports NumPy

    try:
        return b"".join(llvm_with_binary(profile, path))
    except ModuleNotFoundError as error:
        raise BadInputError(f"--binary needs {error.name}: pip install 'pprof-merge[binary]'") from None
    except ProfileError as error:
        raise BadInputError(f"--format {wanted.name}: {error}") from error
    except BinaryInvalid as error:
        raise BadInputError(f"--binary {path}: {error}") from error
    except OSError as error:
        raise BadInputError(f"--binary {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
