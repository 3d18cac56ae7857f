"""Build ids and addresses of real binaries, beside what binutils says of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pgo_agent.errors import NotReadable
from pgo_agent.native.elf import Elf, Segment

BINARIES = [Path("/bin/ls").resolve(), Path(sys.executable).resolve()]


def readelf(option: str, binary: Path) -> str:
    done = subprocess.run(["readelf", "--wide", option, binary], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf (binutils) is missing")
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
