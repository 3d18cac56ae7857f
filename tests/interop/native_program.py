"""The C program of the tutorial: built with clang, run under perf, and turned into pprof."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pgo_agent.cli
import pytest

SOURCE: Final = Path(__file__).parents[2] / "docs" / "tutorial-c" / "json.c"
# As the tutorial has them. Frame pointers give perf the callers.
FLAGS: Final = ("-O2", "-g", "-fdebug-info-for-profiling", "-fno-omit-frame-pointer")
_NEEDED = ("clang", "llvm-profdata", "llvm-symbolizer", "perf")
needs_clang_and_perf = pytest.mark.system(*_NEEDED)


def run(*command: str | Path) -> str:
    """Output and messages; fails if the program does."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}"
    return done.stdout


def clang(*arguments: str | Path) -> str:
    """Builds the program, with what the tutorial's flags leave open; what clang says."""
    return run("clang", *FLAGS, *arguments, SOURCE)


def recorded(binary: Path, rounds: int) -> Path:
    """Return the recording by perf of one run of the binary, beside it."""
    recording = binary.with_name("perf.data")
    perf = ("perf", "record", "-q", "-e", "cpu-clock", "-F", "4999", "-g", "--buildid-mmap")
    run(*perf, "-o", recording, binary, str(rounds))
    return recording


def converted(recording: Path) -> bytes:
    """The profile that the agent makes of it."""
    profile = recording.with_name("cpu.pb.gz")
    assert pgo_agent.cli.main(["convert", str(recording), "-o", str(profile)]) == 0
    return profile.read_bytes()
