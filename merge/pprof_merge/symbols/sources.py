"""Write the table of a program: from where its names are, in the order of what says most."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_merge.symbols.debug_information import read_debug_information
from pprof_merge.symbols.elf import Elf
from pprof_merge.symbols.go_lines import read_go_lines
from pprof_merge.symbols.symbol_table import read_symbols, without_sizeless
from pprof_merge.symbols.table import Facts, Places, over, write_arrays

_ALTERNATE = ".gnu_debugaltlink"
_LONGEST_PATH = 4096
_PADDING = 64  # bytes behind the last function of Go
_DEBUG = {".debug_info", ".zdebug_info"}


def write_table(program: Path, to: BinaryIO, limits: BinaryLimits | None = None) -> str:
    """Write the table of a program or its debug file, and return its build id.

    Raises OSError, and BinaryInvalid, also for one that is over a limit.
    """
    limits = limits or BinaryLimits()
    elf = Elf.at(program, limits)
    if not elf.build_id:
        raise BinaryInvalid(
            "it has no build id, by which it is known in profiles; link it with -Wl,--build-id"
        )
    places, missing = _places(program, elf, limits)
    if not (places.function >= 0).any():
        raise BinaryInvalid("it has no symbols; give the program before it was stripped")
    write_arrays(Facts(elf.build_id, elf.base, elf.code, elf.pages, missing), places, to)
    return elf.build_id


def _places(program: Path, elf: Elf, limits: BinaryLimits) -> tuple[Places, str]:
    """Return the places of a program, and what these lack."""
    has_debug = not _DEBUG.isdisjoint(elf.sections)
    go = read_go_lines(elf, limits)
    if go is not None and not (go[1] and has_debug):
        first, last = (elf.base + int(go[0].starts[row]) for row in (0, -1))
        if first <= elf.text.start and last + _PADDING >= elf.text.stop:
            return go
        # Before and behind Go's code is that of other languages.
        return over(go[0], _of_other_languages(program, elf, limits)), go[1]
    link, missing = elf.sections.get(_ALTERNATE), ""
    if link is not None and has_debug:
        path = bytes(link.content[:_LONGEST_PATH]).partition(b"\0")[0].decode(errors="replace")
        missing = f"its debug information refers to {path}, which isn't read; names in that are missing"
    return _of_other_languages(program, elf, limits), missing


def _of_other_languages(program: Path, elf: Elf, limits: BinaryLimits) -> Places:
    if _DEBUG.isdisjoint(elf.sections):
        return read_symbols(elf, limits)
    return without_sizeless(read_debug_information(program, limits), elf, limits)
