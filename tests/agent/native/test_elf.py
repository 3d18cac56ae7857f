"""Compare build ids and addresses of real binaries with binutils."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pgo_agent.errors import NotReadable
from pgo_agent.native.elf import Elf, Segment, symbol_addresses

from tests.oracle.oracle import go_root

BINARIES = [Path("/bin/ls").resolve(), Path(sys.executable).resolve(), go_root() / "bin/go"]


def readelf(option: str, binary: Path) -> str:
    done = subprocess.run(["readelf", "--wide", option, binary], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.system("readelf")
@pytest.mark.parametrize("binary", BINARIES, ids=str)
def test_it_is_what_readelf_says(binary: Path) -> None:
    elf = Elf.read(binary)
    assert re.findall(r"Build ID: (\w+)", readelf("--notes", binary)) == [elf.build_id]
    loaded = re.findall(
        r"^  LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)", readelf("--segments", binary), re.MULTILINE
    )
    assert elf.segments == tuple(Segment(*(int(number, 16) for number in row)) for row in loaded)
    assert len(loaded) > 1


def test_an_address_is_found_by_its_segment() -> None:
    elf = Elf("", (Segment(0, 0x400000, 0x100), Segment(0x1000, 0x403000, 0x200)))
    assert elf.address_of(0) == 0x400000
    assert elf.address_of(0xFF) == 0x4000FF
    assert elf.address_of(0x100) is None
    assert elf.address_of(0x1010) == 0x403010


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an ELF file"),
        (b"#!/bin/sh\n", "not an ELF file"),
        (b"\x7fELF\x01\x01", "of 64 bits"),
        (BINARIES[0].read_bytes()[:60], "cut off"),
        (BINARIES[0].read_bytes()[:100], "cut off"),
    ],
)
def test_what_is_no_elf_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "binary"
    file.write_bytes(content)
    with pytest.raises(NotReadable, match=reason):
        Elf.read(file)


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotReadable, match="No such file"):
        Elf.read(tmp_path / "gone")


HEAD_BYTES, ENTRY_BYTES = 64, 56
LOADED, NOTE = 1, 4
NUMBERS = (0, 1, 3, 8, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
# Only the segment table and the notes of a library are read, which are at its beginning.
REAL = [path.read_bytes()[: 1 << 16] for path in (Path("/bin/true"), *Path("/lib").glob("*/libc.so.6"))]


def entry(kind: int, offset: int, address: int, size: int, alignment: int = 4) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, 4, offset, address, address, size, size, alignment)


def elf(*entries: bytes, rest: bytes = b"", count: int | None = None) -> bytes:
    """Write a binary: the segment table first, then the rest."""
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHH", 3, 62, 1, 0, HEAD_BYTES, 0, 0, HEAD_BYTES, ENTRY_BYTES)
    head += struct.pack("<HHHH", len(entries) if count is None else count, 0, 0, 0)
    return head + b"".join(entries) + rest


def note(description: bytes, name: bytes = b"GNU\0", kind: int = 3) -> bytes:
    return struct.pack("<III", len(name), len(description), kind) + name + description


def read(tmp_path: Path, content: bytes) -> Elf:
    file = tmp_path / "binary"
    file.write_bytes(content)
    return Elf.read(file)


def test_what_is_made_here_is_read(tmp_path: Path) -> None:
    notes = note(b"x" * 8, b"Go\0\0", 4) + note(b"\x5e\xed" * 10)
    loaded = entry(LOADED, 0, 0x400000, 0x100)
    found = read(tmp_path, elf(loaded, entry(NOTE, 176, 0, len(notes)), rest=notes))
    assert found == Elf("5eed" * 10, (Segment(0, 0x400000, 0x100),))


def test_a_build_id_may_be_in_a_section_alone(tmp_path: Path) -> None:
    """Go's linker writes two sections of notes, and a segment of notes that has only the first one."""
    own, gnu = note(b"x" * 8, b"Go\0\0", 4), note(b"\x5e\xed" * 10)
    at = HEAD_BYTES + ENTRY_BYTES
    sections = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, 7, 2, 0, offset, size, 0, 0, 4, 0)
        for offset, size in ((at, len(own)), (at + len(own), len(gnu)))
    )
    content = bytearray(elf(entry(NOTE, at, 0, len(own)), rest=own + gnu + sections))
    assert read(tmp_path, bytes(content)).build_id == ""
    struct.pack_into("<Q", content, 40, at + len(own) + len(gnu))
    struct.pack_into("<HH", content, 58, 64, 2)
    assert read(tmp_path, bytes(content)).build_id == "5eed" * 10
    for count in (3, 1025, 65535):  # beyond the end of the file, and more than are read
        struct.pack_into("<H", content, 60, count)
        assert read(tmp_path, bytes(content)).build_id == ""


def test_segments_up_to_the_last_address(tmp_path: Path) -> None:
    last = (1 << 64) - 0x1000
    found = read(tmp_path, elf(entry(LOADED, 0x1000, last, 0x1000)))
    assert found.address_of(0x1FFF) == (1 << 64) - 1


