"""Test what becomes of branch records, by perf's text and in recordings. The lines are of perf 6.1."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pgo_agent.cli
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.errors import NotReadable, ToolFailed
from pgo_agent.native import Frame, Mapping, read_branches, run_tool
from pgo_agent.native.perf_script import mapping_in

from tests.agent.native.perf_data import of_hardware, recorded, with_branches
from tests.agent.serving import parsed

Pairs = dict[tuple[int, int], tuple[int, int]]

BINARY = Mapping("/srv/my json", "c717", 0x4000, 0x2000, 0x1000)
MAPPED = "json 1/1 1.0: PERF_RECORD_MMAP2 {}/{}: [{:#x}(0x2000) @ 0x1000 <c717>]: r-xp /srv/my json\n"
LIBRARY = "json 1/1 1.0: PERF_RECORD_MMAP2 1/1: [0x9000(0x1000) @ 0 00:00 12 5]: r-xp /lib/libc.so\n"


def sample(pid: int, *branches: tuple[int, int], event: str = "cycles:u") -> str:
    """Return a sample as perf prints it; the latest branch is the first."""
    printed = "".join(f" {source:#x}/{target:#x}/P/-/-/0 " for source, target in branches)
    return f"json  {pid}/{pid}  2.000000000:     100 {event}: {printed}\n"


@pytest.fixture
def frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frames:
    return Frames(tmp_path, monkeypatch)


class Frames:
    """Reads what a perf prints that is no perf."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self.path = folder, folder / "perf.data"
        (folder / "perf").write_text('#!/bin/sh\n[ "$1" = evlist ] && echo BRANCH_STACK || cat printed\n')
        (folder / "perf").chmod(0o755)
        monkeypatch.chdir(folder)

    def read(self, printed: str, event: str = "") -> dict[tuple[Frame, ...], tuple[int, int]]:
        """Return the ranges and branches, by their frames."""
        (self._folder / "printed").write_text(printed)
        recording = read_branches(self.path, 10**18, perf=str(self._folder / "perf"), event=event)
        return {stack.frames: counts for stack, counts in recording.stacks.items()}

    def pairs(self, printed: str, event: str = "") -> Pairs:
        """Return them by their addresses."""
        read = self.read(printed, event)
        return {(leaf.address, caller.address): counts for (leaf, caller), counts in read.items()}


def test_between_two_branches_code_ran_in_a_row(frames: Frames) -> None:
    printed = MAPPED.format(1, 1, 0x4000) + 3 * sample(
        1, (0x4050, 0x4010), (0x4070, 0x4040), (0x4030, 0x4060)
    )
    here = {at: Frame(at, BINARY, "") for at in range(0x4010, 0x4080, 0x10)}
    assert frames.read(printed) == {
        (here[0x4050], here[0x4040]): (3, 0),
        (here[0x4070], here[0x4060]): (3, 0),
        (here[0x4010], here[0x4050]): (0, 3),
        (here[0x4040], here[0x4070]): (0, 3),
        (here[0x4060], here[0x4030]): (0, 3),
    }


def test_what_a_file_does_not_have_breaks_the_row(frames: Frames) -> None:
    """The kernel and code that was made at run time are in no file. A range is in one, and goes up."""
    unknown = (0x4050, 0x77770000), (0x77770004, 0x4040), (0x4020, 0x4030)
    printed = MAPPED.format(1, 1, 0x4000) + LIBRARY + sample(1, *unknown)
    assert frames.pairs(printed) == {(0x4030, 0x4020): (0, 1), (0x4050, 0x4040): (1, 0)}
    library = (0x4050, 0x9000), (0x9008, 0x4040), (0x4020, 0x9004), (0x4020, 0x4030)
    assert frames.pairs(MAPPED.format(1, 1, 0x4000) + LIBRARY + sample(1, *library)) == {
        (0x9000, 0x4050): (0, 1),
        (0x4040, 0x9008): (0, 1),
        (0x9004, 0x4020): (0, 1),
        (0x4030, 0x4020): (0, 1),
        (0x4050, 0x4040): (1, 0),
        (0x9008, 0x9004): (1, 0),
    }

    gap = (0x9008, 0x4010), (0x4020, 0x4040)
    assert frames.pairs(MAPPED.format(1, 1, 0x4000) + LIBRARY + sample(1, *gap)) == {
        (0x4010, 0x9008): (0, 1),
        (0x4040, 0x4020): (0, 1),
    }


def test_processes_of_one_file_add_up_wherever_it_is(frames: Frames) -> None:
    printed = MAPPED.format(1, 1, 0x4000) + MAPPED.format(2, 2, 0x14000)
    printed += sample(1, (0x4050, 0x4010)) + sample(2, (0x14050, 0x14010)) + sample(3, (0x4050, 0x4010))
    assert frames.pairs(printed) == {(0x4010, 0x4050): (0, 2)}


