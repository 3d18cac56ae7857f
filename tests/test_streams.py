"""Every command works with closed and full standard streams, and no file is mixed with what it says."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.stacks import profile_of, tally

BIN = Path(sys.executable).parent
CLOSED = [">&-", "2>&-", "<&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/full", ">/dev/full 2>/dev/full"]


def shell(command: str, how: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sh", "-c", f"{command} {how}"], check=False, capture_output=True, timeout=60)


@pytest.mark.parametrize("how", CLOSED)
def test_a_merge_is_written_to_its_file(tmp_path: Path, how: str) -> None:
    profile, merged = tmp_path / "a.pb.gz", tmp_path / "merged"
    profile.write_bytes(profile_of("a"))
    ended = shell(shlex.join(map(str, [BIN / "pprof-merge", "-o", merged, profile])), how)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert tally(merged.read_bytes()) == {"a": 1}


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("pprof-merge {profile}", ">&-"),
        ("pprof-merge {profile}", ">/dev/full"),
        ("pprof-merge {profile}", "<&- >&-"),
        ("pgo-collector check", ">&-"),
        ("pgo-collector check", ">/dev/full"),
        ("pgo-agent doctor", ">&-"),
    ],
)
def test_what_cannot_be_said_is_an_error(tmp_path: Path, command: str, how: str) -> None:
    profile = tmp_path / "a.pb.gz"
    profile.write_bytes(profile_of("a"))
    ended = shell(str(BIN / command.format(profile=profile)), how)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count(b"\n") == 1, ended.stderr
    assert b"Bad file descriptor" in ended.stderr or b"No space left" in ended.stderr


@pytest.mark.parametrize("how", ["2>&-", "<&- >&- 2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    "command",
    ["pprof-merge -o {out} {none}", "pgo-agent convert -o {out} {none}", "pgo-collector restore {none}"],
)
def test_an_error_keeps_its_status(tmp_path: Path, command: str, how: str) -> None:
    out, none = tmp_path / "out", tmp_path / "none"
    ended = shell(str(BIN / command.format(out=out, none=none)), how)
    assert ended.returncode == 2, ended.stderr
    assert b"Traceback" not in ended.stderr
    assert not out.exists() or not [*out.rglob("*.pb.gz")]
