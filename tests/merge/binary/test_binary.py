"""LLVM's sample profile with the program: its counts, what clang makes of them, and hostile programs."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from pprof_merge import decode
from pprof_merge.binary import llvm_with_binary
from pprof_merge.binary.blocks import EXIT, ControlFlow, control_flow
from pprof_merge.binary.elf import Binary
from pprof_merge.binary.flow import consistent_counts
from pprof_merge.binary.places import frames_of
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_proto.profile_pb2 import Profile

from tests.merge.binary.program import FLAGS, SOURCE, sampled
from tests.merge.command.installed import pprof_merge

pytestmark = pytest.mark.system("clang", "llvm-profdata", "llvm-symbolizer")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "work.c").write_text(SOURCE)
    subprocess.run(["clang", *FLAGS, "-o", folder / "work", folder / "work.c"], check=True)
    return folder / "work"


@pytest.fixture(scope="module")
def binary(program: Path) -> Binary:
    return Binary(program.read_bytes(), BinaryLimits())


def start_of(binary: Binary, program: Path, name: str) -> int:
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"^(\w+) T {name}$", symbols, re.MULTILINE)
    assert found
    function = binary.function(int(found[1], 16))
    assert function
    assert function.name == name.encode()
    return function.start


def flow_of(binary: Binary, program: Path) -> ControlFlow:
    function = binary.function(start_of(binary, program, "work"))
    assert function
    return control_flow(function, binary, BinaryLimits())


@pytest.fixture(scope="module")
def profile(binary: Binary, program: Path) -> bytes:
    """50 samples at each instruction of the loop, and one at the start of the function."""
    flow = flow_of(binary, program)
    first, last = max(
        ((edge.target, edge.source) for edge in flow.edges if 0 <= edge.target <= edge.source),
        key=lambda loop: loop[1] - loop[0],
    )
    loop = [address for block in flow.blocks[first : last + 1] for address in block]
    return sampled(binary, {flow.blocks[0][0]: 1} | dict.fromkeys(loop, 50))


def written(profile: bytes, program: Path, limits: BinaryLimits | None = None) -> str:
    return b"".join(llvm_with_binary(decode(profile), str(program), limits)).decode()


def test_lines_that_were_not_sampled_count_zero_and_llvm_reads_it(
    profile: bytes, program: Path, tmp_path: Path
) -> None:
    text = written(profile, program)
    head, *lines = text.splitlines()
    assert re.fullmatch(r"work:\d+:0", head)
    counts = {line.split(":")[0].strip(): int(line.split()[1]) for line in lines}
    assert max(counts.values()) > 0
    # No sample is in the returns of the cases 0 to 4; at most the one that all share counts.
    assert sum(counts.get(str(line), 0) == 0 for line in range(8, 13)) >= 3
    assert 0 in counts.values()
    (tmp_path / "work.prof").write_text(text)
    merge = ("llvm-profdata", "merge", "--sample", "-text", tmp_path / "work.prof", "-o", tmp_path / "same")
    subprocess.run(merge, check=True)
    assert (tmp_path / "same").read_text() == text
    guided = ["clang", *FLAGS, f"-fprofile-sample-use={tmp_path / 'work.prof'}", "-Werror"]
    subprocess.run([*guided, "-o", tmp_path / "guided", program.with_suffix(".c")], check=True)


def test_what_enters_a_block_leaves_it(binary: Binary, program: Path) -> None:
    flow = flow_of(binary, program)
    n = len(flow.blocks)
    assert n > 5
    assert {edge.source for edge in flow.edges} == {*range(n)}
    assert any(edge.target == EXIT for edge in flow.edges)
    # Nothing leads to the instructions between a jump and the place that the next block is aligned to.
    padding = {*range(1, n)} - {edge.target for edge in flow.edges}
    assert all(len(flow.blocks[row]) == 1 for row in padding)
    # One block was sampled most; a block that only comes from another counts as much.
    for row in {*range(n)} - padding:
        means = [float(row not in padding) for row in range(n)]
        means[row] = 100.0
        counts = consistent_counts(flow, np.array(means), 10.0)
        assert (counts >= 0).all()
        for block in range(1, n):
            into = [edge.source for edge in flow.edges if edge.target == block]
            if len(into) == 1 and sum(edge.source == into[0] for edge in flow.edges) == 1:
                assert counts[block] == pytest.approx(counts[into[0]])


JUMPING = """
int switched(int n, int x) {
    switch (n) {
    case 0: x += 3;
    case 1: x *= 5;
    case 2: x ^= 77;
    case 3: x -= n; break;
    case 4: x /= 9; break;
    case 5: return x * x;
    }
    return x;
}
int interpreted(const unsigned char *code, int x) {
    static const void *const places[] = {&&never, &&add, &&multiply, &&divide, &&stop};
    goto *places[*code++];
add: x += *code; goto *places[*code++];
multiply: x *= 7; goto *places[*code++];
divide: x /= 3; goto *places[*code++];
stop: return x;
never: __builtin_unreachable(); // has no code: its place is the end of the function
}
typedef int other(int, void *);
int tail(int n, void *call) { __attribute__((musttail)) return ((other *)call)(n + 1, call); }
int main(int argc, char **argv) { return switched(argc, argc) + interpreted(argv[0], argc); }
"""


@pytest.fixture(scope="module", params=["pie", "no-pie"])
def jumping(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jumping")
    (folder / "jumping.c").write_text(JUMPING)
    placed = (f"-f{request.param}", f"-{request.param}")
    subprocess.run(["clang", *FLAGS, *placed, "-o", folder / "jumping", folder / "jumping.c"], check=True)
    return folder / "jumping"


@pytest.mark.parametrize(
    ("name", "lines"),
    [("switched", {4, 5, 6, 7, 8, 9}), ("interpreted", {16, 17, 18, 19})],
)
def test_an_indirect_jump_leads_where_its_table_says(jumping: Path, name: str, lines: set[int]) -> None:
    limits = BinaryLimits()
    binary = Binary(jumping.read_bytes(), limits)
    function = binary.function(start_of(binary, jumping, name))
    assert function
    flow = control_flow(function, binary, limits)
    table = flow.blocks.index([])
    assert not any(flow.blocks[table:])
    targets = [edge.target for edge in flow.edges if edge.source == table]
    assert EXIT not in targets
    frames = frames_of(str(jumping), [flow.blocks[target][0] for target in targets], limits)
    assert {frame.line for found in frames.values() for frame in found} >= lines


def test_a_call_through_a_pointer_that_comes_last_leaves(jumping: Path) -> None:
    binary = Binary(jumping.read_bytes(), BinaryLimits())
    function = binary.function(start_of(binary, jumping, "tail"))
    assert function
    flow = control_flow(function, binary, BinaryLimits())
    assert flow.blocks[1:] == [[]]
    assert {edge.target for edge in flow.edges} == {1, EXIT}


CALLING = """
__attribute__((noinline)) int twice(int number) { return number * 2 + 1; }
__attribute__((noinline)) int rare(int number) { return number - 7; }
int (*volatile chosen)(int) = twice;
__attribute__((noinline)) int work(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += chosen(i);
    return sum;
}
int main(int argc, char **argv) {
    if (argc > 5)
        chosen = rare;
    return work(argc) + twice(argc);
}
"""


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calling")
    (folder / "calling.c").write_text(CALLING)
    subprocess.run(["clang", *FLAGS, "-o", folder / "calling", folder / "calling.c"], check=True)
    return folder / "calling"


def test_what_a_pointer_mostly_calls_is_nested_in_the_call(calling: Path) -> None:
    """Samples of `twice` are 40, and 30 of them are below the call through the pointer."""
    binary = Binary(calling.read_bytes(), BinaryLimits())
    twice, rare, work = (start_of(binary, calling, name) for name in ("twice", "rare", "work"))
    function = binary.function(work)
    assert function
    ((call, end),) = control_flow(function, binary, BinaryLimits()).indirect_calls.items()
    message = Profile.FromString(
        sampled(binary, {twice: 30, rare: 2, work: 1, call: 8, end - 1: 1, twice + 1: 10})
    )
    callers = {place: number for number, place in enumerate((twice, rare, work, call, end - 1), 1)}
    for leaf in (twice, rare):
        message.sample[callers[leaf] - 1].location_id.append(callers[end - 1])
    text = written(message.SerializeToString(), calling)
    (nested,) = re.findall(r"^ (\d+)(?:\.\d+)?: twice:(\d+)$", text, re.MULTILINE)
    (whole,) = re.findall(r"^twice:(\d+):0$", text, re.MULTILINE)
    assert nested[0] == "3"
    assert int(nested[1]) == 3 * int(whole)
    assert "rare:20:0\n" in text


def test_the_command(profile: bytes, program: Path, tmp_path: Path) -> None:
    (tmp_path / "cpu.pb").write_bytes(profile)
    finished = pprof_merge("--format", "llvm", "--binary", program, tmp_path / "cpu.pb")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.decode() == written(profile, program)


def test_wrong_programs(binary: Binary, profile: bytes, program: Path, tmp_path: Path) -> None:
    (tmp_path / "cpu.pb").write_bytes(profile)
    (tmp_path / "other.pb").write_bytes(sampled(binary, {start_of(binary, program, "work"): 1}, "5eed"))
    subprocess.run(["strip", "-o", tmp_path / "stripped", program], check=True)
    cases = {
        ("cpu.pb", tmp_path / "none"): "No such file",
        ("cpu.pb", tmp_path / "cpu.pb"): "not an ELF file",
        ("cpu.pb", tmp_path / "stripped"): "no symbol table",
        ("other.pb", program): "no sample is in a function of this program",
    }
    for (name, path), reason in cases.items():
        finished = pprof_merge("--format", "llvm", "--binary", path, tmp_path / name)
        assert finished.returncode == 2
        assert f"--binary {path}: " in finished.stderr.decode()
        assert reason in finished.stderr.decode()
    finished = pprof_merge("--format", "go", "--binary", program, tmp_path / "cpu.pb")
    assert finished.returncode == 2
    assert "--binary needs --format llvm or bolt" in finished.stderr.decode()


@pytest.mark.parametrize(
    "limits",
    [
        BinaryLimits(size=100),
        BinaryLimits(sections=3),
        BinaryLimits(symbols=3),
        BinaryLimits(code_bytes=3),
        BinaryLimits(function_bytes=3),
        BinaryLimits(relocations=3),
        BinaryLimits(table_entries=3),
        BinaryLimits(symbolizer_seconds=0.000001),
        BinaryLimits(symbolizer_bytes=1 << 20),
    ],
)
def test_each_limit_is_kept(profile: bytes, program: Path, limits: BinaryLimits) -> None:
    with pytest.raises(BinaryInvalid):
        written(profile, program, limits)


def test_without_time_for_the_flow_blocks_count_their_means(profile: bytes, program: Path) -> None:
    assert written(profile, program, BinaryLimits(flow_seconds=0.0)).startswith("work:")


def test_damaged_programs_are_read_or_refused(profile: bytes, program: Path, tmp_path: Path) -> None:
    """Cut and changed bytes give another profile or a BinaryInvalid, and nothing else."""
    whole, random_ = program.read_bytes(), random.Random(7)  # noqa: S311 - not for secrets
    header = 64 + 56 * 14
    for number in range(24):
        content = bytearray(whole)
        if number % 3 == 0:
            del content[random_.randrange(len(content)) :]
        else:
            places = range(header) if number % 3 == 1 else range(len(content) - 2400, len(content))
            for place in random_.sample(places, 8):
                content[place] = random_.randrange(256)
        (tmp_path / "damaged").write_bytes(content)
        try:
            assert written(profile, tmp_path / "damaged")
        except BinaryInvalid as error:
            assert str(error)  # noqa: PT017 - either is right
