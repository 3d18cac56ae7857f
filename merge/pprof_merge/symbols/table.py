"""Symbol tables: which functions and lines a program has at an address, in a file that is mapped into memory.

The package `symbolic` reads ELF and DWARF, in Rust, and has the format: a SymCache, sorted ranges of
addresses with the calls that are inlined there. Behind it, the file has what places in a profile need: the
program's build id and code, as JSON, and the length of that in four bytes. `symbolic` was chosen over
llvm-symbolizer, which starts for each question, and pyelftools, which takes minutes for a large program.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Self

from pprof_merge.errors import BinaryInvalid

if TYPE_CHECKING:
    from symbolic.symcache import SymCache

# Of ELF's head for 64 bits: where the program's segments are, how large one is, and how many there are.
_HEAD = struct.Struct("<32xQ14xHH")
# Type, flags, offset in the file, address, physical address, size in the file, size in memory, alignment.
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD, _EXECUTABLE = 1, 1
_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_FARTHEST, _MOST_BYTES = (1 << 63) - 1, 64 << 10  # of the table of segments
_LENGTH = struct.Struct("<I")


class Frame(NamedTuple):
    """A function by its linkage name, its source file, and a line in it; 0 if that isn't known."""

    name: str
    file: str
    line: int


class Segment(NamedTuple):
    """Code of a program: where it is in the file and in memory, and its size in the file."""

    offset: int
    address: int
    size: int


class SymbolTable:
    """A table in a file, as `write_table` writes it. Raises OSError and BinaryInvalid."""

    def __init__(self, build_id: str, base: int, code: list[Segment], cache: SymCache) -> None:
        self.build_id = build_id
        self._base, self._code = base, code
        self._cache = cache

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the table in a file, which must stay as it is."""
        from symbolic.exceptions import SymbolicError  # noqa: PLC0415 - an extra
        from symbolic.symcache import SymCache  # noqa: PLC0415 - an extra

        try:
            with path.open("rb") as file:
                file.seek(-_LENGTH.size, 2)
                (length,) = _LENGTH.unpack(file.read())
                file.seek(-_LENGTH.size - length, 2)
                build_id, base, code = json.loads(file.read(length))
            return cls(build_id, base, [Segment(*each) for each in code], SymCache.open(str(path)))
        except (ValueError, TypeError, SymbolicError) as error:
            raise BinaryInvalid(f"{path.name} is no table of symbols: {error}") from error

    def frames(self, place: int) -> list[Frame]:
        """Return the frames at a place in the program's file, the innermost call first; none if unknown."""
        for offset, address, size in self._code:
            if 0 <= place - offset < size:
                found = self._cache.lookup(place - offset + address - self._base)
                return [Frame(one.symbol, one.full_path or "", one.line) for one in found]
        return []


def write_table(program: Path, to: BinaryIO) -> str:
    """Write the table of a program, and return its build id. Raises OSError, and BinaryInvalid.

    It takes some four times the memory of the program's debug information.
    """
    from symbolic.debuginfo import Archive  # noqa: PLC0415 - an extra
    from symbolic.exceptions import SymbolicError  # noqa: PLC0415 - an extra

    base, code = _mapped(program)
    if base is None:
        raise BinaryInvalid("it is no ELF program of 64 bits; give the program that was profiled")
    if not any(segment.size for segment in code):
        raise BinaryInvalid("it has debug information only; give the program itself, as it was linked")
    try:
        found = next(Archive.open(str(program)).iter_objects())
        if not found.features & {"debug", "symtab"}:
            raise BinaryInvalid("it has no symbols; give the program before it was stripped")
        cache, build_id = found.make_symcache(), found.code_id or ""
    except SymbolicError as error:
        raise BinaryInvalid(f"it is a damaged program: {error}") from error
    if not build_id:
        raise BinaryInvalid(
            "it has no build id, by which it is known in profiles; link it with -Wl,--build-id"
        )
    cache.dump_into(to)
    facts = json.dumps([build_id, base, code]).encode()
    to.write(facts + _LENGTH.pack(len(facts)))
    return build_id


def _mapped(program: Path) -> tuple[int | None, list[Segment]]:
    """Return the lowest address at which a program's file is mapped, None if it is none, and its code.

    Raises OSError.
    """
    addresses, code = list[int](), list[Segment]()
    with program.open("rb") as file:
        head = file.read(_HEAD.size)
        if head[: len(_ELF_64_LITTLE)] != _ELF_64_LITTLE or len(head) < _HEAD.size:
            return None, code
        at, size, count = _HEAD.unpack(head)
        file.seek(min(at, _FARTHEST))
        table = file.read(min(size * count, _MOST_BYTES))
    for begin in range(0, len(table) - _SEGMENT.size + 1, max(size, _SEGMENT.size)):
        type_, flags, offset, address, _, in_file, _, _ = _SEGMENT.unpack_from(table, begin)
        if type_ == _LOAD:
            addresses.append(address)
            if flags & _EXECUTABLE:
                code.append(Segment(offset, address, in_file))
    return min(addresses, default=None), code
