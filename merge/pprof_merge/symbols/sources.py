"""Write the table of a program: from where its names are, in the order of what says most."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_merge.symbols.debug_information import read_debug_information
from pprof_merge.symbols.elf import Elf
from pprof_merge.symbols.table import Facts, write_arrays

_ALTERNATE = ".gnu_debugaltlink"
_LONGEST_PATH = 4096


def write_table(program: Path, to: BinaryIO, limits: BinaryLimits | None = None) -> str:
    """Write the table of a program or its debug file, and return its build id.

    Raises OSError, and BinaryInvalid, also for one that is over a limit.
    """
    elf = Elf.at(program, limits or BinaryLimits())
    if not elf.build_id:
        raise BinaryInvalid(
            "it has no build id, by which it is known in profiles; link it with -Wl,--build-id"
        )
    _, places = read_debug_information(program)
    if not (places.function >= 0).any():
        raise BinaryInvalid("it has no symbols; give the program before it was stripped")
    write_arrays(Facts(elf.build_id, elf.base, elf.code, elf.pages, _missing(elf)), places, to)
    return elf.build_id


def _missing(elf: Elf) -> str:
    """Return which file has some of the program's debug information, and isn't read; "" if it has all."""
    link = elf.sections.get(_ALTERNATE)
    if link is None or ".debug_info" not in elf.sections:
        return ""
    path = bytes(link.content[:_LONGEST_PATH]).partition(b"\0")[0].decode(errors="replace")
    return f"its debug information refers to {path}, which isn't read: names that are there are missing"
