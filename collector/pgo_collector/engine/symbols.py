"""Names for addresses: the tables of symbols of uploaded programs, and the views and merges that they name.

A program's table is made once, in a worker, and kept among the `blobs.copies` of this machine, from where it
is mapped into memory. A stored profile stays as it was sent: names are given to what is made of it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from pprof_merge import Profile
from pprof_merge.binary import BinaryInvalid, BinaryLimits
from pprof_merge.symbols import SymbolTable, bare_builds, with_names, write_table

from pgo_collector.blobs.copies import Copies
from pgo_collector.engine.renditions import StoredBinary
from pgo_collector.errors import CopyDamaged
from pgo_collector.traces.spans import span

# The tables that this process has mapped, by their program's SHA-256, those used last at the end. What can't
# be read has none, which isn't found out again for each view.
_OPEN: OrderedDict[str, SymbolTable | None] = OrderedDict()
_MOST_OPEN = 256


class Symbols:
    """The programs whose symbols name what views show of a service: one for each build id, the best first."""

    def __init__(self, stored: tuple[StoredBinary, ...], limits: BinaryLimits) -> None:
        self.stored, self.limits = stored, limits

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of what the names depend on, in hex; "" if there are no programs."""
        if not self.stored:
            return ""
        return sha256(
            "\n".join(sorted(f"{of.build_id}={of.sha256}" for of in self.stored)).encode()
        ).hexdigest()

    def named(self, profile: Profile) -> Profile:
        """Return a profile in which locations without functions have those that a program has there."""
        if not self.stored:
            return profile
        missing = bare_builds(profile)
        wanted = [of for of in self.stored if of.build_id in missing]
        if not wanted:
            return profile
        with span("engine", "name functions", programs=len(wanted)):
            tables = {of.build_id: table for of in wanted if (table := _opened(of, self.limits)) is not None}
            try:
                return with_names(profile, tables)
            except BinaryInvalid:  # a copy was damaged on disk: the next view has others
                for of in wanted:
                    of.copies.delete(_key(of.sha256))
                    _OPEN.pop(of.sha256, None)
                return profile


NO_SYMBOLS = Symbols((), BinaryLimits())


def make_table(sha256_of_program: str, program: Path, limits: BinaryLimits, copies: Copies) -> str:
    """Make the table of a program, unless it is there, and return the program's build id.

    Raises BinaryInvalid and OSError.
    """

    def write(file: BinaryIO) -> None:
        write_table(program, file, limits)

    return _table(copies, _key(sha256_of_program), write).build_id


def _opened(binary: StoredBinary, limits: BinaryLimits) -> SymbolTable | None:
    """Return the table of a program, which is made if it isn't there; None if that isn't possible."""

    def write(file: BinaryIO) -> None:
        with binary.open() as program:
            write_table(path_of(program), file, limits)

    if binary.sha256 not in _OPEN:
        _OPEN[binary.sha256] = None
        with suppress(BinaryInvalid, CopyDamaged, OSError, ModuleNotFoundError):
            _OPEN[binary.sha256] = _table(binary.copies, _key(binary.sha256), write)
        while len(_OPEN) > _MOST_OPEN:
            _OPEN.popitem(last=False)
    _OPEN.move_to_end(binary.sha256)
    return _OPEN[binary.sha256]


def _table(copies: Copies, key: str, write: Callable[[BinaryIO], None]) -> SymbolTable:
    """Return the table in a copy. One that can't be read, such as another version's, is made again."""
    with copies.open(key, write) as file, suppress(BinaryInvalid):
        return SymbolTable.open(path_of(file))
    copies.delete(key)
    with copies.open(key, write) as file:
        return SymbolTable.open(path_of(file))


def _key(sha256_of_program: str) -> str:
    return f"{sha256_of_program}.symbols"


def path_of(file: BinaryIO) -> Path:
    """Return a path of an open file, which may have been deleted."""
    return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