@pytest.mark.parametrize("size", [(1 << 16) + 1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_large_note_costs_nothing(tmp_path: Path, size: int) -> None:
    """The file is as large as its header says, if that is possible."""
    with (file := tmp_path / "binary").open("wb") as writing:
        writing.write(elf(entry(NOTE, 0, 0, size)))
        if size < 1 << 40:
            writing.truncate(size)
    tracemalloc.start()
    try:
        with pytest.raises(NotReadable, match=r"notes of more than|cut off"):
            Elf.read(file)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (elf(entry(NOTE, 1 << 63, 0, 16)), "cut off"),
        (elf(entry(NOTE, (1 << 64) - 1, 0, 16)), "cut off"),
        (elf(entry(NOTE, 0, 0, 1 << 14), rest=bytes(100)), "cut off"),
        (elf(*[entry(NOTE, HEAD_BYTES, 0, 40 << 10)] * 1000), "notes of more than 65536 bytes"),
        (elf(count=65535), "with 65535 segments"),
        (elf(count=3), "cut off"),
        (elf(entry(LOADED, 0, (1 << 64) - 1, 2)), "beyond the end"),
        (elf(entry(LOADED, (1 << 64) - 1, 0, 2)), "beyond the end"),
        (
            elf(entry(LOADED, 0, 0, 1))[:54] + b"\x08\0" + elf(entry(LOADED, 0, 0, 1))[56:],
            "take 8 bytes each",
        ),
        (elf(entry(NOTE, 120, 0, 20), rest=note(bytes(20))), "cut off"),
    ],
)
def test_crafted_numbers_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(NotReadable, match=reason):
        read(tmp_path, content)


@pytest.mark.parametrize("size", [0, 65, 1 << 12])
def test_a_build_id_of_another_size_is_none(tmp_path: Path, size: int) -> None:
    notes = note(bytes(size).ljust(-(-size // 4) * 4, b"\0")) + note(b"\x5e\xed" * 4)
    notes = struct.pack("<III", 4, size, 3) + notes[12:]
    assert read(tmp_path, elf(entry(NOTE, 120, 0, len(notes)), rest=notes)).build_id == "5eed" * 4


@pytest.mark.parametrize("alignment", NUMBERS)
def test_any_alignment_ends(tmp_path: Path, alignment: int) -> None:
    notes = note(b"xyz\0", b"Go\0\0") * 50
    assert read(tmp_path, elf(entry(NOTE, 120, 0, len(notes), alignment), rest=notes)).build_id == ""


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(NotReadable, match=r"not a regular file|Is a directory"):
            Elf.read(path)


edits = st.lists(
    st.tuples(
        st.integers(0, 2000) | st.sampled_from([32, 54, 56]),
        st.sampled_from(NUMBERS) | st.integers(0, (1 << 64) - 1),
        st.sampled_from([1, 2, 4, 8]),
    ),
    max_size=8,
)


@given(real=st.sampled_from(REAL), changed=edits, end=st.integers(0, 1 << 16) | st.none())
@example(real=REAL[0], changed=[], end=None)
def test_changed_binaries_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    real: bytes,
    changed: list[tuple[int, int, int]],
    end: int | None,
) -> None:
    content = bytearray(real)
    for at, number, size in changed:
        content[at : at + size] = (number % (1 << (8 * size))).to_bytes(size, "little")
    with suppress(NotReadable):
        found = read(tmp_path_factory.getbasetemp(), bytes(content[:end]))
        assert len(found.build_id) <= 128
        assert len(found.segments) <= 1170
        for segment in found.segments:
            for offset in (segment.offset, segment.offset + segment.size - 1):
                assert 0 <= (found.address_of(offset) or 0) < 1 << 64


LIBC = next(Path("/lib").glob("*/libc.so.6"))


@pytest.mark.system("readelf")
def test_symbols_are_where_readelf_says() -> None:
    rows = re.findall(
        r"^ *\d+: (\w+) +\d+ \w+ +\w+ +DEFAULT +\d+ (\w+)@@", readelf("--dyn-syms", LIBC), re.MULTILINE
    )
    names = {"malloc", "free", "clock_gettime"}
    expected = {name: int(address, 16) for address, name in rows if name in names}
    assert expected.keys() == names
    assert symbol_addresses(LIBC, [*names, "no_such_symbol", "mall"]) == expected


def test_symbols_of_a_file_that_is_damaged_are_not_found(tmp_path: Path) -> None:
    whole, file = LIBC.read_bytes(), tmp_path / "libc"
    for size in (0, 10, 64, 1000, 100_000, len(whole) - 100):
        file.write_bytes(whole[:size])
        with pytest.raises(NotReadable):
            symbol_addresses(file, ["malloc"])
    table, _, count = struct.unpack_from("<40xQ10xHH2x", whole)
    for field in range(4, 64, 4):  # of each row of the table of sections, all but its name
        changed = bytearray(whole)
        for row in range(count):
            struct.pack_into("<I", changed, table + 64 * row + field, 0x7FFF_FFF0)
        file.write_bytes(changed)
        with suppress(NotReadable):
            symbol_addresses(file, ["malloc"])
    file.write_bytes(b"#!/bin/sh\n" * 10)
    assert symbol_addresses(file, ["malloc"]) == {}
    with pytest.raises(NotReadable):
        symbol_addresses(tmp_path, ["malloc"])
