"""Names from programs: those that llvm-symbolizer has, for all addresses, and profiles that get them."""

from __future__ import annotations

import json
import lzma
import random
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from os.path import normpath
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from pprof_merge import decode, encode
from pprof_merge.binary.elf import Binary
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_merge.merging import merge
from pprof_merge.symbols import SymbolTable, with_names, write_table
from pprof_proto.profile_pb2 import Profile

from tests.collector.small_program import small_program
from tests.merge.binary.program import sampled
from tests.merge.command.installed import pprof_merge

_C = """
#include <stdlib.h>
static int compare(const void *one, const void *two) { return *(int *)one - *(int *)two; }
static inline unsigned mix(unsigned x) { return x * 1664525u + 1013904223u; }
static inline unsigned twice(unsigned x) { return mix(mix(x)) ^ mix(x + 1); }
__attribute__((noinline)) static unsigned work(int *all, int n) {
    unsigned sum = 0;
    for (int i = 0; i < n; i++)
        all[i] = (int)(sum += twice(i));
    qsort(all, n, sizeof(int), compare);
    return sum;
}
int main(void) {
    int all[100];
    return (int)work(all, 100) & 1;
}
"""
_TELLS = """
#include <stdio.h>
static inline int twice(int n) { return n * 2 + 1; }
__attribute__((noinline)) int work(int n) { int sum = 0; while (n--) sum ^= twice(n); return sum; }
__attribute__((noinline)) int more(int n) { return work(n) * work(n + 1); }
int main(void) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    printf("%lx\\n", (long)work);
    while (fgets(line, sizeof line, maps))
        fputs(line, stdout);
    return more(3) == 1;
}
"""
_RUST = """
use std::collections::HashMap;
fn main() {
    let mut words: HashMap<String, Vec<u64>> = HashMap::new();
    for i in 0..1000u64 {
        words.entry(format!("{}", i % 17)).or_default().push(i);
    }
    let mut sums: Vec<_> = words.into_iter().map(|(k, v)| (k, v.iter().sum::<u64>())).collect();
    sums.sort();
    println!("{:?}", sums);
}
"""
_COMPILERS = {
    "c": ("clang", "-O2", "-g", "-Wl,--build-id=sha1", "-o"),
    "rs": ("rustc", "-O", "-g", "-C", "link-arg=-Wl,--build-id=sha1", "-o"),
}
pytestmark = pytest.mark.system("clang", "llvm-symbolizer", "strip")


@pytest.fixture(scope="module", params=["c", pytest.param("rs", marks=pytest.mark.system("rustc", "cc"))])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, language = tmp_path_factory.mktemp("program"), request.param
    source = folder / f"work.{language}"
    source.write_text({"c": _C, "rs": _RUST}[language])
    subprocess.run([*_COMPILERS[language], folder / "work", source], check=True, cwd=folder)
    return folder / "work"


def table_of(program: Path) -> SymbolTable:
    file = program.with_suffix(".symbols")
    with file.open("wb") as to:
        build_id = write_table(program, to)
    table = SymbolTable.open(file)
    assert table.build_id == build_id
    return table


