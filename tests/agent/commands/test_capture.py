"""Test `pgo-agent capture` as a command."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_agent.backends import backends, choose
from pgo_agent.errors import AgentError

from tests.agent.busy import NAME, build, needs_gcc, running
from tests.agent.forked import run_agent
from tests.agent.serving import AGENT, parsed
from tests.cpu_meter import children_of
from tests.terminal import on_terminal


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Return the command for a busy program, with a profiler that works here."""
    try:
        works = choose([backends()[name] for name in ("perf", "bpftrace", "bcc")])
    except AgentError as error:
        pytest.skip(str(error))
    with running(build(tmp_path_factory.mktemp("busy"))):
        yield [str(AGENT), "capture", "--profiler", works.name, "--executable", NAME]


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("profiler", "name", "functions", "without_stack"),
    [
        ("perf", "json", {"sell()", "main"}, 1),
        ("bpftrace", "shop", {"sell()", "main"}, 3),
    ],
)
def test_what_the_profiler_saw_is_in_the_file(
    tmp_path: Path,
    profiler: str,
    name: str,
    functions: set[str],
    without_stack: int,
) -> None:
    file = str(tmp_path / "cpu.pb.gz")
    capture = ["capture", "--profiler", profiler, "-o", file, "--duration", "0.3", "--json"]
    done = run_agent([*capture, "--executable", name])
    warned = f"stacks lost: count={without_stack} " if without_stack else ""
    assert (done.returncode, done.stderr[: len(warned) or None]) == (0, warned)
    profile, said = parsed(Path(file).read_bytes()), json.loads(done.stdout)
    assert (said["file"], said["profiler"]) == (file, profiler)
    assert said["samples"] == sum(sample.value[0] for sample in profile.sample) > 1
    assert said["lost_stacks"] == without_stack
    assert said["cpu_seconds"] == pytest.approx(sum(sample.value[1] for sample in profile.sample) / 1e9)
    assert sum(sample.value[0] for sample in profile.sample if not sample.location_id) == without_stack
    texts = [text.decode() for text in profile.string_table]
    assert texts[profile.comment[0]].startswith(f"stacks: {said['stacks']}")
    assert functions <= {texts[function.name] for function in profile.function}
    labels = {texts[of.key]: texts[of.str] for sample in profile.sample for of in sample.label if of.str}
    assert labels["comm"] == name


@pytest.mark.usefixtures("stand_ins")
def test_no_sample_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / "cpu.pb.gz"
    capture = ["capture", "--profiler", "perf", "-o", str(file), "--duration", "0.1"]
    done = run_agent([*capture, "--executable", "no-such-program"])
    assert (done.returncode, file.exists()) == (2, False)
    assert "no process named no-such-program runs" in done.stderr


@needs_gcc
def test_json_says_what_is_in_the_file(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "cpu.pb.gz"
    done = subprocess.run(
        [*command, "-o", file, "--duration", "1", "--frequency", "199", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    profile, said = parsed(file.read_bytes()), json.loads(done.stdout)
    assert (said["file"], said["profiler"]) == (str(file), command[3])
    assert said["samples"] == sum(sample.value[0] for sample in profile.sample)
    assert said["cpu_seconds"] == pytest.approx(sum(sample.value[1] for sample in profile.sample) / 1e9)
    assert said["duration_seconds"] == pytest.approx(profile.duration_nanos / 1e9)
    assert profile.period == 10**9 // 199


@needs_gcc
def test_a_person_sees_how_far_it_is(command: list[str], tmp_path: Path) -> None:
    status, shown = on_terminal(*command, "-o", tmp_path / "cpu.pb.gz", "--duration", "1")
    assert status == 0
    assert f"{command[3]}: ".encode() in shown


@needs_gcc
def test_ctrl_c_ends_it_and_its_profiler(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "cpu.pb.gz"
    with subprocess.Popen([*command, "-o", file, "--duration", "600"]) as process:
        while not (children := children_of(process.pid)):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not file.exists()


@needs_gcc
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--executable", "no-such-program"], "no process named no-such-program runs"),
        (["--executable", "longer-than-15-bytes"], "not the name of a process"),
        (["--frequency", "0"], "must be 1 to 1000"),
        (["--duration", "0"], "not a number of seconds above 0"),
        (["--duration", "inf"], "not a number of seconds above 0"),
        (["--duration", "nan"], "not a number of seconds above 0"),
        (["--profiler", "gprof"], "invalid choice"),
    ],
    ids=" ".join,
)
def test_why_there_is_no_profile_is_told(
    command: list[str], tmp_path: Path, arguments: list[str], reason: str
) -> None:
    profiler = command[:4]
    done = subprocess.run(
        [*profiler, "-o", tmp_path / "cpu.pb.gz", "--duration", "1", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "cpu.pb.gz").exists()
