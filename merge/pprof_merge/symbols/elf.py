"""ELF files for `write_table`: their segments, sections and build id, each checked against a bound.

A file may be a whole program, or one whose code was left out: `objcopy --only-keep-debug` and its like write
the addresses of segments, but not always where these are in the program's file; agents write no segments.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from pprof_merge.arrays import Bytes, Int64s, UInt64s
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits

_MAGIC, _CLASS_64, _LITTLE_ENDIAN = b"\x7fELF", 2, 1
_RELOCATABLE = 1
# Of the head: type, machine, where segments and sections are, how large one is, and how many there are.
_HEAD = struct.Struct("<16xHH12xQQ6xHHHHH")
_SEGMENT = np.dtype(
    {
        "names": ["type", "flags", "offset", "address", "in_file", "in_memory"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 4, 8, 16, 32, 40],
        "itemsize": 56,
    }
)
_SECTION = np.dtype(
    {
        "names": ["name", "type", "flags", "address", "offset", "size"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 4, 8, 16, 24, 32],
        "itemsize": 64,
    }
)
_FARTHEST, _HIGHEST = 1 << 32, 1 << 62
_LOAD, _NOTES, _EXECUTABLE = 1, 4, 1
_NOTE, _RELOCATIONS, _NOT_IN_FILE = 7, 4, 8
_ALLOCATED, _CODE, _COMPRESSED = 2, 4, 0x800
# The head of a compressed section: how, and the size of what comes out.
_COMPRESSION = struct.Struct("<I4xQ")
_ZLIB, _LARGEST_RATIO = 1, 1032  # by which DEFLATE makes anything smaller
_OLD_COMPRESSED, _OLD_ZLIB = ".z", b"ZLIB"  # before the size in 8 bytes
_SHARED = 16  # so often, on average, names have the same bytes at most: linkers let one be the end of another
_LONGEST_NAME, _MOST_NOTES, _MOST_NOTE_BYTES = 256, 64, 64 << 10
_GNU_BUILD_ID, _GO_BUILD_ID = (b"GNU\0", 3), (b"Go\0\0", 4)
_BUILD_IDS = re.compile(r"([0-9a-f]{2}){1,64}"), re.compile(r"[!-~]{1,512}")
# A relocation, and those of x86-64 and of ARM that write an address of the program itself.
_RELOCATION = np.dtype([("place", "<u8"), ("type", "<u8"), ("pointer", "<u8")])
_RELATIVE = [8, 0x403]
# Pages are of 4 KiB on x86-64; on other machines, Linux may be built for larger ones.
_X86_64 = 62
_PAGES, _MORE_PAGES = (4096,), (4096, 16384, 65536)


class Segment(NamedTuple):
    """Code of a program: its place in the program's file, its address, and its size in bytes.

    The place is -1 if the file doesn't say it.
    """

    offset: int
    address: int
    size: int


class Section(NamedTuple):
    """A section: its address and size in bytes, and its content, still compressed if it is."""

    address: int
    size: int
    content: memoryview
    is_compressed: bool


class Elf:
    """An ELF file of 64 bits, little-endian. Raises BinaryInvalid.

    `base` is the lowest address of the program, `code` has its executable segments, and `text` is the range
    of addresses of its section of code. `sections` are by name, those whose content is in the file, and
    `section_ends` (n_sections,) is where each ends in memory. `build_id` is GNU's in
    hex, or Go's, or "". `pages` are the sizes in bytes that a page of memory may have.
    """

    def __init__(self, content: mmap.mmap | bytes, limits: BinaryLimits) -> None:
        self.content, self._limits = memoryview(content), limits
        if len(content) > limits.size:
            raise BinaryInvalid(f"it has more than {limits.size:,} bytes")
        if content[:4] != _MAGIC or len(content) < _HEAD.size + 2:
            raise BinaryInvalid("it is not an ELF file; give the program that was profiled")
        if content[4] != _CLASS_64 or content[5] != _LITTLE_ENDIAN:
            raise BinaryInvalid(
                f"it is a program of {64 if content[4] == _CLASS_64 else 32} bits, "
                f"{'little' if content[5] == _LITTLE_ENDIAN else 'big'}-endian; only those of 64 bits, "
                "little-endian, can be read"
            )
        type_, machine, segments, sections, *sizes, names = _HEAD.unpack_from(content)
        if type_ == _RELOCATABLE:
            raise BinaryInvalid("it is an object file; give the program that is linked of it")
        self.pages = _PAGES if machine == _X86_64 else _MORE_PAGES
        self._sections = self._table(sections, _SECTION, sizes[2], sizes[3])
        self._names = names
        mapped = self._table(segments, _SEGMENT, sizes[0], sizes[1])
        self.base, code = self._segments(mapped)
        self.code = [each for each in code if each.address + each.size <= self.base + _FARTHEST]
        self._read_sections()
        ends = self._sections["address"] + self._sections["size"]
        self.section_ends = np.minimum(ends, np.uint64(1 << 62)).astype(np.int64)
        self.build_id = self._build_id(mapped)

    @classmethod
    def at(cls, path: Path, limits: BinaryLimits) -> Self:
        """Return the file at a path, which stays on disk and must not change. Raises OSError, too."""
        with path.open("rb") as file:
            try:
                content: bytes | mmap.mmap = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:  # an empty file can't be mapped
                content = b""
        return cls(content, limits)

    def _table(self, offset: int, row: np.dtype[np.void], size: int, count: int) -> np.ndarray:
        """Return a table of the file, (count,)."""
        if count > self._limits.sections:
            raise BinaryInvalid(f"it has more than {self._limits.sections:,} sections or segments")
        if count and (size != row.itemsize or offset + size * count > len(self.content)):
            raise BinaryInvalid("it is a damaged ELF file: its segments or sections are outside of it")
        return np.frombuffer(self.content[offset : offset + size * count] if count else b"", row)

    def _segments(self, segments: np.ndarray) -> tuple[int, list[Segment]]:
        """Return the program's lowest address, and its code. Raises BinaryInvalid."""
        loaded = segments[segments["type"] == _LOAD]
        if not len(loaded):
            return 0, self._code_of_sections()
        base = int(loaded["address"].min())
        if base > _HIGHEST:
            raise BinaryInvalid("its segments are at addresses that no program has")
        if max(map(sum, loaded[["address", "in_memory"]].tolist())) - base > _FARTHEST:
            raise BinaryInvalid(
                "its segments are more than 4 GiB apart; the addresses of a table have 32 bits"
            )
        code = loaded[loaded["flags"] & _EXECUTABLE > 0]
        sections = self._sections[self._sections["flags"] & _CODE > 0]
        # What leaves out code may keep a segment's place and size, as eu-strip does, or change both.
        is_left_out = bool((sections["type"] == _NOT_IN_FILE).any())
        found = []
        for offset, address, in_file, in_memory in code[
            ["offset", "address", "in_file", "in_memory"]
        ].tolist():
            is_known = in_file >= in_memory or not is_left_out
            size = in_file if is_known else in_memory
            if size and offset + size <= 1 << 63:
                found.append(Segment(offset if is_known else -1, address, size))
        return base, found

    def _code_of_sections(self) -> list[Segment]:
        """Return the code of a file without segments, as the agents of Parca and Grafana write it.

        Its sections have their addresses, but not their sizes; so code ends where something else begins.
        """
        sections = self._sections[self._sections["flags"] & _ALLOCATED > 0]
        code = sections["address"][sections["flags"] & _CODE > 0]
        if not len(code):
            raise BinaryInvalid(
                "it has no segments and no sections, which say where its code is; give the program as it was"
                " linked"
            )
        begin, last = int(code.min()), int(code.max())
        after = sections["address"][sections["address"] > last]
        return [Segment(-1, begin, (int(after.min()) if len(after) else last + 1) - begin)]

    def _read_sections(self) -> None:
        """Read the sections, and check how large they are once none is compressed. Raises BinaryInvalid."""
        self.sections = dict[str, Section]()
        self.text, total = range(0), 0
        for row, (type_, flags, address, offset, size) in enumerate(
            self._sections[["type", "flags", "address", "offset", "size"]].tolist()
        ):
            name = self._section_name(row)
            if name == ".text":
                self.text = range(address, address + size)
            if type_ == _NOT_IN_FILE:
                continue
            section = Section(address, size, self.content[offset : offset + size], bool(flags & _COMPRESSED))
            self.sections.setdefault(name, section)
            total += size + _unpacked(name, section)
        if total > self._limits.unpacked:
            raise BinaryInvalid(f"its sections take more than {self._limits.unpacked:,} bytes when unpacked")

    def _section_name(self, row: int) -> str:
        if self._names >= len(self._sections):
            return ""
        names, at = self._sections[self._names], int(self._sections["name"][row])
        begin, end = int(names["offset"]) + at, int(names["offset"]) + int(names["size"])
        return (
            bytes(self.content[begin : min(begin + _LONGEST_NAME, end)])
            .partition(b"\0")[0]
            .decode(errors="replace")
        )

    def _build_id(self, segments: np.ndarray) -> str:
        """Return the build id in the sections with notes, or else in the segments with notes."""
        notes = self._sections[self._sections["type"] == _NOTE][["offset", "size"]]
        if not len(notes):
            notes = segments[segments["type"] == _NOTES][["offset", "in_file"]]
        found = dict[tuple[bytes, int], bytes]()
        for offset, size in notes[:_MOST_NOTES].tolist():
            for kind, note in _notes(bytes(self.content[offset : offset + min(size, _MOST_NOTE_BYTES)])):
                found.setdefault(kind, note)
        gnu = found.get(_GNU_BUILD_ID, b"").hex()
        go = found.get(_GO_BUILD_ID, b"").decode(errors="replace")
        for build_id, spelling in zip((gnu, go), _BUILD_IDS, strict=True):
            if spelling.fullmatch(build_id):
                return build_id
        return ""

    def words(self, address: int, count: int) -> UInt64s:
        """Return up to `count` words of 64 bits at an address, as the loader writes them."""
        words = np.zeros(0, np.uint64)
        for section in self.sections.values():
            if section.address and 0 <= address - section.address < section.size:
                content = section.content[address - section.address :][: 8 * count]
                words = np.frombuffer(content[: len(content) // 8 * 8], np.uint64).copy()
        if len(words):
            places, pointers = self.relocations()
            moved = places - np.uint64(address)  # those before it become large
            near = (moved < np.uint64(8 * len(words))) & (moved % np.uint64(8) == 0)
            words[(moved[near] // np.uint64(8)).astype(np.int64)] = pointers[near]
        return words

    def relocations(self) -> tuple[UInt64s, UInt64s]:
        """Return where the loader writes addresses of the program, and these. Raises BinaryInvalid."""
        tables = self._sections[self._sections["type"] == _RELOCATIONS][["offset", "size"]].tolist()
        count = sum(size for _, size in tables) // _RELOCATION.itemsize
        if count > self._limits.relocations:
            raise BinaryInvalid(f"it has {count:,} relocations, more than {self._limits.relocations:,}")
        parts = [
            np.frombuffer(
                self.content[at : at + size // 24 * 24][: (len(self.content) - at) // 24 * 24], _RELOCATION
            )
            for at, size in tables
            if at < len(self.content)
        ]
        every = np.concatenate([np.zeros(0, _RELOCATION), *parts])
        relative = every[np.isin(every["type"], _RELATIVE)]
        return relative["place"], relative["pointer"]


class Texts:
    """Texts that end with a zero byte each."""

    def __init__(self, content: Bytes) -> None:
        self._content = content
        self._ends = np.append(np.flatnonzero(content == 0), len(content))

    def are_texts(self, places: Int64s) -> bool:
        """Return whether a text begins at each of these places."""
        if (places < 0).any() or (places >= len(self._content)).any():
            return False
        return bool((self._content[places[places > 0] - 1] == 0).all())

    def at(self, places: Int64s) -> Iterator[bytes]:
        """Return the texts at these places; an empty one where there is none. Raises BinaryInvalid."""
        distinct = np.unique(places[(places >= 0) & (places < len(self._content))])
        ends = self._ends[np.searchsorted(self._ends, distinct)]
        if int((ends - distinct).sum()) > _SHARED * len(self._content):
            raise BinaryInvalid("it is damaged: its names overlap")
        texts = {
            begin: bytes(self._content[begin:end])
            for begin, end in zip(distinct.tolist(), ends.tolist(), strict=True)
        }
        return (texts.get(place, b"") for place in places.tolist())


def _unpacked(name: str, section: Section) -> int:
    """Return how many bytes come out of a compressed section; 0 if it isn't compressed."""
    content = section.content
    if not (section.is_compressed or name.startswith(_OLD_COMPRESSED)) or len(content) < _COMPRESSION.size:
        return 0
    # Whatever the name and the flag say, `symbolic` goes by what the section begins with.
    kind, size = _COMPRESSION.unpack_from(content)
    if content[:4] == _OLD_ZLIB:
        kind, size = _ZLIB, int.from_bytes(content[4:12], "big")
    if kind == _ZLIB and size > _LARGEST_RATIO * len(section.content):
        raise BinaryInvalid(f"it is damaged: its section {name} can't unpack to {size:,} bytes")
    return int(size)


def _notes(content: bytes) -> list[tuple[tuple[bytes, int], bytes]]:
    """Return the names, types and contents of the notes in a section."""
    notes, at = list[tuple[tuple[bytes, int], bytes]](), 0
    while at + 12 <= len(content) and len(notes) < _MOST_NOTES:
        name_size, size, type_ = struct.unpack_from("<III", content, at)
        name, at = content[at + 12 : at + 12 + name_size], at + 12 + -(-name_size // 4) * 4
        notes.append(((name.ljust(4, b"\0"), type_), content[at : at + size]))
        at += -(-size // 4) * 4
    return notes
