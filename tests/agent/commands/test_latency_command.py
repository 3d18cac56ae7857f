"""`pgo-agent latency`, and the profiles that `pgo-agent serve --latency` submits, as their users see them."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from pgo_agent.latency import TrackerSettings, unmatched

from tests.agent.backends.test_backends import AS_NOBODY, needs_root
from tests.agent.busy import needs_gcc
from tests.agent.forked import run_agent
from tests.agent.latency.waiting import MS, NAME, build, needs_tracker, samples_of, wait_until, waiting
from tests.agent.scripted_server import KEY, ScriptedServer
from tests.agent.serving import AGENT, Serving
from tests.terminal import on_terminal


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs_tracker("offcpu")
    return build(tmp_path_factory.mktemp("waits"))


@needs_gcc
def test_it_prints_and_writes_what_a_program_waits_for(binary: Path, tmp_path: Path) -> None:
    output = tmp_path / "offcpu.pb.gz"
    with waiting(binary, "sleep") as process:
        pid = str(process.pid)
        command: list[str | Path] = [AGENT, "latency", "offcpu", "--pid", pid, "--seconds", "3", "-o", output]
        with subprocess.Popen(command[:-2], stdout=subprocess.PIPE, text=True) as printing:
            as_json = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout
            text, _ = printing.communicate()
            assert printing.returncode == 0
    assert text.startswith("offcpu of at least 1ms: ")
    assert {"sleep_seven", "main"} <= {*text.split()}
    assert "####" in text
    found = json.loads(as_json)
    assert found["seen"] == found["reported"] + found["below"] + found["dropped"]
    assert found["count"] == found["seen"] - found["missed"] - found["table_full"]
    assert found["max_ns"] >= 7 * MS
    samples = samples_of(output.read_bytes())
    assert sum(sample.events for sample in samples) == found["count"]
    assert sum(sample.delay for sample in samples) == found["total_ns"]


@needs_gcc
def test_a_person_sees_it_grow(binary: Path) -> None:
    with waiting(binary, "sleep") as process:
        pid = str(process.pid)
        status, shown = on_terminal(
            AGENT, "latency", "offcpu", "--pid", pid, "--seconds", "3", output_too=True
        )
    assert status == 0, shown
    assert shown.count(b"\x1b[2J") >= 2
    assert b"sleep_seven" in shown


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["cpu"], "invalid choice: 'cpu'"),
        (["offcpu", "--threshold", "5"], "not a duration such as 5ms"),
        (["offcpu", "--comm", "longer-than-15-bytes"], "comms: each must be a string of 1 to 15 bytes"),
        (["offcpu", "--pid", "0"], "pids: each must be the number of a process"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], reason: str) -> None:
    done = run_agent(["latency", *arguments])
    assert done.returncode == 2
    assert reason in done.stderr


STAND_IN = ("offcpu", "--backend", "bpftrace", "--seconds", "0.5")


@pytest.mark.usefixtures("stand_ins")
def test_counts_histogram_and_longest_waits_are_printed() -> None:
    done = run_agent(["latency", *STAND_IN, "--threshold", "5ms"])
    assert (done.returncode, done.stderr) == (0, "")
    head, _, *bars, statistics, _, longest, sell, main = done.stdout.splitlines()
    counted = re.fullmatch(
        r"offcpu of at least 5ms: (\d+) seen = (\d+) reported \+ (\d+) below the threshold \+ 1 dropped; "
        r"0 stacks lost",
        head,
    )
    assert counted
    seen, reported, below = map(int, counted.groups())
    assert seen == 2 * reported + 1 == 2 * below + 1
    assert bars[0].split() == [
        "512",
        "ns",
        "-",
        "1.02",
        "us",
        str(below),
        "#" * -(-below * 40 // (reported + 1)),
    ]
    assert bars[-1].split() == ["4.19", "ms", "-", "8.39", "ms", str(reported + 1), "#" * 40]
    assert len(bars) == 14
    assert statistics.startswith("min 512 ns, average ")
    assert longest.startswith(f"{7 * reported} ms in {reported}: shop ")
    assert longest.endswith(" operation=blocked")
    assert [sell, main] == ["    sell()", "    main"]


@pytest.mark.usefixtures("stand_ins")
def test_json_and_the_profile_say_the_same(tmp_path: Path) -> None:
    output = tmp_path / "offcpu.pb.gz"
    done = run_agent(["latency", *STAND_IN, "--json", "-o", str(output)])
    assert (done.returncode, done.stderr) == (0, "")
    found, samples = json.loads(done.stdout), samples_of(output.read_bytes())
    assert found["dropped"] == 1
    assert sum(sample.events for sample in samples) == found["count"] == found["seen"]
    assert sum(sample.delay for sample in samples) == found["total_ns"]
    assert {tuple(sample.functions[-2:]) for sample in samples} == {
        ("sell()", "main"),
        ("(dropped)",),
        ("(below the threshold)",),
    }


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("then", "status", "told"),
    [("exec sleep 600", 0, "no events"), ("echo out of memory >&2; exit 1", 2, "pgo-agent: offcpu: ")],
)
def test_nothing_seen_and_a_tracker_that_ends_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, then: str, status: int, told: str
) -> None:
    bpftrace = tmp_path / "bpftrace"
    bpftrace.write_text(f"#!/bin/sh\necho started\n{then}\n")
    bpftrace.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = run_agent(["latency", *STAND_IN])
    assert done.returncode == status
    assert told in (done.stderr if status else done.stdout)


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("option", "name", "told"),
    [
        ("--executable", "no-such-program", "no process runs no-such-program"),
        ("--pid", "4000000", "no process has the number 4000000"),
        ("--comm", "no-such-thread", "no thread is named no-such-thread"),
        ("--cgroup", "/no/such/group", "no control group of version 2 is /no/such/group, in "),
    ],
)
def test_a_filter_that_nothing_matches_is_told_and_without_events_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str, name: str, told: str
) -> None:
    """With events, as of a program that starts later, it is only told."""
    file = tmp_path / "offcpu.pb.gz"
    command = ["latency", *STAND_IN, option, name, "-o", str(file)]
    late = run_agent(command)
    assert (late.returncode, file.exists()) == (0, True)
    assert late.stderr.startswith(f"pgo-agent: {told}")
    file.unlink()
    bpftrace = tmp_path / "bpftrace"
    bpftrace.write_text("#!/bin/sh\necho started\nexec sleep 600\n")
    bpftrace.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = run_agent(command)
    assert (done.returncode, done.stdout, file.exists()) == (2, "", False)
    assert f"pgo-agent: nothing was tracked: {told}" in done.stderr


def test_what_is_there_is_matched() -> None:
    here = Path("/proc/self")
    settings = TrackerSettings(
        comms=((here / "comm").read_text().rstrip("\n"),),
        executables=(str((here / "exe").readlink()), (here / "exe").readlink().name),
        pids=(os.getpid(),),
    )
    assert [*unmatched(settings)] == []


@pytest.mark.usefixtures("stand_ins")
def test_a_person_sees_the_counts_of_each_second() -> None:
    status, shown = on_terminal(AGENT, "latency", *STAND_IN[:-1], "1.1", output_too=True)
    assert status == 0, shown
    _, *views = shown.decode().split("\x1b[2J")
    assert len(views) >= 2
    for view in views:
        assert "seen = " in view
        assert "sell()" in view


@needs_root
@pytest.mark.parametrize(
    ("backend", "missing"),
    [
        ("bcc", "the capabilities CAP_BPF and CAP_PERFMON are missing"),
        ("bpftrace", "it works only as root"),
    ],
)
def test_an_ordinary_user_is_told_what_is_missing(backend: str, missing: str) -> None:
    tracking = ("latency", "offcpu", "--seconds", "1", "--backend", backend)
    command: list[str | Path] = [*AS_NOBODY, AGENT, *tracking]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "offcpu: " in done.stderr
    assert missing in done.stderr


@needs_gcc
def test_profiles_are_submitted_one_after_another(
    binary: Path, tmp_path: Path, server: ScriptedServer
) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    submitting = ("--url", server.url, "--submit-key-file", key, "--service", "shop", "--every", "100000")
    tracking = ("--latency", "offcpu", "--latency-threshold", "5ms", "--latency-every", "2")
    with waiting(binary, "sleep"), Serving(tmp_path, *submitting, *tracking) as agent:
        wait_until(lambda: len(server.seen) >= 2)
        state = agent.client.get("/latency/offcpu").json()
        assert state["running"]
        assert state["settings"]["threshold"] == "5ms"
        agent.process.terminate()
        assert agent.process.wait(120) == 0, agent.log
    for seen in server.seen:
        asked = parse_qs(urlsplit(seen.path).query)
        assert asked["type"] == ["offcpu"]
        assert asked["service"] == ["shop"]
    samples = [sample for seen in server.seen for sample in samples_of(gzip.compress(seen.profile))]
    waits = [one for one in samples if one.labels.get("comm") == NAME[:15]]
    assert any("sleep_seven" in one.functions for one in waits)
    assert ["(below the threshold)"] in [one.functions for one in samples]
