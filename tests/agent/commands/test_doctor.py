"""Test `pgo-agent doctor`: what it says of each part agrees with a try of that part."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pgo_agent.backends import ONLY_FRAME_POINTERS
from pgo_agent.latency import TRACKERS

from tests.agent.backends.test_backends import AS_NOBODY, needs_root
from tests.agent.busy import NAME, build, needs_gcc, running
from tests.agent.forked import run_agent
from tests.agent.serving import AGENT
from tests.terminal import on_terminal

BRIEFLY = {"pgo_agent.backends.process_sampler._PROBE_SECONDS": 0.2}
PROFILERS = ("bcc", "perf", "bpftrace")
# All need the same rights, as another test sees of each.
SOME_TRACKERS = ("offcpu", "syscall", "block")


def doctor(
    *arguments: str, before: Sequence[str] = (), path: str = os.environ["PATH"]
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    if not before:
        return run_agent(["doctor", *arguments], environment)
    command: list[str | Path] = [*before, AGENT, "doctor", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    said = json.loads(done.stdout)
    assert done.returncode == (0 if said["works"] else 2)
    assert done.stderr == ""
    return {of["part"]: (of["works"], of["detail"]) for of in said["findings"]}


@needs_gcc
def test_what_it_says_works_does(tmp_path: Path) -> None:
    """A person reads it line by line. Takes over 20 s on a busy machine: all parts are tried."""
    with running(build(tmp_path)):
        status, shown = on_terminal(AGENT, "doctor", "--executable", NAME, output_too=True)
        progress, first, rest = shown.decode().partition("bcc ")
        assert "check" in progress
        *lines, last = (first + rest).splitlines()
        found = {
            part: (works == "works", detail) for part, works, detail in (one.split(None, 2) for one in lines)
        }
        assert {*PROFILERS, "symbols", "processes", "serve", *TRACKERS} == {*found}
        assert last == f"user {os.geteuid()} {'can' if status == 0 else 'CANNOT'} take profiles here"
        assert found["processes"] == (True, f"{NAME}: 1")
        with ThreadPoolExecutor() as pool:
            for profiler, taken in zip(PROFILERS, pool.map(capture, PROFILERS, [tmp_path] * 3), strict=True):
                works, detail = found[profiler]
                assert works == (taken.returncode == 0), (detail, taken.stderr)
                assert works or detail in taken.stderr


def capture(profiler: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = f"capture --profiler {profiler} --executable {NAME} --duration 1 -o {folder / profiler}"
    return subprocess.run([AGENT, *command.split()], capture_output=True, text=True, check=False)


@needs_root
def test_an_ordinary_user_is_told_which_rights_are_missing() -> None:
    found = findings(doctor("--json", before=AS_NOBODY))
    assert [found[profiler][0] for profiler in PROFILERS] == [False, False, False]
    assert "capabilities CAP_BPF and CAP_PERFMON are missing: run it as root" in found["bcc"][1]
    assert "root" in found["bpftrace"][1]
    assert "or set kernel.perf_event_paranoid, which is" in found["perf"][1]
    assert found["symbols"][0]
    for tracker in TRACKERS:
        works, detail = found[tracker]
        assert not works
        assert "capabilities CAP_BPF and CAP_PERFMON are missing" in detail


@needs_root
@pytest.mark.parametrize(
    ("before", "said"),
    [
        (("setpriv", "--bounding-set=-all", "--"), "CAP_"),
        (("setpriv", "--bounding-set=-sys_admin,-bpf,-perfmon,-sys_ptrace", "--"), "CAP_"),
        (("unshare", "--user", "--map-root-user", "--"), "it runs in a user namespace"),
    ],
    ids=["none", "as-docker", "user-namespace"],
)
def test_root_without_its_rights_is_told_which_are_missing(before: Sequence[str], said: str) -> None:
    """Run doctor as a root that lacks rights, as in containers that aren't privileged."""
    found = findings(doctor(*PROFILERS, *SOME_TRACKERS, "--json", before=before))
    for works, detail in found.values():
        assert not works
        assert said in detail
        assert "Traceback" not in detail


@needs_root
def test_a_right_that_only_some_programs_need_is_told() -> None:
    before = ("setpriv", "--bounding-set=-sys_ptrace", "--")
    ((works, detail),) = findings(doctor("perf", "--json", before=before)).values()
    assert works == ("gives samples" in detail)
    assert not works or "other users' programs without their functions" in detail


@pytest.mark.system("llvm-symbolizer")
def test_some_parts_are_checked_alone() -> None:
    found = findings(doctor("serve", "symbols", "--json"))
    assert {part: works for part, (works, _) in found.items()} == {"symbols": True, "serve": True}
    done = doctor("processes", "serve", "--executable", "no-such-program")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["processes", "FAILS"],
        ["serve", "works"],
    ]
    assert done.returncode == 2
    refused = doctor("serve", "no-such-part")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'no-such-part' is none of bcc, " in refused.stderr


@pytest.mark.usefixtures("stand_ins")
def test_what_works_is_told_with_its_version_or_count() -> None:
    name = Path("/proc/self/comm").read_text().rstrip("\n")
    parts = ["perf", "bpftrace", "symbols", "processes", "serve"]
    done = run_agent(["doctor", *parts, "--json", "--executable", name], constants=BRIEFLY)
    found = findings(done)
    assert [*found] == parts
    count = int(found.pop("processes")[1].removeprefix(f"{name}: "))
    assert count >= 1
    assert found == {
        "perf": (True, "gives samples, with stacks by call frame information"),
        "bpftrace": (True, f"gives samples, with stacks {ONLY_FRAME_POINTERS}"),
        "symbols": (True, "llvm-symbolizer and llvm-cxxfilt, LLVM version 14.0.6"),
        "serve": (True, "pgo-agent serve is installed"),
    }
    printed = run_agent(["doctor", *parts[2:], "--executable", "no-such-program"]).stdout.splitlines()
    assert [line.split(None, 2)[:2] for line in printed] == [
        ["symbols", "works"],
        ["processes", "FAILS"],
        ["serve", "works"],
    ]


def test_what_is_not_installed_is_named_with_its_package(tmp_path: Path) -> None:
    """PATH has only the program that starts the profilers."""
    (tmp_path / "setpriv").symlink_to("/usr/bin/setpriv")
    found = findings(doctor("perf", "bpftrace", "symbols", "--json", path=str(tmp_path)))
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
