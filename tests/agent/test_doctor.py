"""Test `pgo-agent doctor`: what it says of each part agrees with a try of that part."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.latency import TRACKERS

from tests.agent.busy import NAME, build, needs_gcc, running
from tests.agent.serving import AGENT
from tests.agent.test_backends import AS_NOBODY, needs_root
from tests.terminal import on_terminal

PROFILERS = ("bcc", "perf", "bpftrace")


def doctor(
    *arguments: str, before: Sequence[str] = (), path: str = os.environ["PATH"]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, AGENT, "doctor", *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    said = json.loads(done.stdout)
    assert done.returncode == (0 if said["works"] else 2)
    assert done.stderr == ""
    return {of["part"]: (of["works"], of["detail"]) for of in said["findings"]}


@needs_gcc
def test_what_it_says_works_does(tmp_path: Path) -> None:
    with running(build(tmp_path)):
        found = findings(doctor("--json", "--executable", NAME))
        assert {*PROFILERS, "symbols", "processes", "serve", *TRACKERS} == {*found}
        assert found["processes"] == (True, f"{NAME}: 1")
        for profiler in PROFILERS:
            command = f"capture --profiler {profiler} --executable {NAME} --duration 1 -o {tmp_path / 'cpu'}"
            taken = subprocess.run([AGENT, *command.split()], capture_output=True, text=True, check=False)
            works, detail = found[profiler]
            assert works == (taken.returncode == 0), (detail, taken.stderr)
            assert works or detail.splitlines()[0] in taken.stderr


@needs_root
def test_an_ordinary_user_is_told_which_rights_are_missing() -> None:
    found = findings(doctor("--json", before=AS_NOBODY))
    assert [found[profiler][0] for profiler in PROFILERS] == [False, False, False]
    assert "root" in found["bcc"][1]
    assert "root" in found["bpftrace"][1]
    assert "kernel.perf_event_paranoid is" in found["perf"][1]
    assert found["symbols"][0]
    for tracker in TRACKERS:
        works, detail = found[tracker]
        assert not works
        assert "it works only as root" in detail


def test_a_person_reads_it_line_by_line() -> None:
    done = doctor("--executable", "no-such-program")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:1]] == ["bcc"]
    assert [line for line in lines if line.startswith("processes FAILS")]
    assert (
        lines[-1] == f"user {os.geteuid()} {'can' if done.returncode == 0 else 'CANNOT'} take profiles here"
    )
    status, shown = on_terminal(AGENT, "doctor")
    assert status == done.returncode
    assert b"check" in shown


def test_what_is_not_installed_is_named_with_its_package(tmp_path: Path) -> None:
    """PATH has only the program that starts the profilers."""
    (tmp_path / "setpriv").symlink_to("/usr/bin/setpriv")
    found = findings(doctor("--json", path=str(tmp_path)))
    assert "apt-get install linux-perf" in found["perf"][1]
    assert "apt-get install bpftrace" in found["bpftrace"][1]
    assert found["symbols"] == (
        False,
        "llvm-symbolizer: it is not installed (Debian's package: llvm)",
    )


@pytest.mark.parametrize("name", ["", "longer-than-15-bytes"])
def test_a_name_that_no_process_has_is_refused(name: str) -> None:
    done = doctor("--executable", name)
    assert done.returncode == 2
    assert "not the name of a process" in done.stderr
