"""LLVM's sample profile of branch records: each instruction's count, entries, calls, and what can't be."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pprof_merge import UnfitForFormat, decode
from pprof_merge.binary import Binary, BinaryInvalid, BinaryLimits, llvm_with_binary
from pprof_merge.binary.places import duplication_factor, frames_of, path_of
from pprof_merge.formats import FORMATS
from pprof_proto.profile_pb2 import Profile

from tests.merge.binary.program import FLAGS, SOURCE, recorded, sampled
from tests.merge.differential import check_as_go
from tests.oracle.oracle import Oracle

pytestmark = pytest.mark.system("clang", "llvm-profdata", "llvm-symbolizer", "objdump")
CALLING = """
__attribute__((noinline)) int quoted(int x) __asm__("odd name");
__attribute__((noinline)) int quoted(int x) { odd += x; return odd * 3; }
__attribute__((noinline)) int rare(int x) __asm__("work.cold");
__attribute__((noinline)) int rare(int x) { even += x; return even * 5; }
__asm__(".globl large; .type large, @function; large: .fill 1000000, 1, 0x90; ret; .size large, .-large");
int many[4096];
__attribute__((noinline)) void unrolled(int n) {
#pragma clang loop unroll_count(4)
    for (int i = 0; i < n; i++) many[i] += n * i;
}
int main(int argc, char **argv) {
    int x = work(argc, argc);
    unrolled(argc);
    return x + quoted(argc) + rare(argc);
}
"""


class Code:
    """The program: the instructions of its functions, by objdump, and where they begin."""

    def __init__(self, path: Path) -> None:
        self.path, self.binary = path, Binary.at(str(path), BinaryLimits())
        printed = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
        ).stdout
        self.functions: dict[str, list[int]] = {}
        self.texts: dict[int, str] = {}
        for name, body in re.findall(r"^\w+ <(.*)>:\n((?:.+\n)*)", printed, re.MULTILINE):
            listed = re.findall(r"^ *(\w+):\t(.*)", body, re.MULTILINE)
            # Padding to the next function is listed, too.
            addresses = (int(at, 16) for at, _ in listed)
            self.functions[name] = [at for at in addresses if self.binary.function(at)]
            self.texts.update((int(at, 16), text) for at, text in listed)

    def goes_on(self, at: int) -> bool:
        return not re.match(r"jmp|ret|ud2|hlt", self.texts[at])

    def call(self, function: str, callee: str) -> int:
        return next(at for at in self.functions[function] if f"<{callee}>" in self.texts[at])

    def written(self, profile: bytes) -> str:
        return b"".join(llvm_with_binary(decode(profile), str(self.path))).decode()


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Code:
    path = tmp_path_factory.mktemp("program") / "work"
    path.with_suffix(".c").write_text(SOURCE[: SOURCE.index("int main")] + CALLING)
    subprocess.run(["clang", *FLAGS, "-o", path, path.with_suffix(".c")], check=True)
    return Code(path)


def test_a_range_counts_for_each_of_its_instructions_and_no_other(code: Code, tmp_path: Path) -> None:
    work = code.functions["work"]
    last = next(at for at in work if re.match(r"j", code.texts[at]))
    text = code.written(recorded(code.binary, {(work[0], last): 7}))
    head, *lines = text.splitlines()
    assert re.fullmatch(r"work:\d+:0", head)
    counts = {line.split(": ")[0]: int(line.split(": ")[1]) for line in lines}
    assert {*counts.values()} == {0, 7}
    (tmp_path / "work.prof").write_text(text)
    check = ("llvm-profdata", "merge", "--sample", "-text", tmp_path / "work.prof", "-o", tmp_path / "same")
    subprocess.run(check, check=True)
    assert (tmp_path / "same").read_text() == text


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(("work", "unrolled")), random=st.randoms(use_true_random=False))
def test_counts_are_those_of_going_through_each_range(code: Code, name: str, random: Random) -> None:
    """Some ranges run on after a jump, as CPUs were seen to record."""
    work = code.functions[name]
    ranges, ran = dict[tuple[int, int], int](), dict.fromkeys(work, 0)
    for _ in range(random.randrange(1, 12)):
        first, last = sorted((random.choice(work), random.choice(work)))
        count = random.randrange(1, 50)
        if (first, last) in ranges:
            continue
        ranges[first, last] = count
        within = [at for at in work if first <= at <= last]
        if all(map(code.goes_on, within[:-1])):
            for at in within:
                ran[at] += count
    expected: dict[str, int] = {}
    for at, frames in frames_of(str(code.path), work, BinaryLimits()).items():
        for _, (offset, discriminator) in path_of(frames):
            place = f"{offset}.{discriminator}" if discriminator else str(offset)
            count = ran[at] * duplication_factor(frames[0].discriminator)
            expected[place] = max(expected.get(place, 0), count)
    _, *lines = code.written(recorded(code.binary, ranges)).splitlines()
    assert {line.split(": ")[0].strip(): int(line.split(": ")[1]) for line in lines} == expected


def test_calls_count_at_their_line_and_entries_also_from_outside(code: Code) -> None:
    work, main = code.functions["work"], code.functions["main"]
    call = code.call("main", "work")
    branches = {(call, work[0]): 9, (0, work[0]): 4, (0, main[0]): 1, (call, work[1]): 3, (work[2], 0): 5}
    text = code.written(recorded(code.binary, {(main[0], call): 2, (work[0], work[1]): 9}, branches))
    assert re.search(r"^work:\d+:13$", text, re.MULTILINE)
    assert re.search(r"^main:\d+:1$", text, re.MULTILINE)
    # The line ran as often as it called.
    assert re.findall(r"^.* work:.*$", text, re.MULTILINE) == [" 1: 9 work:9"]


def test_a_branch_to_the_cold_part_of_a_function_is_no_entry(code: Code) -> None:
    work, cold = code.functions["work"], code.functions["work.cold"]
    text = code.written(recorded(code.binary, {(work[0], work[1]): 5}, {(work[1], cold[0]): 5}))
    assert text.startswith("work:")
    assert re.fullmatch(r"work:\d+:0", text.splitlines()[0])


def test_an_address_in_a_large_function_costs_no_copy_of_it(code: Code) -> None:
    """100,000 addresses took 9 seconds of CPU time when each had one."""
    start, *_ = code.functions["large"]
    began = time.process_time()
    for at in range(100_000):
        function = code.binary.function(start + at)
        assert function
        assert function.name == b"large"
    assert time.process_time() - began < 3


def test_a_name_that_would_end_early_is_no_target(code: Code, tmp_path: Path) -> None:
    quoted, call = code.functions["odd name"], code.call("main", "odd name")
    text = code.written(recorded(code.binary, {(quoted[0], quoted[1]): 2}, {(call, quoted[0]): 2}))
    assert re.search(r"^odd name:\d+:2$", text, re.MULTILINE)
    assert " odd name" not in text
    (tmp_path / "work.prof").write_text(text)
    subprocess.run(["llvm-profdata", "show", "--sample", tmp_path / "work.prof"], check=True)


def test_what_cannot_have_run_counts_for_nothing(code: Code) -> None:
    work, main = code.functions["work"], code.functions["main"]
    sound = {(work[0], work[1]): 5}
    returns = max(at for at in work if not code.goes_on(at))
    bogus = {
        (work[0], main[-1]): 7,
        (returns, main[0]): 7,
        (0, work[1]): 7,
        (main[0], 0): 7,
        (work[2], work[3]): -7,
    }
    text = code.written(recorded(code.binary, sound))
    profile = Profile.FromString(recorded(code.binary, sound | bogus, {(work[2], main[0]): -3}))
    profile.sample.add(location_id=profile.sample[0].location_id[1:], value=[7, 7])
    assert code.written(profile.SerializeToString()) == text


def test_without_records_in_the_program_there_is_a_reason(code: Code) -> None:
    with pytest.raises(BinaryInvalid, match="no sample is in a function of this program"):
        code.written(recorded(code.binary, {(0, 0): 7}))
    with pytest.raises(UnfitForFormat, match="need the program that ran: upload it"):
        FORMATS["llvm"].write(decode(recorded(code.binary, {(0, 0): 7})))
    # A profile of CPU time isn't taken for one.
    assert code.written(sampled(code.binary, {code.functions["work"][0]: 1})).startswith("work:10:0\n")


def test_merges_are_those_of_google_pprof_and_add_up(code: Code, oracle: Oracle) -> None:
    work, call = code.functions["work"], code.call("main", "work")
    first = recorded(code.binary, {(work[0], work[1]): 5, (work[1], work[1]): 2}, {(call, work[0]): 5})
    # A loop of one block: its range and its branch are the same two addresses.
    second = recorded(code.binary, {(work[0], work[1]): 3}, {(work[1], work[0]): 3}, moved=0x7F0000000000)
    merged = check_as_go([first, second], oracle)
    both = recorded(
        code.binary,
        {(work[0], work[1]): 8, (work[1], work[1]): 2},
        {(call, work[0]): 5, (work[1], work[0]): 3},
    )
    assert code.written(merged) == code.written(both)
