"""Programs: damaged ELF files, hundreds a second, are read for their symbols, in processes with bounds.

Each is taken or refused with a `BinaryInvalid`, in little time and memory, and the table of one that is
taken answers for addresses. Any other error is a fault, as is a process that a signal ends. What is damaged
is built here, by gcc, clang and binutils.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
import signal
import struct
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_merge.symbols import SymbolTable, write_table

from tests.campaign.report import Findings

_C = """
struct list { int value; struct list *next; };
static inline int twice(int n) { return n * 2 + 1; }
static inline int sum_of(struct list *of) {
    int sum = 0;
    for (; of; of = of->next) sum += twice(of->value);
    return sum;
}
__attribute__((noinline)) int work(struct list *of, int n) {
    while (n--) of->value ^= sum_of(of);
    return of->value;
}
int main(int n, char **all) { struct list one = {n, 0}; return work(&one, n) + twice(n); }
"""
_CPP = """
template <int n> struct power { static int of(int x) { return x * power<n - 1>::of(x + n); } };
template <> struct power<0> { static int of(int x) { return x; } };
namespace shop { struct cart { int total; virtual int add(int n) { return total += power<3>::of(n); } }; }
int main(int n, char **) {
    shop::cart one;
    one.total = n;
    shop::cart *any = &one;
    return any->add(n) + power<5>::of(n);
}
"""
_LINKED = ("-Wl,--build-id=sha1", "-O2", "-w")
# How each is built of `work.c` or `work.cc`, and what is done to it then.
_BUILDS: dict[str, tuple[list[str], list[str]]] = {
    "dwarf5": (["gcc", "-g", "-gdwarf-5", "work.c"], []),
    "dwarf4": (["clang", "-g", "-gdwarf-4", "work.c"], []),
    "dwarf3": (["gcc", "-g", "-gdwarf-3", "-gstrict-dwarf", "work.c"], []),
    "types": (["g++", "-g", "-fdebug-types-section", "work.cc"], []),
    "c++": (["clang++", "-g", "-ffunction-sections", "work.cc"], []),
    "split": (["gcc", "-g", "-gsplit-dwarf", "work.c"], []),
    "symbols": (["gcc", "work.c"], []),
    "compressed": (["gcc", "-g", "-gz=zlib", "work.c"], []),
    "old compressed": (["gcc", "-g", "-gz=zlib-gnu", "work.c"], []),
    "debug": (["gcc", "-g", "work.c"], ["objcopy", "--only-keep-debug"]),
    "dynamic": (["gcc", "-shared", "-fPIC", "work.c"], ["strip"]),
}  # fmt: skip
_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
# What one small file may take: seconds of CPU time, and bytes beyond what the process has.
_SECONDS, _BYTES = 5.0, 512 << 20
_MOST_FAULTS = 20
_LIMITS = BinaryLimits(unpacked=64 << 20)


def run(seed: int, seconds: float, scratch: Path) -> Findings:
    """Read damaged programs for `seconds`; see `report`. A program that is a fault is kept."""
    findings, end = Findings(), time.monotonic() + seconds
    programs = [*_built(scratch).values()]
    # The number of the program that is read, then how many were taken and refused.
    told = mmap.mmap(-1, 24)

    def draw(number: int) -> bytes:
        return damaged(programs, seed, number)

    while time.monotonic() < end and len(findings.faults) < _MOST_FAULTS:
        ended = _in_child(lambda: _read(draw, end, scratch, told))
        number, *outcomes = struct.unpack("<QQQ", told)
        if ended:
            kept = scratch / f"fault-{number}"
            kept.write_bytes(draw(number))
            findings.fault(ended, kept)
            told[:] = struct.pack("<QQQ", number + 1, *outcomes)
    for name, count in zip(("programs", "taken", "refused"), struct.unpack("<QQQ", told), strict=True):
        findings.figure(name, count)
    return findings


def _built(scratch: Path) -> dict[str, bytes]:
    """Return the programs that are damaged, by name."""
    (scratch / "work.c").write_text(_C)
    (scratch / "work.cc").write_text(_CPP)
    built = {}
    for name, (command, then) in _BUILDS.items():
        same = f"-ffile-prefix-map={scratch}=/work"  # for the same seed
        subprocess.run([*command, *_LINKED, same, "-o", "work"], cwd=scratch, check=True)
        if then:
            subprocess.run([*then, "work"], cwd=scratch, check=True)
        built[name] = (scratch / "work").read_bytes()
    return built


def damaged(programs: list[bytes], seed: int, number: int) -> bytes:
    """Return the damaged program of this number, which is the same for the same seed."""
    random = Random(f"{seed} {number}")  # noqa: S311 - no secret
    content = bytearray(random.choice(programs))
    if random.randrange(4) == 0:
        begin, other = random.randrange(len(content)), random.choice(programs)
        length, source = random.randrange(1, 256), random.randrange(len(other))
        content[begin : begin + length] = other[source : source + length]
    spans = _spans(content)
    for _ in range(random.choice((1, 1, 2, 4, 8, 32))):
        (begin, size), way = random.choice(spans), random.randrange(4)
        at = begin + random.randrange(size)
        if way == 0:
            content[at] ^= 1 << random.randrange(8)
        elif way == 1:
            content[at] = random.randrange(256)
        else:
            size = random.choice((1, 2, 4, 8))
            written = (random.choice(_EXTREMES) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
            content[at : at + size] = written[: len(content) - at]
    if random.randrange(50) == 0:
        del content[random.randrange(len(content)) :]
    return bytes(content)


def _spans(content: bytearray) -> list[tuple[int, int]]:
    """Return where the head, the tables and the sections begin, and their sizes; the last is all of it."""
    segments, sections = struct.unpack_from("<QQ", content, 32)
    n_segments, n_sections = struct.unpack_from("<H2xH", content, 56)
    tables = [(0, 64), (segments, 56 * n_segments), (sections, 64 * n_sections)]
    for row in range(n_sections):
        if sections + 64 * row + 64 <= len(content):
            _, _, _, address, offset, size = struct.unpack_from("<IIQQQQ", content, sections + 64 * row)
            if not address and size:  # what isn't loaded: debug information and symbols
                tables.append((offset, size))
    whole = [(0, len(content))]
    return [(at, size) for at, size in (*tables, *whole) if size and at + size <= len(content)]


def _read(draw: Callable[[int], bytes], end: float, scratch: Path, told: mmap.mmap) -> None:
    """Read programs, given by number, until it is time to end. Raises what is no refusal."""
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE + _BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    number, taken, refused = struct.unpack("<QQQ", told)
    program, table = scratch / "program", scratch / "table"
    while time.monotonic() < end:
        told[:] = struct.pack("<QQQ", number, taken, refused)
        content = draw(number)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        program.write_bytes(content)
        try:
            with table.open("wb") as file:
                build_id = write_table(program, file, _LIMITS)
            opened = SymbolTable.open(table)
            assert opened.build_id == build_id
            addresses = np.arange(0, 0x8000, 7).astype(np.uint64)
            found = opened.look_up(opened.addresses(addresses, 0x1000, 0x5000, 0x1000))
            opened.functions(found.function)
            taken += 1
        except BinaryInvalid:
            refused += 1
        number += 1
    signal.setitimer(signal.ITIMER_PROF, 0)
    told[:] = struct.pack("<QQQ", number, taken, refused)


def _in_child(work: Callable[[], None]) -> str:
    """Do work in a child process, and return what ended it but its end; "" for nothing."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's threads are idle meanwhile
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            os.close(reading)
            work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
            os.write(writing, f"{type(error).__name__}: {error}".encode()[:4096])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        fault = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    return fault or (f"the process was ended by {signal.Signals(-ended).name}" if ended else "")
