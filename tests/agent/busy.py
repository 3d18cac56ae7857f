"""A C program that is busy in functions with known names until it is killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("busy.c")
# A name that no other process of the machine has.
NAME = f"busy-{os.getpid()}"
needs_gcc = pytest.mark.system("gcc")


def build(folder: Path) -> Path:
    """Compile the program, with debug information and frame pointers, and return its path."""
    binary = folder / NAME
    flags = ("-O1", "-g", "-fno-omit-frame-pointer", "-pthread")
    subprocess.run(["gcc", *flags, "-o", binary, SOURCE], check=True)
    return binary


@contextmanager
def running(binary: Path, *arguments: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program, by `before` if that is given. Children that it has forked end by themselves."""
    with subprocess.Popen([*before, binary, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"busy\n"
            yield process
        finally:
            process.kill()