def test_a_forked_process_has_the_memory_of_then_until_it_runs_another_program(frames: Frames) -> None:
    branch = (0x4050, 0x4010)
    forked = "json 1/1 1.0: PERF_RECORD_FORK(2:2):(1:1)\njson 1/1 1.0: PERF_RECORD_FORK(1:7):(1:1)\n"
    printed = MAPPED.format(1, 1, 0x4000) + forked + LIBRARY + sample(2, branch, (0x9000, 0x9004))
    assert frames.pairs(printed) == {(0x4010, 0x4050): (0, 1)}
    # A thread of another process has that one's memory, whatever it is called.
    thread = "json 1/1 1.0: PERF_RECORD_FORK(9:10):(1:1)\n" + sample(9, branch)
    assert frames.pairs(printed + thread) == {(0x4010, 0x4050): (0, 1)}
    named = "json 2/2 1.0: PERF_RECORD_COMM: other:2/2\n"
    assert frames.pairs(printed + named + sample(2, branch)) == {(0x4010, 0x4050): (0, 2)}
    ran = "json 2/2 1.0: PERF_RECORD_COMM exec: other:2/2\n"
    assert frames.pairs(printed + ran + sample(2, branch)) == {(0x4010, 0x4050): (0, 1)}


def test_a_mapping_takes_the_place_of_what_was_there(frames: Frames) -> None:
    over = "json 1/1 1.0: PERF_RECORD_MMAP2 1/1: [0x4800(0x100) @ 0 <d828>]: r-xp /lib/over\n"
    before = sample(1, (0x4800, 0x48FF))
    printed = MAPPED.format(1, 1, 0x4000) + before + over + sample(1, (0x47FF, 0x4900), (0x4800, 0x48FF))
    places = {frame for pair in frames.read(printed) for frame in pair}
    below = {(at, BINARY.file) for at in (0x47FF, 0x4800, 0x48FF, 0x4900)}
    found = {(frame.address, frame.mapping.file) for frame in places if frame.mapping}
    assert found == below | {(0x4800, "/lib/over"), (0x48FF, "/lib/over")}


def test_code_in_no_file_is_none(frames: Frames) -> None:
    made = "json 1/1 1.0: PERF_RECORD_MMAP 1/1: [0x7000(0x1000) @ 0x7000]: x //anon\n"
    printed = MAPPED.format(1, 1, 0x4000) + made + sample(1, (0x7050, 0x7010), (0x4050, 0x4010))
    assert frames.pairs(printed) == {(0x4010, 0x4050): (0, 1)}


def test_one_event_is_read(frames: Frames) -> None:
    printed = MAPPED.format(1, 1, 0x4000) + sample(1, (0x4050, 0x4010)) + sample(1, event="instructions:ppu")
    assert frames.pairs(printed, "cycles") == {(0x4010, 0x4050): (0, 1)}
    with pytest.raises(NotReadable, match=r"choose one with --event: cycles:u \(1\), instructions:u \(1\)"):
        frames.read(printed)
    with pytest.raises(NotReadable, match="none of its branches is in a file"):
        frames.read(printed, "instructions")


@pytest.mark.parametrize(
    "printed",
    [
        "0x4050/0x4010/P/-/-/0/COND/NON_SPEC_CORRECT_PATH/-",
        "0x4050/0x4010/P/-/-/0/",
        "0x4050/0x4010/-/-/-/0",
    ],
)
def test_flags_of_all_versions_of_perf_are_passed_over(frames: Frames, printed: str) -> None:
    line = f"json  1/1  2.000000000:     100 cycles:  {printed}  {printed} \n"
    assert frames.pairs(MAPPED.format(1, 1, 0x4000) + line) == {
        (0x4010, 0x4050): (0, 2),
        (0x4050, 0x4010): (1, 0),
    }


@pytest.mark.parametrize(
    "branch", ["0x4050/0x4010", "4050/4010/P", f"0x{'f' * 17}/0x1/P", "0x1/0x1/P x", "main/0x1/P/-"]
)
def test_what_is_not_understood_is_refused(frames: Frames, branch: str) -> None:
    with pytest.raises(NotReadable, match="not branches of perf script"):
        frames.read(f"json  1/1  2.000000000:     100 cycles: {branch}\n")
    with pytest.raises(NotReadable, match="not a line of perf script: 'nonsense'"):
        frames.read("nonsense\n")


def test_a_perf_that_fails_says_so(frames: Frames) -> None:
    (frames.path.parent / "perf").write_text("#!/bin/sh\necho why >&2\nexit $((${#1} == 6))\n")
    with pytest.raises(ToolFailed, match="why"):
        frames.read("")
    (frames.path.parent / "perf").write_text(
        '#!/bin/sh\n[ "$1" = evlist ] && echo BRANCH_STACK && exit\necho why >&2\nexit 3\n'
    )
    with pytest.raises(ToolFailed, match="why"):
        frames.read("")
    with pytest.raises(ToolFailed, match="not installed"):
        read_branches(frames.path, 1, perf=str(frames.path))


