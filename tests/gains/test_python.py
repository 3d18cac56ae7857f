"""The measurement of CPython: its page's commands are whole, and what is profiled answers and ends."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gains import python
from tests.gains.page import INSTRUMENTED, NONE, WITH_PROGRAM
from tests.interop.listening import free_port, wait_until_answers
from tests.interop.tutorial import checked_commands

_FLEET = str(Path(__file__).with_name("work") / "python")


def test_each_step_of_the_page_is_a_script_and_all_builds_are_in_it(tmp_path: Path) -> None:
    blocks = checked_commands(python.PAGE, tmp_path / "script")
    built = re.findall(r"^built (\S+)", "".join(blocks), re.MULTILINE)
    assert {*built} - {"counting"} == {*python.BUILDS.values()}
    assert "source python3.11 " in blocks[1]
    assert blocks[-1] == f'make gains ARGS="{python.NAME}"\n'


def test_a_step_that_changed_and_those_behind_it_are_done_again() -> None:
    before, after = (python.marks(["first", *steps]) for steps in (("a", "b", "c"), ("a", "B", "c")))
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, True, False, False]
    assert len({*before, *after}) == 6


def test_a_row_says_what_is_saved_of_a_benchmark() -> None:
    counts = {
        NONE: {"nbody": 100_000_000, "pickle": 200_000_000},
        WITH_PROGRAM: {"nbody": 90_000_000, "pickle": 210_000_000},
        INSTRUMENTED: {"nbody": 80_000_000, "pickle": 200_000_000},
    }
    assert [*python.rows_of(counts)] == [
        ("nbody", "100 M", "10.0 %", "20.0 %", "50 %"),
        ("pickle", "200 M", "-5.0 %", "0.0 %", ""),
    ]


def test_the_job_works_for_as_long_as_it_is_told() -> None:
    command = [sys.executable, f"{_FLEET}/job.py", "0.001"]
    one, other = (subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(2))
    assert re.fullmatch(r"1 nights, the last one [0-9a-f]{64}\n", one.stdout)
    assert other.stdout == one.stdout


@pytest.mark.system("wrk")
@pytest.mark.parametrize("load", ["reads", "mixed"])
def test_the_service_answers_its_load(load: str, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    serve = [sys.executable, "-m", "uvicorn", "--app-dir", _FLEET, "--port", str(port), "shop:app"]
    wrk = [
        "wrk",
        "--threads",
        "1",
        "--connections",
        "8",
        "--duration",
        "1s",
        "--script",
        f"{_FLEET}/load.lua",
    ]
    with log.open("wb") as written, subprocess.Popen(serve, stdout=written, stderr=written) as process:
        try:
            wait_until_answers(port, process, log)
            asked = [*wrk, f"http://127.0.0.1:{port}", "--", load]
            said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        finally:
            process.terminate()
    assert "Non-2xx" not in said
    answered = {*re.findall(r'"(\w+ /\w+)\S* HTTP/1.1" (2\d\d)', log.read_text())}
    assert ("GET /customers", "200") in answered
    assert (("POST /orders", "201") in answered) is (load == "mixed")
