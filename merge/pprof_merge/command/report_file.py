"""The option `--report` of the command: write the report on the merge of the command's files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from pprof_merge.analysis.build_report import ReportedProfile, ReportOptions, report
from pprof_merge.analysis.coverage import parse_symbols
from pprof_merge.analysis.gain import kept_by_llvm
from pprof_merge.analysis.rules import Rules
from pprof_merge.budget import Budget
from pprof_merge.codec.decoding import decode
from pprof_merge.command.files import BadInputError, read, write
from pprof_merge.errors import BinaryInvalid, ProfileError, SymbolsInvalid, UnfitForFormat
from pprof_merge.limits import BinaryLimits, Limits
from pprof_merge.merging.collection import Collection
from pprof_merge.profile import Profile


def write_report(
    name: str,
    collection: Collection,
    names: Sequence[str],
    *,
    symbols: str | None,
    against: str | None,
    rules: Rules | None,
    binary: str | None,
) -> None:
    """Write the report on the merge of a collection to the file `name`.

    `names` are the files of the collection's profiles. `symbols`, `against` and `binary` are names of files
    too. Raises BadInputError and ProfileError.
    """
    options = ReportOptions(
        symbols=None if symbols is None else _symbols(symbols),
        against=None if against is None else _profile(against),
        rules=rules or Rules(),
        kept_by_llvm=kept_by_llvm if binary is None else partial(_kept_with, binary),
    )
    try:
        reported = [ReportedProfile(number, file) for number, file in enumerate(names)]
        made = report(collection, reported, time.time_ns(), options)
    except UnfitForFormat as unfit:
        raise BadInputError(f"--against {against}: {unfit}") from unfit
    write(name, made.json())


def _kept_with(binary: str, profile: Profile, budget: Budget) -> int:
    """Return the sum of the values in the format llvm with a program. Raises UnfitForFormat."""
    from pprof_merge.binary import Binary, kept_with_binary, llvm_with_binary  # noqa: PLC0415 - an extra

    try:
        build_id = Binary.at(binary, BinaryLimits()).build_id
        return kept_with_binary(profile, llvm_with_binary(profile, binary, budget=budget), build_id)
    except (BinaryInvalid, OSError) as error:
        raise UnfitForFormat(f"{binary} doesn't help: {error}") from error


def _symbols(name: str) -> frozenset[bytes]:
    try:
        return parse_symbols(read(name))
    except SymbolsInvalid as error:
        raise BadInputError(f"{name}: {error}") from error


def _profile(name: str) -> Profile:
    try:
        return decode(read(name), Limits.none())
    except ProfileError as error:
        raise BadInputError(f"{name}: {error}") from error