def test_hostile_lines_cost_time_that_is_linear_in_their_length(frames: Frames) -> None:
    """Programs choose names, and how often they fork and map files."""
    forks = "".join(f"x 1/1 1.0: PERF_RECORD_FORK({pid}:{pid}):(1:1)\n" for pid in range(2, 20_000))
    maps = "".join(MAPPED.format(1, 1, 0x10000 * at) for at in range(1, 20_000))
    lines = (
        f"json  1/1  2.000000000:     100 cycles: {' ' * 200_000}x\n",
        f"json  1/1  2.000000000:     100 cycles: {'0x1/' * 50_000}\n",
        maps + forks + sample(1, (0x10050, 0x10010)),
    )
    began = time.process_time()
    for line in lines[:2]:
        with pytest.raises(NotReadable):
            frames.read(line)
    assert frames.pairs(lines[2]) == {(0x10010, 0x10050): (0, 1)}
    assert time.process_time() - began < 5


@st.composite
def _traces(draw: st.DrawFn) -> list[tuple[int, list[tuple[int, int]]]]:
    """Some stacks of branches, each of one of two processes, in and around the memory of the file."""
    address = st.integers(0x3FF0, 0x4020) | st.integers(0x5FF0, 0x6010)
    stack = st.lists(st.tuples(address, address), max_size=32)
    return draw(st.lists(st.tuples(st.sampled_from((1, 2)), stack), min_size=1, max_size=8))


@given(traces=_traces())
def test_ranges_and_branches_are_those_of_a_plain_count(
    traces: list[tuple[int, list[tuple[int, int]]]],
) -> None:
    ranges: Counter[tuple[int, int]] = Counter()
    branches: Counter[tuple[int, int]] = Counter()
    printed, moved = MAPPED.format(1, 1, 0x4000) + MAPPED.format(2, 2, 0x14000), {1: 0, 2: 0x10000}
    inside = range(0x4000, 0x6000)
    for pid, stack in traces:
        printed += sample(pid, *((source + moved[pid], target + moved[pid]) for source, target in stack))
        branches.update((target, source) for source, target in stack if {source, target} <= {*inside})
        for (end, _), (_, begin) in pairwise(stack):
            if begin in inside and end in inside and begin <= end:
                ranges[end, begin] += 1
    expected = {pair: (ranges[pair], branches[pair]) for pair in ranges | branches}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pgo_agent.native.branches.has_branches", lambda *_: True)
        patch.setattr("pgo_agent.native.branches.tool_lines", lambda *_: iter(printed.split("\n")))
        try:
            recording = read_branches(Path("perf.data"), 10**18)
        except NotReadable:
            assert not expected
            return
    read = {
        tuple(frame.address for frame in stack.frames): counts for stack, counts in recording.stacks.items()
    }
    assert read == expected


@pytest.mark.system("perf", "llvm-cxxfilt", "llvm-symbolizer")
def test_a_recording_becomes_a_profile_without_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = (
        recorded(tmp_path / "perf.data", "--buildid-mmap", "-e", "cpu-clock"),
        tmp_path / "out.pb.gz",
    )
    convert = ["convert", "--branches", str(file), "-o", str(output)]
    assert pgo_agent.cli.main(convert) == 2
    assert "it has no branch records: record with perf record -b" in capsys.readouterr().err
    at = max(_mapped(file))
    of_hardware(file, b"cycles")
    with_branches(file, [[(at + 8, at), (at + 4, at + 2)]])
    assert pgo_agent.cli.main(convert) == 0
    assert "submit with --type branches" in capsys.readouterr().err
    profile = parsed(output.read_bytes())
    texts = profile.string_table
    types = [f"{texts[of.type].decode()}/{texts[of.unit].decode()}" for of in profile.sample_type]
    assert types == ["ranges/count", "branches/count"]
    assert profile.mapping[0].build_id
    assert {len(sample.location_id) for sample in profile.sample} == {2}
    assert not any(sample.label for sample in profile.sample)
    counts = [list(sample.value) for sample in profile.sample]
    assert all(0 in each for each in counts)
    assert sum(each[1] for each in counts) == 2 * sum(each[0] for each in counts) > 0


def _mapped(recording: Path) -> list[int]:
    """Return where perf saw the shell of the recording's programs mapped."""
    lines = run_tool("perf", "script", "--show-mmap-events", "-i", recording)
    found = filter(None, map(mapping_in, lines))
    return [mapping.start for _, mapping in found if mapping.file.startswith("/usr/bin/")]
