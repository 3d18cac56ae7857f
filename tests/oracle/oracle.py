"""The oracle: a Go program around google/pprof's package, which is part of the Go toolchain."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

GO = str(Path(sys.executable).parent / "go")
SOURCE = Path(__file__).parent / "oracle.go"
VENDORED = "src/cmd/vendor/github.com/google/pprof/profile"


class RefusalError(Exception):
    """Go refuses the profiles; the message is Go's."""


def go_environment() -> dict[str, str]:
    """Return this process's environment, with settings that keep Go offline and on this toolchain."""
    offline = {
        "GOTOOLCHAIN": "local",
        "GOPROXY": "off",
        "GOFLAGS": "-mod=mod",
        "GOWORK": "off",
        "GOENV": "off",
    }
    return {**os.environ, **offline}


@cache
def go_root() -> Path:
    """Return the folder of the Go toolchain."""
    command = [GO, "env", "GOROOT"]
    found = subprocess.run(command, env=go_environment(), check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


@cache
def go_tool(name: str) -> Path:
    """Return the program that `go tool NAME` runs, which Go builds on first use.

    Go takes ten times as long to find it as pprof takes for a small profile.
    """
    command = [GO, "tool", "-n", name]
    found = subprocess.run(command, env=go_environment(), check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


def build(folder: Path, source: Path = SOURCE) -> Path:
    """Build a program that uses google/pprof's package in `folder`, which is empty; return its path."""
    shutil.copytree(go_root() / VENDORED, folder / "profile")
    shutil.copy(source, folder)
    (folder / "go.mod").write_text("module oracle\n")
    program = folder / source.stem
    subprocess.run([GO, "build", "-o", program, "."], cwd=folder, env=go_environment(), check=True)
    return program


class Oracle:
    """A client of the program; it asks one question at a time."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._questions = questions
        self._answers = answers

    def refusal(self, profile: bytes) -> str:
        """Return why Go refuses the profile; empty if Go accepts it."""
        try:
            self._ask(b"p", [profile])
        except RefusalError as refusal:
            return str(refusal)
        return ""

    def merge(self, profiles: list[bytes]) -> bytes:
        """Return Go's merge of the profiles in this order, as bare protobuf. Raises RefusalError."""
        return self._ask(b"m", profiles)

    def rewrite(self, profile: bytes) -> bytes:
        """Return what Go writes after reading the profile, as bare protobuf. Raises RefusalError."""
        return self._ask(b"w", [profile])

    def _ask(self, operation: bytes, profiles: list[bytes]) -> bytes:
        self._questions.write(operation + struct.pack(">I", len(profiles)))
        for profile in profiles:
            self._questions.write(struct.pack(">I", len(profile)))
            self._questions.write(profile)
        self._questions.flush()
        refused, length = struct.unpack(">BI", self._answers.read(5))
        answer = self._answers.read(length)
        if refused:
            raise RefusalError(answer.decode(errors="replace"))
        return answer


@contextmanager
def running(folder: Path) -> Iterator[Oracle]:
    """Build the oracle in `folder`, and yield it; it ends with the block."""
    with subprocess.Popen([build(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Oracle(cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout))
        cast("IO[bytes]", process.stdin).close()
