"""Stacks of Python programs by bcc have functions of Python and C, in shares that the programs count, too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pgo_agent.backends import Bcc, KeptBcc, SamplingRequest
from pgo_agent.native import PythonFrame, Recording, Stack, function_names

from tests.agent import python_program
from tests.agent.busy import needs_gcc
from tests.agent.sampling import wait_until_begun, working
from tests.agent.test_stack_truth import interpreters

PROGRAM = Path(python_program.__file__)
LIKE = PROGRAM.with_name("like_python.c")
FORKS = """
import os, time
open("/proc/self/comm", "w").write(f"forks-{os.getpid()}")

def child():
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    os._exit(0)

def main():
    for _ in range(30):
        pid = os.fork()
        if not pid:
            child()
        os.waitpid(pid, 0)

print("ready", flush=True)
input()
main()
print("over", flush=True)
input()
"""
FREQUENCY = 499
VERSIONS = [pytest.param(python, marks=pytest.mark.alike(1)) for python in interpreters()]
WITH_PERF = [one for one in VERSIONS if int(str(one.values[0]).rpartition(".")[2]) >= 12]

pytestmark = pytest.mark.system("root")


@pytest.fixture(scope="module")
def kept() -> Iterator[KeptBcc]:
    working(Bcc())
    with KeptBcc() as kept:
        yield kept


@contextmanager
def started(*command: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program that writes a line before it computes."""
    with subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """Let the program compute, and return the line that it writes then."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def sampled(kept: KeptBcc, process: subprocess.Popen[str]) -> tuple[Recording, str]:
    """Return what is recorded of the program until it writes a line, and the line."""
    name = Path(f"/proc/{process.pid}/comm").read_text().rstrip("\n")
    over, lines = threading.Event(), list[str]()

    def compute() -> None:
        wait_until_begun(os.getpid())
        lines.append(line_of(process))
        over.set()

    threading.Thread(target=compute, daemon=True).start()
    return kept.keeping(Bcc()).record(SamplingRequest((name,), FREQUENCY), 600.0, over), lines[0]


def names_in(recording: Recording, pid: int) -> Iterator[tuple[Stack, list[str], int]]:
    """Yield each stack of a process, the names of its functions, leaf first, and its samples."""
    of_process = [stack for stack in recording.stacks if stack.pid == pid]
    names = function_names(of_process)
    for stack in of_process:
        named = [name for frame in stack.frames for name in names.get(frame, ("?",))]
        yield stack, named, recording.stacks[stack][0]


def of_python(names: list[str]) -> str:
    """Return the Python functions of a stack, as the program names them."""
    return " ".join(name.split(":")[2] for name in names if name.startswith("py::"))


def assert_true(recording: Recording, pid: int, told: str) -> None:
    """Assert that stacks are the program's, and their shares within 5 points and what chance allows."""
    used = json.loads(told)
    (deep,) = (stack for stack in used if stack.count("deep") > 1)
    found, native = Counter[str](), Counter[str]()
    for _, names, samples in names_in(recording, pid):
        stack = of_python(names)
        if stack.count("deep") > 100:  # as many as are told
            stack = deep
        found[stack if stack in used else "others"] += samples
        native.update(dict.fromkeys({*names}, samples))
    total, seconds = found.total(), sum(used.values())
    assert total > 200
    assert found["others"] < 0.1 * total, found
    for stack, its in used.items():
        true = its / seconds
        assert abs(found[stack] / total - true) < 0.05 + 3 * (true / total) ** 0.5, (stack, found, used)
    # As a thread enters or leaves the interpreter's function, the interpreter doesn't know of that; and on a
    # busy machine, there may be no room for the copy of a stack.
    assert native["_PyEval_EvalFrameDefault"] <= 0.05 * total, native


@pytest.mark.parametrize("python", VERSIONS)
def test_functions_of_python_stand_in_the_place_of_the_interpreter(kept: KeptBcc, python: str) -> None:
    with started(python, PROGRAM, "2") as process:
        recording, told = sampled(kept, process)
    assert_true(recording, process.pid, told)
    said = re.fullmatch(r"Python frames: in (\d+) of (\d+) samples of CPython (.+)", recording.python)
    assert said
    assert int(said[1]) > 0.9 * int(said[2])
    assert said[3] == Path(python).name.removeprefix("python")


@pytest.mark.parametrize("python", WITH_PERF)
def test_with_trampolines_each_function_stands_once(kept: KeptBcc, python: str) -> None:
    with started(python, "-X", "perf", PROGRAM, "2") as process:
        recording, told = sampled(kept, process)
        assert_true(recording, process.pid, told)
        Path(f"/tmp/perf-{process.pid}.map").unlink()  # noqa: S108 - where Python writes it


@needs_gcc
def test_what_only_looks_like_python_stays_as_it_is(kept: KeptBcc, tmp_path: Path) -> None:
    binary = tmp_path / "like"
    subprocess.run(["gcc", "-O1", "-rdynamic", "-pthread", LIKE, "-o", binary], check=True)
    with started(binary) as process:
        recording, told = sampled(kept, process)
        stacks = [*names_in(recording, process.pid)]
    assert told == "over\n"
    assert sum(samples for *_, samples in stacks) > 100
    assert not any(of_python(names) for _, names, _ in stacks)
    assert all("main" in names for _, names, _ in stacks if "compute" in names)
    assert recording.python.startswith("Python frames: in 0 of ")


def test_children_that_end_at_once_have_their_own_functions_or_none(kept: KeptBcc) -> None:
    with started(sys.executable, "-c", FORKS) as process:
        recording, _ = sampled(kept, process)
    children = {stack.pid for stack in recording.stacks} - {process.pid}
    known = {"child", "main", "<module>"}
    functions = {
        frame.symbol.split(":")[2]
        for stack in recording.stacks
        for frame in stack.frames
        if isinstance(frame, PythonFrame)
    }
    assert len(children) > 10
    assert "main" in functions
    assert functions <= known
    assert recording.stacks
