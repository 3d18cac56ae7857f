"""Names from Go programs that were stripped: those that Go's own tools read from the whole program."""

from __future__ import annotations

import itertools
import random
import struct
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_merge.symbols import SymbolTable, write_table

from tests.oracle.oracle import GO, go_environment

ROOT = Path(__file__).parents[3]
OLDER = ["1.24", "1.21"]
_BUILD_ID = "00112233445566778899aabbccddeeff00112233"
_GO = """
package main

import "os"

type list[T any] struct{ all []T }

func (l *list[T]) add(one T) { l.all = append(l.all, one) }
func twice(n int) int         { return n*2 + 1 }
func mix(n int) int           { return twice(n) ^ 5 }

//go:noinline
func work(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum += mix(i)
	}
	return sum
}

func main() {
	var l list[int]
	for _, each := range os.Args {
		l.add(work(len(each)))
	}
	os.Exit(l.all[0] & 1)
}
"""


_CGO = """
package main

// int of_c(int n) { int sum = 0; for (int i = 0; i < n; i++) sum ^= i * 3; return sum; }
import "C"
import "os"

//go:noinline
func twice(n int) int { return n * 2 }

func main() { os.Exit(twice(int(C.of_c(7)))) }
"""


class Built(NamedTuple):
    """A Go program with its symbols, and stripped, and the command `go`."""

    whole: Path
    stripped: Path
    command: str | Path


