"""`pgo-agent convert`: a recording of perf becomes a profile of the same samples."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.agent.forked import run_agent
from tests.agent.serving import parsed
from tests.agent.stand_ins.tools import use_stand_ins

SORTS = """
#include <stdlib.h>
static volatile long sum;
static int compare(const void *one, const void *other) {
    for (int i = 0; i < 100; i++) sum += i;
    return *(const int *)one - *(const int *)other;
}
int main(void) {
    static int numbers[200000];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 200000; i++) numbers[i] = rand();
        qsort(numbers, 200000, sizeof(int), compare);
    }
    return 0;
}
"""


def comments_of(profile: Profile) -> list[str]:
    return [profile.string_table[of].decode() for of in profile.comment]


@pytest.mark.usefixtures("stand_ins")
def test_a_recording_becomes_a_profile_that_ends_when_the_file_does(tmp_path: Path) -> None:
    recording, output = tmp_path / "perf.data", tmp_path / "cpu.pb.gz"
    recording.touch()
    os.utime(recording, (1_800_000_000, 1_800_000_000))
    done = run_agent(["convert", recording, "-o", output])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    profile = parsed(output.read_bytes())
    assert profile.time_nanos + profile.duration_nanos == 1_800_000_000 * 10**9
    assert profile.duration_nanos == 2_001_000_000 + 200_040
    counted = [sum(values) for values in zip(*(sample.value for sample in profile.sample), strict=True)]
    assert counted == [4, 3 * 200_040 + 200_041]


def test_what_perf_does_not_understand_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "perf").write_text("#!/bin/sh\necho incompatible file format >&2\nexit 255\n")
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = run_agent(["convert", tmp_path / "perf", "-o", tmp_path / "out"])
    assert (done.returncode, done.stderr) == (2, "pgo-agent: perf: incompatible file format\n")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def perf_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the file whose text perf prints of a recording."""
    use_stand_ins(monkeypatch)
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "perf").write_text(f"#!/bin/sh\ncat {folder}/printed\n")
    (folder / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "printed"


def test_one_of_several_events_becomes_a_profile(perf_prints: Path, tmp_path: Path) -> None:
    recording, output = tmp_path / "perf.data", tmp_path / "out"
    recording.touch()
    printed = "x  1/1  2.000000000:  {} {}: \n\t 10 main (/a)\n\n"
    perf_prints.write_text(printed.format(7, "page-faults:u") + printed.format(5000, "cpu-clock"))
    done = run_agent(["convert", recording, "-o", output])
    found = "page-faults:u (1), cpu-clock (1)"
    reason = f"it has samples of several events, choose one with --event: {found}"
    assert (done.returncode, done.stderr) == (2, f"pgo-agent: {recording}: {reason}\n")
    assert not output.exists()
    done = run_agent(["convert", recording, "-o", output, "--event", "page-faults"])
    assert (done.returncode, done.stdout) == (0, "")
    # A compiler would take it for CPU time, so the collector doesn't take it as `cpu`.
    advice = "submit with --type other --label profile_name=page-faults"
    assert done.stderr == f"samples of page-faults aren't CPU time: {advice}\n"
    assert [list(sample.value) for sample in parsed(output.read_bytes()).sample] == [[7]]
    done = run_agent(["convert", recording, "-o", output, "--event", "cpu-clock"])
    assert (done.returncode, done.stderr) == (0, "")
    assert [list(sample.value) for sample in parsed(output.read_bytes()).sample] == [[1, 5000]]


def test_a_recording_without_samples_is_refused(perf_prints: Path, tmp_path: Path) -> None:
    perf_prints.touch()
    (tmp_path / "perf.data").touch()
    done = run_agent(["convert", tmp_path / "perf.data", "-o", tmp_path / "out"])
    assert (done.returncode, done.stderr) == (
        2,
        f"pgo-agent: {tmp_path / 'perf.data'}: it has no samples\n",
    )


@pytest.mark.system("perf", "gcc")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("-g",),
            r"stacks: by frame pointers; \d+ of \d+ \(\S+ %\) cut short: record with --call-graph dwarf",
        ),
        (("--call-graph", "dwarf"), ""),
    ],
)
def test_a_profile_says_how_its_stacks_were_found(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """The program has no frame pointers, and spends its time below a library's function that has none."""
    source, binary = tmp_path / "sorts.c", tmp_path / "sorts"
    source.write_text(SORTS)
    subprocess.run(["gcc", "-O2", "-fomit-frame-pointer", "-s", "-o", binary, source], check=True)
    recording, output = tmp_path / "perf.data", tmp_path / "cpu.pb.gz"
    record = ["perf", "record", "-q", "-e", "cpu-clock:u", "--buildid-mmap", "--no-bpf-event", *options]
    subprocess.run([*record, "-o", recording, binary], check=True)
    done = run_agent(["convert", recording, "-o", output])
    assert done.returncode == 0
    assert re.match(said, done.stderr) if said else done.stderr == ""
    (comment,) = comments_of(parsed(output.read_bytes()))
    found = re.fullmatch(r"stacks: (by [a-z ]+); (\d+) of (\d+) \(\S+ %\) cut short", comment)
    assert found
    assert (found[1] == "by call frame information") == ("dwarf" in options)
    if "dwarf" in options:
        assert int(found[2]) <= 0.02 * int(found[3])
