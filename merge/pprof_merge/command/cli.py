"""The command `pprof-merge`: reads its options and files, writes their merge.

Modules that only some calls need are imported where they are used, and NumPy with them: to import them would
take longer than to merge ten profiles. Modules with named tuples do without postponed annotations, which
would be compiled one by one at the import.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pprof_merge.command.files import STANDARD_STREAM, BadInputError, read, write
from pprof_merge.command.options import Options, read_options, refuse_usage
from pprof_merge.command.parallel import Reading, collect
from pprof_merge.errors import BinaryInvalid, ProfileError, RulesInvalid
from pprof_merge.formats import BOLT, FORMATS, Format
from pprof_merge.heap import keep_heap
from pprof_merge.merging.batch import Batch
from pprof_merge.merging.weights import Weighting, times_until
from pprof_merge.profile import Profile
from pprof_merge.streams import say

if TYPE_CHECKING:
    from pprof_merge.analysis.rules import Rules

_BAD_INPUT = 2
# Columns of a profile are smaller. Those of all profiles grow by being copied, and old ones are given back.
_KEPT_BLOCK = 8 << 20
_MOST_TOLD = 5  # build ids in a message
# A command that another package adds, and the group of its entry point.
_VIEW, _COMMANDS = "view", "pprof_merge.commands"
_INTERRUPTED = 130  # what shells give for SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == [_VIEW]:
        return _view(given[1:])
    keep_heap(_KEPT_BLOCK)
    options = read_options(given)
    wanted = FORMATS.get(options.format, BOLT)
    if wanted.binary and options.output == STANDARD_STREAM and sys.stdout.isatty():
        refuse_usage("standard output is a terminal; name a file with -o")
    if options.binary is not None and wanted.name not in {"llvm", BOLT.name}:
        refuse_usage("--binary needs --format llvm or bolt")
    if options.binary is None and wanted is BOLT:
        refuse_usage("--format bolt needs --binary")
    _check_report(options)
    try:
        rules = None if options.rules is None else _rules(options.rules)
        weighting = Weighting(options.weight, options.half_life)
        reading = Reading(options.sample_labels == "all", not _is_plain(options, weighting))
        batch = collect(options.files, options.jobs, reading)
        _check_weighable(options.files, batch, weighting)
        depth = None if rules else wanted.depth  # rules match in whole stacks
        merged = _named(_merged(batch, options, weighting, depth, rules), options.symbolize or ())
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


def _check_report(options: Options) -> None:
    if options.report is None and (options.symbols or options.against):
        refuse_usage("--symbols and --against need --report")
    if options.report == options.output == STANDARD_STREAM:
        refuse_usage(
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


def _is_plain(options: Options, weighting: Weighting) -> bool:
    """Return whether each profile is merged as it is, and nothing else is asked about it."""
    return weighting.is_plain and options.report is None


def _merged(
    batch: Batch, options: Options, weighting: Weighting, depth: int | None, rules: Rules | None
) -> Profile:
    """Return the merge of the files; write the report on it, if one is wanted."""
    if _is_plain(options, weighting):
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
    from pprof_merge.binary import bolt_with_binary, llvm_with_binary  # noqa: PLC0415 - imports NumPy

    try:
        return b"".join((bolt_with_binary if wanted is BOLT else llvm_with_binary)(profile, path))
    except ModuleNotFoundError as error:
        raise BadInputError(f"--binary needs {error.name}: pip install 'pprof-merge[binary,flow]'") from None
    except ProfileError as error:
        raise BadInputError(f"--format {wanted.name}: {error}") from error
    except BinaryInvalid as error:
        raise BadInputError(f"--binary {path}: {error}") from error
    except OSError as error:
        raise BadInputError(f"--binary {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