@pytest.fixture(
    scope="module",
    params=["current", *(pytest.param(version, marks=pytest.mark.exhaustive) for version in OLDER)],
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Takes over 20 s where nothing is in Go's cache."""
    command: str | Path = GO
    if request.param != "current":
        command = ROOT / f".dev/go{request.param}/go/bin/go"
        if not command.exists():
            pytest.skip(f"there is no Go {request.param}: `make setup WITH=toolchains` installs it")
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(_GO)
    (folder / "go.mod").write_text("module shop\n\ngo 1.21\n")
    for name, flags in (("whole", ""), ("stripped", "-s -w")):
        run(
            command,
            "build",
            "-trimpath",
            f"-ldflags={flags} -B 0x{_BUILD_ID}",
            "-o",
            folder / name,
            at=folder,
        )
    return Built(folder / "whole", folder / "stripped", command)


def run(
    *command: str | Path, at: Path, asked: str = "", environment: Mapping[str, str] = MappingProxyType({})
) -> str:
    done = subprocess.run(
        command,
        cwd=at,
        env={**go_environment(), "CGO_ENABLED": "0", **environment},
        input=asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def table_of(program: Path, limits: BinaryLimits | None = None) -> SymbolTable:
    file = program.with_suffix(".symbols")
    with file.open("wb") as to:
        assert write_table(program, to, limits) == _BUILD_ID
    return SymbolTable.open(file)


def frames_at(table: SymbolTable, addresses: list[int]) -> list[list[tuple[str, str, int]]]:
    """Return the frames at each address of a program whose file begins at its lowest address."""
    first = 0x400000
    frames = table.look_up(table.addresses(np.array(addresses, np.uint64), first, first + (1 << 30), 0))
    names = [(name.decode(), file.decode()) for name, file in table.functions(frames.function)]
    every = [(*name, line) for name, line in zip(names, frames.line.tolist(), strict=True)]
    ends = frames.offsets.tolist()
    return [every[begin:end] for begin, end in itertools.pairwise(ends)]


def functions(built: Built) -> dict[int, set[str]]:
    """Return the names that `go tool nm` has by address; those of assembly have an ABI there."""
    by_address = defaultdict[int, set[str]](set)
    for line in run(built.command, "tool", "nm", built.whole, at=built.whole.parent).splitlines():
        address, kind, name = line.split(maxsplit=2)
        if kind in "Tt":
            by_address[int(address, 16)].add(name.removesuffix(".abi0"))
    del by_address[max(by_address)]  # runtime.etext
    return by_address


def test_a_stripped_program_has_all_the_names_and_lines_that_go_has(built: Built) -> None:
    table, known = table_of(built.stripped), functions(built)
    assert table.missing == ""
    assert len(known) > 1000
    starts = sorted(known)
    for address, frames in zip(starts, frames_at(table, starts), strict=True):
        assert frames[-1][0].replace("·", ".") in known[address], hex(address)

    draw = random.Random(1)  # noqa: S311 - no secret
    chosen = [draw.randrange(start, end) for start, end in draw.sample([*itertools.pairwise(starts)], 1000)]
    asked = "".join(f"{address:#x}\n" for address in chosen)
    told = run(
        built.command, "tool", "addr2line", built.whole, at=built.whole.parent, asked=asked
    ).splitlines()
    for address, frames, name, place in zip(
        chosen, frames_at(table, chosen), told[::2], told[1::2], strict=True
    ):
        assert frames[-1][0] == name, hex(address)
        if not place.startswith(":-"):  # no line, or what fills up the space between functions
            assert f"{frames[0][1]}:{frames[0][2]}" == place, hex(address)


def test_calls_that_are_inlined_have_their_callers(built: Built) -> None:
    table = table_of(built.stripped)
    (start,) = [address for address, names in functions(built).items() if "main.work" in names]
    lines = {
        name: row
        for row, text in enumerate(_GO.splitlines(), 1)
        for name, begin in (("twice", "func twice"), ("mix", "func mix"), ("work", "\t\tsum += mix"))
        if text.startswith(begin)
    }
    wanted = [(f"main.{name}", "shop/main.go", line) for name, line in lines.items()]
    assert wanted in frames_at(table, [*range(start, start + 64)])


def test_a_program_with_its_symbols_has_the_same_names(built: Built) -> None:
    addresses = sorted(functions(built))
    assert frames_at(table_of(built.whole), addresses) == frames_at(table_of(built.stripped), addresses)


def without_code_and_data(program: Path) -> bytes:
    """Return a program as Parca's agent uploads it: of what is in memory, it keeps Go's table alone."""
    content = bytearray(program.read_bytes())
    (sections,), (count, names) = (
        struct.unpack_from("<Q", content, 40),
        struct.unpack_from("<HH", content, 60),
    )
    (texts,) = struct.unpack_from("<Q", content, sections + 64 * names + 24)
    for at in range(sections, sections + 64 * count, 64):
        name, type_, flags = struct.unpack_from("<IIQ", content, at)
        is_table = content[texts + name :].startswith(b".gopclntab\0")
        if (type_, flags & 2) == (1, 2) and not is_table:
            struct.pack_into("<I", content, at + 4, 8)
    return bytes(content)


def test_of_what_an_agent_leaves_of_a_program_the_symbols_give_the_names(
    built: Built, tmp_path: Path
) -> None:
    known, left = functions(built), tmp_path / "left"
    left.write_bytes(without_code_and_data(built.whole))
    table = table_of(left)
    found = table.look_up(table.addresses(np.array([*known], np.uint64), 0, 0, 0))
    assert (np.diff(found.offsets) > 0).mean() > 0.95
    left.write_bytes(without_code_and_data(built.stripped))
    with pytest.raises(BinaryInvalid, match="Go program without symbols"):
        table_of(left)


@pytest.mark.exhaustive
@pytest.mark.system("gcc", "nm")
def test_functions_of_c_in_a_go_program_have_their_names(tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(_CGO)
    (tmp_path / "go.mod").write_text("module shop\n\ngo 1.21\n")
    command = (GO, "build", f"-ldflags=-B 0x{_BUILD_ID}", "-o", tmp_path / "work")
    run(*command, at=tmp_path, environment={"CGO_ENABLED": "1"})
    told = [line.split() for line in run("nm", tmp_path / "work", at=tmp_path).splitlines()]
    wanted = {line[2]: int(line[0], 16) for line in told if line[-1] in {"of_c", "main.main", "main.twice"}}
    assert len(wanted) == 3
    with (tmp_path / "work").open("rb") as file:
        (code,) = [each for each in ELFFile(file).iter_segments("PT_LOAD") if each["p_flags"] & 1]
    places = [address - code["p_vaddr"] + code["p_offset"] for address in wanted.values()]
    table, start = table_of(tmp_path / "work"), 0x7F0000000000
    frames = table.look_up(table.addresses(np.array(places, np.uint64) + np.uint64(start), start, 0, 0))
    names = [name.decode() for name, _ in table.functions(frames.function[frames.offsets[1:] - 1])]
    assert names == [*wanted]


@pytest.mark.parametrize("limits", [BinaryLimits(ranges=1000), BinaryLimits(symbols=100)])
def test_large_tables_are_refused(built: Built, limits: BinaryLimits) -> None:
    with pytest.raises(BinaryInvalid, match="more than 1"):
        table_of(built.stripped, limits)


def test_damaged_tables_are_refused_or_read(built: Built, tmp_path: Path) -> None:
    content = built.stripped.read_bytes()
    # The table begins with its magic and the sizes of an instruction and a pointer.
    begin = content.index(b"\xf1\xff\xff\xff\0\0\x01\x08")
    draw, program = random.Random(2), tmp_path / "program"  # noqa: S311 - no secret
    for number in range(25):
        damaged = bytearray(content)
        if number == 0:
            damaged[begin] = 0xF2
        for _ in range(draw.choice((1, 8, 1000))):
            at = begin + draw.randrange(draw.choice((8, 80, 1000, 300_000)))
            size = draw.choice((1, 4, 8))
            damaged[at : at + size] = draw.choice(
                (0, 1, 1 << 31, (1 << 64) - 1, draw.getrandbits(64))
            ).to_bytes(8, "little")[:size]
        program.write_bytes(damaged)
        try:
            table = table_of(program)
        except BinaryInvalid:
            continue
        frames_at(table, [*range(0x400000, 0x500000, 99)])
