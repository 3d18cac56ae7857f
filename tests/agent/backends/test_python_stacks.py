"""Stacks of Python programs by bcc: functions of Python, of C and of the kernel, held against the program's own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pgo_agent.backends import Bcc, KeptBcc, SamplingRequest
from pgo_agent.native import PythonFrame, Recording, Stack, function_names

from tests.agent import python_program
from tests.agent.sampling import wait_until_begun, working
from tests.agent.test_stack_truth import interpreters

PROGRAM = Path(python_program.__file__)
FREQUENCY = 499
PERF = [python for python in interpreters() if int(python.rpartition(".")[2]) >= 12]

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
        wait_until_begun(sys_pid())
        lines.append(line_of(process))
        over.set()

    threading.Thread(target=compute, daemon=True).start()
    return kept.keeping(Bcc()).record(SamplingRequest((name,), FREQUENCY), 600.0, over), lines[0]


def sys_pid() -> int:
    return int(Path("/proc/self").readlink().name)


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
    """Assert that stacks are those of the program, and their shares within 5 points and what chance allows."""
    used = {stack: seconds for stack, seconds in json.loads(told).items()}
    found, native = Counter[str](), Counter[str]()
    for _, names, samples in names_in(recording, pid):
        python = of_python(names)
        is_deep = python.count("deep") > python_program.DEPTH // 2
        found[next((of for of in used if (of == python or (is_deep and of.count("deep") > 100))), "others")] += samples
        native.update(dict.fromkeys({*names}, samples))
    total, seconds = found.total(), sum(used.values())
    assert total > 200
    assert found["others"] < 0.06 * total, found
    for stack, its in used.items():
        true = its / seconds
        assert abs(found[stack] / total - true) < 0.05 + 3 * (true / total) ** 0.5, (stack, found, used)
    # As a thread enters or leaves the interpreter's function, the interpreter doesn't know of that.
    assert native["_PyEval_EvalFrameDefault"] <= 0.02 * total, native


@pytest.mark.parametrize("python", interpreters())
def test_functions_of_python_stand_in_the_place_of_the_interpreter(kept: KeptBcc, python: str) -> None:
    with started(python, PROGRAM, "3") as process:
        recording, told = sampled(kept, process)
    assert_true(recording, process.pid, told)
    said = re.fullmatch(r"Python frames: in (\d+) of (\d+) samples of CPython (.+)", recording.python)
    assert said
    assert int(said[1]) > 0.97 * int(said[2])
    assert said[3] == Path(python).name.removeprefix("python")


@pytest.mark.parametrize("python", PERF)
def test_with_trampolines_each_function_stands_once(kept: KeptBcc, python: str) -> None:
    with started(python, "-X", "perf", PROGRAM, "2") as process:
        recording, told = sampled(kept, process)
        assert_true(recording, process.pid, told)
        Path(f"/tmp/perf-{process.pid}.map").unlink()  # noqa: S108 - where Python writes it
