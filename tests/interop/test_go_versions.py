"""`format=go`: each Go builds the same program with it as with the whole merge, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from pprof_merge import Profile, compress, decode, encode, merge
from pprof_merge.formats.go import go as go_format

from tests.interop.go_toolchain import go
from tests.oracle.oracle import GO

ROOT = Path(__file__).parents[2]
OLDER = ["1.24", "1.22", "1.21"]
# Among callees of one weight, Go 1.21 takes the first of a map, another one each time, and so builds two
# programs from one profile. Without this use of it, it is as exact as the others.
UNSTABLE = {"1.21": ["-gcflags=all=-d=pgodevirtualize=0"]}


@pytest.fixture(scope="module")
def merged() -> Profile:
    """The merge of all real profiles here."""
    files = sorted((ROOT / "tests/testdata/profiles").glob("*.pb.gz"))
    return merge(decode(file.read_bytes()) for file in files)


def compiler(version: str) -> str | Path:
    if version == "current":
        return GO
    command = ROOT / f".dev/go{version}/go/bin/go"
    if not command.exists():
        pytest.skip(f"there is no Go {version}: `make setup WITH=toolchains` installs it")
    return command


@pytest.mark.parametrize(
    "version", ["current", *(pytest.param(version, marks=pytest.mark.exhaustive) for version in OLDER)]
)
def test_the_program_is_the_same(version: str, merged: Profile, tmp_path: Path) -> None:
    """Takes over 20 s where nothing is in Go's cache: twice, all of the library that the program uses."""
    command = compiler(version)
    profile, program = tmp_path / "default.pgo", tmp_path / "program"

    def built(content: bytes) -> bytes:
        profile.write_bytes(content)
        flags = ["-ldflags=-buildid=", *UNSTABLE.get(version, [])]
        go("build", f"-pgo={profile}", *flags, "-o", program, program="matcher", command=command)
        return program.read_bytes()

    whole, reduced = compress(encode(merged)), go_format(merged)
    assert len(reduced) < len(whole) / 4
    assert built(whole) == built(reduced)
