"""BOLT's profile with the program: its counts beside those that BOLT takes, and what it makes of them."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections import Counter
from contextlib import suppress
from itertools import product
from pathlib import Path
from random import Random

import pytest
from pprof_merge import UnfitForFormat, decode
from pprof_merge.binary import Binary, BinaryInvalid, BinaryLimits, bolt_with_binary
from pprof_merge.binary.blocks import control_flow

from tests.merge.binary.program import FLAGS, recorded, sampled
from tests.merge.command.installed import pprof_merge

pytestmark = pytest.mark.system("clang", "llvm-bolt-19")
SOURCE = """
#include <stdio.h>
static int places[64];
static __attribute__((noinline)) int step(int n) { return n % 3 ? n * 5 + 1 : n / 3; }
__attribute__((noinline)) int chosen(int mode, int n) {
    switch (mode) {
    case 0: return n + 1;
    case 1: return n * 3;
    case 2: return n ^ 77;
    case 3: return step(n);
    case 4: return n / 7;
    case 5: return places[n & 63];
    }
    return 0;
}
__attribute__((noinline)) int doubled(int n) { return n * 2; }
__attribute__((noinline)) int halved(int n) { return n / 2; }
int (*const ways[])(int) = {doubled, halved};
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < 60000; i++) {
        sum += chosen(i % 5 ? i % 4 : 5, i);
        if (i % 10 == 9) sum += ways[(i + argc) % 3 == 0](i);
        // It says the opposite of what happens, so that clang's order of the blocks is the wrong one.
        if (__builtin_expect(i % 8, 0)) places[i % 61] = doubled(sum); else places[i & 63] = sum;
    }
    printf("%d\\n", sum);
    return 0;
}
"""
# Of a branch: the function and the offset where it begins, and those where it ends.
Branch = tuple[str, int, str, int]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "work.c").write_text(SOURCE)
    built: list[str | Path] = ["clang", *FLAGS, "-Wl,--emit-relocs", "-o", folder / "work", folder / "work.c"]
    subprocess.run(built, check=True)
    return folder / "work"


def bolt(program: Path, output: Path, *options: str) -> str:
    """Write what BOLT makes of a program, and return what it prints."""
    # It finds its own library beside the program, and not beside a link to it.
    tool = Path(shutil.which("llvm-bolt-19") or "").resolve()
    command: list[str | Path] = [tool, program, "-o", output, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def branches_in(text: str) -> Counter[Branch]:
    found = Counter[Branch]()
    for line in text.splitlines():
        kind, name, offset, to_kind, to_name, to_offset, _, count = line.split(" ")
        if to_kind == "1":  # what isn't leads to a library
            found[name if kind == "1" else "", int(offset, 16), to_name, int(to_offset, 16)] += int(count)
    return found


@pytest.fixture(scope="module")
def exact(program: Path) -> Counter[Branch]:
    """How often each branch was taken, as the program counts that BOLT instrumented."""
    counts = program.with_name("counts.fdata")
    bolt(program, program.with_name("counting"), "-instrument", f"--instrumentation-file={counts}")
    subprocess.run([program.with_name("counting")], check=True, stdout=subprocess.DEVNULL)
    return branches_in(counts.read_text())


@pytest.fixture(scope="module")
def binary(program: Path) -> Binary:
    return Binary.at(str(program), BinaryLimits())


@pytest.fixture(scope="module")
def profile(program: Path, binary: Binary, exact: Counter[Branch]) -> bytes:
    """Return a profile in which each instruction was sampled as often as it ran, of the functions of ours."""
    symbols = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
    places = {name: int(at, 16) for at, name in re.findall(r"^(\w+) [tT] (\w+)$", symbols, re.MULTILINE)}
    samples = dict[int, int]()
    for name in ("main", "chosen", "step", "doubled", "halved"):
        function = binary.function(places[name])
        assert function
        entered = Counter[int]()
        for (_, _, to, offset), count in exact.items():
            if to.removesuffix("/1") == name:
                entered[function.start + offset] += count
        for block in control_flow(function, binary, BinaryLimits()).blocks:
            if block and entered[block[0]]:
                samples.update(dict.fromkeys(block, entered[block[0]]))
    return sampled(binary, samples)


def written(profile: bytes, program: Path) -> str:
    return b"".join(bolt_with_binary(decode(profile), str(program))).decode("latin-1")


def test_counts_are_those_of_the_program_that_bolt_instrumented(
    profile: bytes, program: Path, exact: Counter[Branch]
) -> None:
    found = branches_in(written(profile, program))
    inside = {branch for branch in exact if branch[0] == branch[2] and branch[3]}
    ours = {branch for branch in found if branch[0] == branch[2]}
    # BOLT's counts lack the end of the loop, which ran once.
    assert all(found[branch] == 100 for branch in ours - inside)
    assert len(ours & inside) > 12
    for branch in ours & inside:
        assert found[branch] == 100 * exact[branch], branch
    # What is called, and how often each function was entered.
    calls = {branch for branch in found if branch[0] and branch[0] != branch[2]}
    assert {callee for _, _, callee, _ in calls} == {"chosen", "step/1", "doubled"}
    for name in ("chosen", "step/1", "doubled", "halved"):
        entered = sum(count for (_, _, to, offset), count in found.items() if to == name and not offset)
        assert entered == 100 * sum(
            count for (_, _, to, offset), count in exact.items() if to == name and not offset
        )


def test_bolt_takes_all_of_it_and_fewer_branches_are_taken(
    profile: bytes, program: Path, tmp_path: Path
) -> None:
    (tmp_path / "profile.pb").write_bytes(profile)
    finished = pprof_merge(
        "--format", "bolt", "--binary", program, "-o", tmp_path / "work.fdata", tmp_path / "profile.pb"
    )
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "work.fdata").read_text() == written(profile, program)
    options = ("-reorder-blocks=ext-tsp", "-reorder-functions=cdsort", "-split-functions", "-dyno-stats")
    printed = bolt(program, tmp_path / "bolted", f"-data={tmp_path / 'work.fdata'}", *options)
    assert "5 out of" in printed
    assert "stale" not in printed
    before, after = (int(count) for count in re.findall(r"(\d+) : taken branches", printed))
    assert after < before
    answers = {
        subprocess.run([each], check=True, capture_output=True).stdout
        for each in (program, tmp_path / "bolted")
    }
    assert len(answers) == 1


def test_what_cannot_be_written_is_refused(
    profile: bytes, program: Path, binary: Binary, tmp_path: Path
) -> None:
    with pytest.raises(BinaryInvalid, match="no sample is in a function"):
        written(sampled(binary, {binary.segments[0][1]: 1}), program)
    with pytest.raises(UnfitForFormat, match="it has branch records"):
        written(recorded(binary, {(1, 2): 1}), program)
    (tmp_path / "profile.pb").write_bytes(profile)
    finished = pprof_merge("--format", "bolt", tmp_path / "profile.pb")
    assert finished.returncode == 2
    assert b"--format bolt needs --binary" in finished.stderr


def test_damaged_programs_are_read_or_refused(profile: bytes, program: Path, tmp_path: Path) -> None:
    whole, random_ = program.read_bytes(), Random(7)  # noqa: S311 - not for secrets
    for number in range(60):
        content = bytearray(whole)
        if number % 5 == 0:
            del content[random_.randrange(len(content)) :]
        else:
            for place in random_.sample(range(len(content)), 8):
                content[place] = random_.randrange(256)
        (tmp_path / "damaged").write_bytes(content)
        with suppress(BinaryInvalid):
            branches_in(written(profile, tmp_path / "damaged"))


@pytest.mark.parametrize("value", [1 << 20, (1 << 31) - 1, 1 << 63, (1 << 64) - 1])
def test_sections_that_are_elsewhere_are_read_or_refused(
    profile: bytes, program: Path, tmp_path: Path, value: int
) -> None:
    whole = program.read_bytes()
    headers, size, count = struct.unpack_from("<40xQ10x2H", whole)
    for section, field in product(range(count), (24, 32)):  # where it is, and how large
        content = bytearray(whole)
        struct.pack_into("<Q", content, headers + section * size + field, value)
        (tmp_path / "damaged").write_bytes(content)
        with suppress(BinaryInvalid):
            branches_in(written(profile, tmp_path / "damaged"))
