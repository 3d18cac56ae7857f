"""Symbols: the tables of programs, and the names that views get from them.

Measured in processes of their own, `python -m tests.bench.symbols WHAT ...`, which print what it took.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING

from tests.bench.measure import progress, run, within
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import ROOT, Rig

if TYPE_CHECKING:
    from pprof_merge import Profile
    from pprof_merge.symbols import SymbolTable

TITLE = "Names of functions"
# One object of C++ with debug information is linked so often, each time with other names, that the program
# has 100 MB.
_SOURCE = """
#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
struct item { std::string name; int count; bool operator<(const item &o) const { return name < o.name; } };
template <int N> int work(const std::vector<std::string> &words) {
    std::map<std::string, item> sorted;
    std::unordered_map<std::string, std::vector<item>> all;
    std::regex fits("a[b-d]+(e|f)*" + std::to_string(N));
    for (const auto &word : words)
        if (std::regex_search(word, fits)) { sorted[word].count += N; all[word].push_back({word, N}); }
    std::vector<item> every;
    for (auto &each : sorted) every.push_back(each.second);
    std::sort(every.begin(), every.end());
    return every.empty() ? (int)all.size() : every[0].count;
}
int run(const std::vector<std::string> &words) { return work<1>(words) + work<2>(words); }
"""
_COPIES = 90
_ADDRESSES, _COMPARED = 10_000, 100_000
_PROFILES, _STACKS, _DEPTH, _CALLS = 1000, 200, 20, 5000
_LOADED_AT = 0x7F0000000000


def sections(rig: Rig) -> list[Section]:
    """Measure the four figures that were asked for."""
    program = _built(rig)
    size = program.stat().st_size
    here = [sys.executable, "-m", "tests.bench.symbols"]
    made = run([*here, "table", program, rig.scratch / "table"], ROOT).cost
    looked_up = within([*here, "names", program, rig.scratch / "table", str(rig.count(_ADDRESSES))], ROOT)
    views = {
        kind: within([*here, kind, program, rig.scratch / "table", str(rig.count(_PROFILES))], ROOT)
        for kind in ("unnamed", "named")
    }
    compared = json.loads(
        run([*here, "compare", program, rig.scratch / "table", str(rig.count(_COMPARED))], ROOT).output
    )
    rows = [
        [
            f"table of a C++ program of {size / 1e6:.0f} MB",
            f"{seconds(made.cpu)}, {made.memory:.0f} MiB",
            "10 s, 512 MiB",
        ],
        [f"names of {rig.count(_ADDRESSES):,} addresses, warm", seconds(looked_up.cpu), "50 ms"],
        [
            f"flame graph of {rig.count(_PROFILES):,} profiles, warm: unnamed ones beside named ones",
            f"{seconds(views['unnamed'].cpu)}, {ratio(views['unnamed'].cpu, views['named'].cpu)} times",
            "1.3 times",
        ],
        [
            f"addresses of {compared['addresses']:,} with other frames than llvm-symbolizer has",
            f"{compared['different']:,}",
            "0",
        ],
    ]
    for row in rows:
        progress(" | ".join(row))
    return [
        Section(
            TITLE,
            f"""{table(("what", "CPU", "asked"), rows)}

The program is C++, built by clang with debug information. Its table is made once. For the addresses that
were compared, llvm-symbolizer took {seconds(compared["theirs"])} of CPU, and ours
{seconds(compared["ours"])}.""",
        )
    ]


def _built(rig: Rig) -> Path:
    source, program = rig.scratch / "part.cc", rig.scratch / "program"
    source.write_text(_SOURCE)
    part = rig.scratch / "part.o"
    run(["clang++", "-g", "-O2", "-fPIC", "-std=c++17", "-c", source, "-o", part], rig.scratch)
    copies = [rig.scratch / f"part{number}.o" for number in range(rig.count(_COPIES))]
    for copy in copies:
        run(["objcopy", f"--prefix-symbols={copy.stem}_", part, copy], rig.scratch)
    run(["ld", "-shared", "--build-id", "-o", program, *copies], rig.scratch)
    for copy in copies:
        copy.unlink()
    return program


def main(what: str, program: Path, file: Path, count: int) -> None:
    """Do one of these things in this process."""
    from pprof_merge.symbols import SymbolTable, write_table  # noqa: PLC0415 - the parent stays small

    if what == "table":
        with file.open("wb") as to:
            write_table(program, to)
        return
    opened = SymbolTable.open(file)
    if what == "compare":
        answer: object = _compared(program, opened, count)
    elif what == "names":
        answer = _names(program, opened, count)
    else:
        answer = _views(program, opened, count, is_named=what == "named")
    print(json.dumps(answer))  # noqa: T201 - the answer


def _costs(work: Callable[[], object], rounds: int = 5) -> list[dict[str, float]]:
    """Return the costs of doing work, the first time left out."""
    work()
    costs = []
    for _ in range(rounds):
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        costs.append({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall})
    return costs


def _code(program: Path) -> list[tuple[int, int]]:
    """Return the addresses and the sizes of the program's functions."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - the parent stays small
    from elftools.elf.sections import SymbolTableSection  # noqa: PLC0415 - as above

    with program.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(symbols, SymbolTableSection)
        found = {
            (symbol["st_value"], symbol["st_size"])
            for symbol in symbols.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC"
        }
    return sorted(each for each in found if all(each))


