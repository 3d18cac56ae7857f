"""`pgo-agent convert`: a recording of perf becomes a profile of the same samples."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.agent.forked import run_agent
from tests.agent.serving import parsed


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
    assert counted == [8, 2 * (3 * 200_040 + 200_041)]


def test_what_perf_does_not_understand_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "perf").write_text("#!/bin/sh\necho incompatible file format >&2\nexit 255\n")
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = run_agent(["convert", tmp_path / "perf", "-o", tmp_path / "out"])
    assert (done.returncode, done.stderr) == (2, "pgo-agent: perf: incompatible file format\n")
    assert not (tmp_path / "out").exists()
