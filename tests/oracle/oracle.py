"""Go's verdict on profiles: google/pprof's own package, as the Go toolchain carries it, in a process."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

GO = str(Path(sys.executable).parent / "go")
SOURCE = Path(__file__).parent / "oracle.go"
VENDORED = "src/cmd/vendor/github.com/google/pprof/profile"


class RefusalError(Exception):
    """Go doesn't take the profiles; its words."""


def go_environment() -> dict[str, str]:
    """Of this process, with Go kept to the toolchain at hand and off the network."""
    offline = {
        "GOTOOLCHAIN": "local",
        "GOPROXY": "off",
        "GOFLAGS": "-mod=mod",
        "GOWORK": "off",
        "GOENV": "off",
    }
    return {**os.environ, **offline}


def go_root() -> Path:
    """The folder of the Go toolchain."""
    command = [GO, "env", "GOROOT"]
    found = subprocess.run(command, env=go_environment(), check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


def build(folder: Path, source: Path = SOURCE) -> Path:
    """Builds a program that uses google/pprof's package in `folder`, which is empty, and returns it."""
    shutil.copytree(go_root() / VENDORED, folder / "profile")
    shutil.copy(source, folder)
    (folder / "go.mod").write_text("module oracle\n")
    program = folder / source.stem
    subprocess.run([GO, "build", "-o", program, "."], cwd=folder, env=go_environment(), check=True)
    return program


class Oracle:
    """Asks the program; one question at a time."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._questions = questions
        self._answers = answers

    def refusal(self, profile: bytes) -> str:
        """Why Go refuses the profile; empty if it is accepted."""
        try:
            self._ask(b"p", [profile])
        except RefusalError as refusal:
            return str(refusal)
        return ""

    def merge(self, profiles: list[bytes]) -> bytes:
        """Go's merge in the order given, as bare protobuf."""
        return self._ask(b"m", profiles)

    def rewrite(self, profile: bytes) -> bytes:
        """What Go writes, as bare protobuf, of what it read."""
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
    """The oracle, built in `folder`, for as long as the block lasts."""
    with subprocess.Popen([build(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Oracle(cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout))
        cast("IO[bytes]", process.stdin).close()
