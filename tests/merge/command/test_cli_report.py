"""`pprof-merge --report`: what it writes where, and what it refuses."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pprof_merge import decode, encode

from tests.merge.command.installed import pprof_merge

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_beside_the_merge(
    files: list[Path], profiles: Path, expected: bytes, tmp_path: Path, jobs: str
) -> None:
    foreign = profiles / "lintd-s2-006.pb.gz"
    symbols, out = tmp_path / "symbols", tmp_path / "report.json"
    symbols.write_text("main.main\n")
    before = int(time.time())
    options = ("--report", out, "--symbols", symbols, "--against", files[0], "-j", jobs)
    finished = pprof_merge(*options, *files, foreign)
    assert (finished.returncode, finished.stderr) == (0, b"")
    report = json.loads(out.read_bytes())
    assert report["profiles"] == len(files) + 1
    assert report["outliers"]["profiles"][0]["profile"] == str(foreign)
    assert report["coverage"]["symbols"] == 1
    assert 0 < report["against"]["overlap"] < 1
    newest = max(decode(file.read_bytes()).header.time_nanos for file in (*files, foreign)) // 10**9
    assert 0 <= report["times"]["newest"]["age_seconds"] - (before - newest) < 60
    assert pprof_merge("--report", out, *files).stdout == expected
    assert json.loads(out.read_bytes())["against"] is None


def test_to_standard_output(files: list[Path], expected: bytes, tmp_path: Path) -> None:
    finished = pprof_merge("-o", tmp_path / "out", "--report", "-", *files)
    assert json.loads(finished.stdout)["profiles"] == len(files)
    assert (tmp_path / "out").read_bytes() == expected


def test_what_rules_drop_is_in_the_report(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("drop /.*/\n")
    options = ("-o", tmp_path / "out", "--report", "-", "--rules", tmp_path / "rules")
    report = json.loads(pprof_merge(*options, *files).stdout)
    assert report["stacks"] > len(decode((tmp_path / "out").read_bytes()).samples)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--symbols", "x"], "need --report"),
        (["--against", "x"], "need --report"),
        (["--report", "-"], "can't both go to standard output"),
        (["--report", "-", "-o", "-"], "can't both go to standard output"),
    ],
)
def test_options_that_do_not_go_together(files: list[Path], options: list[str], words: str) -> None:
    finished = pprof_merge(*options, *files)
    assert (finished.returncode, finished.stdout) == (2, b"")
    assert words in finished.stderr.decode()


@pytest.mark.parametrize(
    ("option", "content", "words"),
    [
        ("--symbols", b"  600840 D data\n", "no function among the symbols"),
        ("--symbols", None, "No such file"),
        ("--against", b"x\n", "this is text"),
        ("--against", None, "No such file"),
    ],
)
def test_a_bad_file_is_named_and_nothing_is_written(
    files: list[Path], tmp_path: Path, option: str, content: bytes | None, words: str
) -> None:
    bad = tmp_path / "bad"
    if content is not None:
        bad.write_bytes(content)
    finished = pprof_merge("--report", tmp_path / "report", option, bad, *files)
    assert (finished.returncode, finished.stdout) == (2, b"")
    assert finished.stderr.decode().startswith(f"pprof-merge: {bad}: ")
    assert words in finished.stderr.decode()
    assert not (tmp_path / "report").exists()


def test_a_profile_that_the_compiler_would_refuse_is_nothing_to_compare_with(
    files: list[Path], tmp_path: Path
) -> None:
    profile = decode(files[0].read_bytes())
    functions = replace(profile.functions, start_line=np.zeros_like(profile.functions.start_line))
    (tmp_path / "old").write_bytes(encode(profile.replace(functions=functions)))
    finished = pprof_merge("--report", tmp_path / "report", "--against", tmp_path / "old", *files)
    assert finished.returncode == 2
    assert f"--against {tmp_path / 'old'}: no function has a start line" in finished.stderr.decode()