def functions(program: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the name, the address and the size of each function."""
    with program.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FUNC":
                yield symbol.name, symbol["st_value"], symbol["st_size"]


def starts(program: Path) -> list[int]:
    """Return the addresses of the functions of some size."""
    return sorted({start for _, start, size in functions(program) if size > 8})


def aliases(program: Path) -> dict[str, set[str]]:
    """Return the names of the functions that have the same code, by each of them."""
    by_address = defaultdict[int, set[str]](set)
    for name, start, _ in functions(program):
        by_address[start].add(name)
    return {name: names for names in by_address.values() for name in names}


def llvm_frames(program: Path, addresses: list[int]) -> Iterator[list[tuple[str, str, int]]]:
    """Yield the frames that llvm-symbolizer has at each address."""
    asked = "".join(f"{address:#x}\n" for address in addresses)
    command = ["llvm-symbolizer", f"--obj={program}", "--no-demangle", "--output-style=JSON"]
    said = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    for line in said.stdout.splitlines():
        frames = json.loads(line)["Symbol"]
        yield [
            (one["FunctionName"], one["FileName"] and normpath(one["FileName"]), one["Line"])
            for one in frames
        ]


# Where a program is loaded whose first byte is that of its file; it says nothing of its end.
_LOADED_AT = 0x7F0000000000


def frames_of(table: SymbolTable, places: list[int]) -> Iterator[list[tuple[str, str, int]]]:
    """Yield the frames that a table has at each place in the program's file."""
    frames = table.look_up(
        table.addresses(np.array(places, np.uint64) + np.uint64(_LOADED_AT), _LOADED_AT, 0, 0)
    )
    names = [(name.decode(), file.decode()) for name, file in table.functions(frames.function)]
    every = [(*name, line) for name, line in zip(names, frames.line.tolist(), strict=True)]
    for begin, end in pairwise(frames.offsets.tolist()):
        yield every[begin:end]


def place_of(binary: Binary, address: int) -> int:
    """Return the place in a program's file of what is at an address."""
    offset, start, _ = next(each for each in binary.segments if each[1] <= address < each[1] + each[2])
    return address - start + offset


def test_all_places_have_the_names_that_llvm_has(program: Path) -> None:
    binary, table, same = Binary.at(str(program), BinaryLimits()), table_of(program), aliases(program)
    places = [
        (offset + address - start, address)
        for offset, start, size in binary.segments
        for address in range(start, start + size)
        if binary.function(address)
    ]
    random.Random(1).shuffle(places)  # noqa: S311 - no secret
    chosen = places[:20_000]
    n_inlined = 0
    for (_, address), found, wanted in zip(
        chosen,
        frames_of(table, [place for place, _ in chosen]),
        llvm_frames(program, [address for _, address in chosen]),
        strict=True,
    ):
        # Without a line, llvm-symbolizer may name the unit that was compiled as the file.
        assert [(file * bool(line), line) for _, file, line in found] == [
            (file * bool(line), line) for _, file, line in wanted
        ], hex(address)
        for one, other in zip(found, wanted, strict=True):
            assert one[0] in same.get(other[0], {other[0]}), hex(address)
        n_inlined += len(found) > 1
    assert n_inlined > 20


def test_a_profile_of_the_stripped_program_gets_its_names(program: Path, tmp_path: Path) -> None:
    binary, table = Binary.at(str(program), BinaryLimits()), table_of(program)
    counts = {start + 4: number + 1 for number, start in enumerate(starts(program))}
    profile = sampled(binary, counts)
    named = with_names(decode(profile), {binary.build_id: table})
    seen = Profile.FromString(encode(named))
    by_id = {each.id: each for each in seen.function}
    locations = {each.id: each for each in seen.location}
    assert len(seen.sample) == len(counts)
    for sample in seen.sample:
        (address,) = [each for each, count in counts.items() if count == sample.value[0]]
        lines = locations[sample.location_id[0]].line
        found = [(seen.string_table[by_id[line.function_id].name].decode(), line.line) for line in lines]
        (frames,) = frames_of(table, [place_of(binary, address)])
        assert found == [(name, line) for name, _, line in frames]
    (mapping,) = seen.mapping
    assert (mapping.has_functions, mapping.has_filenames, mapping.has_line_numbers) == (True, True, True)

    stripped, file, out = tmp_path / "stripped", tmp_path / "cpu.pb", tmp_path / "named.pb.gz"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    file.write_bytes(profile)
    assert pprof_merge("-o", out, "--symbolize", program, file).returncode == 0
    assert encode(decode(out.read_bytes())) == encode(merge([named]))
    refused = pprof_merge("-o", out, "--symbolize", stripped, file)
    assert (refused.returncode, b"it has no symbols" in refused.stderr) == (2, True)
    file.write_bytes(sampled(binary, counts, "abcd"))
    refused = pprof_merge("-o", out, "--symbolize", program, file)
    assert (refused.returncode, b"those in the profiles are: abcd" in refused.stderr) == (2, True)


def test_addresses_of_the_program_itself_have_its_names(program: Path) -> None:
    """OpenTelemetry's profiler takes off where a program was loaded, and says in its mapping where it was."""
    binary, table = Binary.at(str(program), BinaryLimits()), table_of(program)
    address = starts(program)[-1]
    wanted = next(frames_of(table, [_place(binary, address)]))
    assert wanted
    for start, limit, offset in ((0, 0, 0), (0x7F0000001000, 0x7F0000009000, 0x1000)):
        at = table.addresses(np.array([address], np.uint64), start, limit, offset)
        frames = table.look_up(at)
        named = table.functions(frames.function)
        assert [(name.decode(), file.decode()) for name, file in named] == [each[:2] for each in wanted]


def test_what_is_between_the_symbols_of_a_stripped_program_has_no_name(tmp_path: Path) -> None:
    """PostgreSQL keeps the symbols of what extensions call: its other functions had the name of the last."""
    source, whole, exported = tmp_path / "work.c", tmp_path / "whole", tmp_path / "exported"
    source.write_text(_C)
    flags = ("-O2", "-Wl,--build-id=sha1", "-rdynamic")
    subprocess.run(["clang", *flags, "-o", whole, source], check=True)
    subprocess.run(["strip", "-o", exported, whole], check=True)
    at = {name: start for name, start, size in functions(whole) if size}
    binary = Binary.at(str(whole), BinaryLimits())
    places = [_place(binary, at[name] + 2) for name in ("main", "work", "compare")]
    names = [[name for name, *_ in frames] for frames in frames_of(table_of(exported), places)]
    assert names == [["main"], [], []]


def _place(binary: Binary, address: int) -> int:
    offset, start, _ = next(each for each in binary.segments if each[1] <= address < each[1] + each[2])
    return address - start + offset


def test_what_has_names_or_is_of_another_program_stays_as_it_is(program: Path) -> None:
    binary, table = Binary.at(str(program), BinaryLimits()), table_of(program)
    profile = decode(sampled(binary, {starts(program)[0] + 4: 7}))
    assert with_names(profile, {}) is profile
    assert with_names(profile, {"abcd": table}) is profile
    named = with_names(profile, {binary.build_id: table})
    assert with_names(named, {binary.build_id: table}) is named


_SEPARATED = {
    "objcopy": ["objcopy", "--only-keep-debug", "{program}", "{debug}"],
    "compressed": ["objcopy", "--only-keep-debug", "--compress-debug-sections", "{program}", "{debug}"],
    "strip": ["strip", "--only-keep-debug", "-o", "{debug}", "{program}"],
    "eu-strip": ["eu-strip", "-f", "{debug}", "-o", "{debug}.stripped", "{program}"],
}
_LINKED = {
    "as usual": [],
    "not moved": ["-no-pie"],
    "one segment for all": ["-Wl,-z,noseparate-code"],
    "large pages": ["-Wl,-z,max-page-size=0x200000"],
}


@pytest.fixture(scope="module", params=_LINKED)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A program, and a profile of its functions by the addresses that they had when it ran."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "work.c").write_text(_TELLS)
    subprocess.run(
        [*_COMPILERS["c"], folder / "work", folder / "work.c", *_LINKED[request.param]], check=True
    )
    work, *maps = subprocess.run(
        [folder / "work"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    (of_code,) = [line.split() for line in maps if line.split()[1] == "r-xp" and line.endswith("/work")]
    start, limit = (int(each, 16) for each in of_code[0].split("-"))
    known = {name: address for name, address, size in functions(folder / "work") if size > 8}
    profile = Profile(string_table=[b"", b"samples", b"count", build_id_of(folder / "work").encode()])
    profile.sample_type.add(type=1, unit=2)
    profile.mapping.add(
        id=1, memory_start=start, memory_limit=limit, file_offset=int(of_code[2], 16), build_id=3
    )
    for number, address in enumerate(known.values(), 1):
        profile.location.add(id=number, mapping_id=1, address=address + int(work, 16) - known["work"] + 4)
        profile.sample.add(location_id=[number], value=[number])
    return folder / "work", profile.SerializeToString()


def build_id_of(program: Path) -> str:
    return Binary.at(str(program), BinaryLimits()).build_id


@pytest.mark.system("objcopy", "eu-strip")
@pytest.mark.parametrize("by", _SEPARATED)
def test_a_separate_debug_file_gives_the_names_that_the_program_gives(
    ran: tuple[Path, bytes], by: str, tmp_path: Path
) -> None:
    program, content = ran
    names = {"program": program, "debug": tmp_path / "debug"}
    subprocess.run([part.format(**names) for part in _SEPARATED[by]], check=True)
    profile, build_id, table = decode(content), build_id_of(program), table_of(tmp_path / "debug")
    named = with_names(profile, {build_id: table})
    assert named is not profile
    assert encode(named) == encode(with_names(profile, {build_id: table_of(program)}))

    part = Profile.FromString(content)
    part.mapping[0].memory_start += 4096
    part.mapping[0].file_offset += 4096
    moved = decode(part.SerializeToString())
    # By the offsets that eu-strip keeps, this is known; for others, all of the segment must be mapped.
    known_by_offset = with_names(moved, {build_id: table_of(program)})
    assert encode(with_names(moved, {build_id: table})) in {encode(moved), encode(known_by_offset)}


def without_segments(debug: bytes) -> bytes:
    """Return a debug file as the agents of Parca and Grafana write it: what isn't in it has no size."""
    content = bytearray(debug)
    segments, sections = struct.unpack_from("<QQ", content, 32)
    n_segments, _, n_sections = struct.unpack_from("<HHH", content, 56)
    for at in range(segments, segments + 56 * n_segments, 56):
        if content[at : at + 4] == (1).to_bytes(4, "little"):
            content[at : at + 4] = bytes(4)
    for at in range(sections, sections + 64 * n_sections, 64):
        if content[at + 4 : at + 8] == (8).to_bytes(4, "little"):
            content[at + 32 : at + 40] = bytes(8)
    return bytes(content)


@pytest.mark.system("objcopy")
def test_a_file_of_an_agent_without_segments_gives_names(ran: tuple[Path, bytes], tmp_path: Path) -> None:
    program, content = ran
    debug = tmp_path / "debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    debug.write_bytes(without_segments(debug.read_bytes()))
    build_id, table, whole = build_id_of(program), table_of(debug), table_of(program)
    profile = decode(content)
    # The end of code isn't known to the page where the linker leaves room after it.
    named = encode(with_names(profile, {build_id: whole}))
    assert encode(with_names(profile, {build_id: table})) in {named, encode(profile)}

    taken = Profile.FromString(content)  # as OpenTelemetry's profilers do, of which these agents are made
    taken.mapping[0].ClearField("memory_start")
    taken.mapping[0].ClearField("memory_limit")
    taken.mapping[0].ClearField("file_offset")
    known = {name: address for name, address, size in functions(program) if size > 8}
    for location, address in zip(taken.location, known.values(), strict=True):
        location.address = address + 4
    profile = decode(taken.SerializeToString())
    named_profile = with_names(profile, {build_id: table})
    assert named_profile is not profile
    assert encode(named_profile) == encode(with_names(profile, {build_id: whole}))


@pytest.mark.system("objcopy")
def test_a_stripped_program_has_the_names_of_its_mini_debug_information(tmp_path: Path) -> None:
    program, mini, small = tmp_path / "work", tmp_path / "mini", tmp_path / "small"
    (tmp_path / "work.c").write_text(_C)
    subprocess.run([*_COMPILERS["c"], program, tmp_path / "work.c"], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, mini], check=True)
    subprocess.run(["objcopy", "-S", "--keep-symbol=work", "--keep-symbol=compare", mini], check=True)
    subprocess.run(["strip", "-o", small, program], check=True)

    def with_section(content: bytes) -> Path:
        (tmp_path / "section").write_bytes(content)
        section = f".gnu_debugdata={tmp_path / 'section'}"
        subprocess.run(["objcopy", "--add-section", section, small, tmp_path / "with"], check=True)
        return tmp_path / "with"

    binary, table = (
        Binary.at(str(program), BinaryLimits()),
        table_of(with_section(lzma.compress(mini.read_bytes()))),
    )
    known = {name: (start, size) for name, start, size in functions(program)}
    for name in ("work", "compare"):
        start, size = known[name]
        found = [place_of(binary, at) for at in (start, start + size - 1)]
        assert [*frames_of(table, found)] == [[(name, "", 0)], [(name, "", 0)]]
    assert [*frames_of(table, [place_of(binary, known["main"][0])])] == [[]]
    for content, reason in (
        (b"no xz" * 10, "is damaged"),
        (lzma.compress(mini.read_bytes())[:-9], "is cut off"),
        (lzma.compress(bytes(100 << 20)), "is cut off, or has more than 67,108,864 bytes"),
        (lzma.compress(b"no program"), "it is not an ELF file"),
    ):
        with pytest.raises(BinaryInvalid, match=reason):
            table_of(with_section(content))


@pytest.mark.system("dwz")
def test_names_in_another_file_are_missing_and_the_rest_are_there(tmp_path: Path) -> None:
    programs = [tmp_path / "one", tmp_path / "two"]
    for program in programs:
        source = program.with_suffix(".c")
        source.write_text(_TELLS.replace("work", program.name))
        subprocess.run(["gcc", "-O2", "-g", "-Wl,--build-id", "-o", program, source], check=True)
    subprocess.run(["dwz", "-m", "common", "-r", *programs], check=True, cwd=tmp_path)
    table = table_of(programs[0])
    assert "its debug information refers to common, which isn't read" in table.missing
    (start,) = [start for name, start, _ in functions(programs[0]) if name == "one"]
    binary = Binary.at(str(programs[0]), BinaryLimits())
    (frames,) = frames_of(table, [place_of(binary, start)])
    assert [name for name, _, _ in frames] == ["one"]
    file = tmp_path / "cpu.pb"
    file.write_bytes(sampled(binary, {start: 1}))
    said = pprof_merge("-o", tmp_path / "out", "--symbolize", programs[0], file)
    assert (said.returncode, b"refers to common" in said.stderr) == (0, True)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(80), b"MZ" * 100])