def _drawn(program: Path, count: int) -> list[int]:
    """Return distinct addresses in functions, ascending."""
    draw, code = random.Random(1), _code(program)  # noqa: S311 - no secret
    chosen = draw.choices(code, [size for _, size in code], k=2 * count)
    return sorted({start + draw.randrange(size) for start, size in chosen})[:count]


def _profile(build_id: str, stacks: list[list[int]]) -> bytes:
    """Return a profile of stacks of addresses, the leaf first, of a program whose file is mapped as it is."""
    from pprof_proto.profile_pb2 import Profile  # noqa: PLC0415 - the parent stays small

    profile = Profile(string_table=[b"", b"samples", b"count", build_id.encode()])
    profile.sample_type.add(type=1, unit=2)
    profile.mapping.add(id=1, memory_start=_LOADED_AT, memory_limit=_LOADED_AT + (1 << 32), build_id=3)
    ids = dict[int, int]()
    for stack in stacks:
        for address in stack:
            if address not in ids:
                ids[address] = len(ids) + 1
                profile.location.add(id=ids[address], mapping_id=1, address=_LOADED_AT + address)
        profile.sample.add(location_id=[ids[address] for address in stack], value=[1])
    return profile.SerializeToString()


def _names(program: Path, opened: SymbolTable, count: int) -> object:
    from pprof_merge import decode  # noqa: PLC0415 - the parent stays small
    from pprof_merge.symbols import with_names  # noqa: PLC0415 - as above

    profile = decode(_profile(opened.build_id, [[each] for each in _drawn(program, count)]))
    tables = {opened.build_id: opened}
    assert len(with_names(profile, tables).locations.lines) >= count
    return _costs(lambda: with_names(profile, tables))


def _views(program: Path, opened: SymbolTable, count: int, *, is_named: bool) -> object:
    """Draw the flame graph of the merge of profiles, which have names or get them."""
    from pprof_merge import decode, encode  # noqa: PLC0415 - the parent stays small
    from pprof_merge.analysis import FlameGraph, FlameView, WeighedStacks  # noqa: PLC0415 - as above
    from pprof_merge.merging.collection import Collection  # noqa: PLC0415 - as above
    from pprof_merge.symbols import with_names  # noqa: PLC0415 - as above

    draw, calls = random.Random(2), _drawn(program, _CALLS)  # noqa: S311 - no secret
    tables, collection = {opened.build_id: opened}, Collection()
    for _ in range(count):
        stacks = [draw.choices(calls, k=_DEPTH) for _ in range(_STACKS // 10)] * 10
        content = _profile(opened.build_id, stacks)
        collection.add(encode(with_names(decode(content), tables)) if is_named else content)

    def named(merged: Profile) -> Profile:
        return merged if is_named else with_names(merged, tables)

    return _costs(lambda: FlameGraph.of(WeighedStacks.of(named(collection.merge()), 0), FlameView()))


def _compared(program: Path, opened: SymbolTable, count: int) -> object:
    """Compare the frames of addresses with those of llvm-symbolizer."""
    import numpy as np  # noqa: PLC0415 - the parent stays small

    addresses = _drawn(program, count)
    began = time.process_time()
    frames = opened.look_up(
        opened.addresses(np.array(addresses, np.uint64) + np.uint64(_LOADED_AT), _LOADED_AT, 0, 0)
    )
    functions = opened.functions(frames.function)
    ours = time.process_time() - began
    every = [
        (name.decode(), file.decode() * bool(line), line)
        for (name, file), line in zip(functions, frames.line.tolist(), strict=True)
    ]
    command = ["llvm-symbolizer", f"--obj={program}", "--no-demangle", "--output-style=JSON"]
    asked = "".join(f"{address:#x}\n" for address in addresses)
    ended, theirs = _timed(command, asked)
    different = 0
    for (begin, end), told in zip(pairwise(frames.offsets.tolist()), ended.splitlines(), strict=True):
        wanted = [
            (each["FunctionName"], normpath(each["FileName"]) * bool(each["Line"]), each["Line"])
            for each in json.loads(told)["Symbol"]
        ]
        different += every[begin:end] != wanted
    return {"addresses": len(addresses), "different": different, "ours": ours, "theirs": theirs}


def _timed(command: list[str], asked: str) -> tuple[str, float]:
    """Return the output of a command, and its CPU time in s."""
    import resource  # noqa: PLC0415 - for this alone

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return output, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0)
