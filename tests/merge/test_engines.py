"""The compiled engine and the interpreted one take, refuse and write the same; a build is never stale."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pprof_merge
import pytest
from pprof_merge import ENGINE, compiled
from pprof_merge.compiled import INTERPRETED

from tests.campaign import engines
from tests.merge.command.installed import PPROF_MERGE

needs_compiled = pytest.mark.skipif(ENGINE != "compiled", reason="needs gcc and Python's headers: make setup")


@needs_compiled
@pytest.mark.system("gcc")
def test_both_engines_say_the_same(tmp_path: Path) -> None:
    findings = engines.run(5, 0, tmp_path)  # one round
    assert findings.faults == []


@pytest.mark.parametrize("environment", [{}, {INTERPRETED: "1"}])
def test_the_command_says_how_the_engine_runs(environment: dict[str, str]) -> None:
    said = subprocess.run(
        [PPROF_MERGE, "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    ).stdout
    assert said.startswith("pprof-merge ")
    assert said.endswith(f"engine {'interpreted' if environment else ENGINE}\n")


@needs_compiled
@pytest.mark.system("gcc")
def test_an_edited_source_is_not_run_by_an_old_build(tmp_path: Path) -> None:
    (package,) = map(Path, pprof_merge.__path__)
    copy = tmp_path / "pprof_merge"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))

    def engine() -> str:
        command = [sys.executable, "-P", "-c", "import pprof_merge; print(pprof_merge.ENGINE)"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        ).stdout.strip()

    assert engine() == "compiled"
    edited = Path(compiled.source("codec.wire")).relative_to(package)
    with (copy / edited).open("a") as file:
        file.write("\n# An edit.\n")
    assert engine() == "interpreted"