def test_what_is_no_program_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "program").write_bytes(content)
    with (tmp_path / "table").open("wb") as to, pytest.raises(BinaryInvalid):
        write_table(tmp_path / "program", to)
    (tmp_path / "table").write_bytes(content)
    with pytest.raises((BinaryInvalid, OSError)):
        SymbolTable.open(tmp_path / "table")


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"\x7fELF\x01\x01", "a program of 32 bits, little-endian; only those of 64 bits"),
        (b"\x7fELF\x02\x02", "a program of 64 bits, big-endian; only those of 64 bits, little-endian"),
        (b"\x7fELF\x02\x01" + bytes(10) + b"\x01", "an object file; give the program that is linked of it"),
    ],
)
def test_programs_that_have_no_table_are_refused_by_what_they_are(
    head: bytes, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "program").write_bytes(head.ljust(100, b"\0"))
    with pytest.raises(BinaryInvalid, match=reason):
        table_of(tmp_path / "program")


@pytest.mark.parametrize("address", [(1 << 62) + 1, 1 << 63, (1 << 64) - 4096])
def test_segments_beyond_all_programs_are_refused(address: int, tmp_path: Path) -> None:
    content = bytearray(small_program(b"12345678"))
    struct.pack_into("<QQ", content, 64 + 16, address, address)  # of the first segment
    (tmp_path / "program").write_bytes(content)
    with pytest.raises(BinaryInvalid, match="at addresses that no program has"):
        table_of(tmp_path / "program")
