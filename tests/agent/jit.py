"""Programs whose code no file has, in containers of their own: as profilers find a JIT compiler."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_name("jit.c")
# A name that no other process of the machine has.
NAME = f"jit-{os.getpid()}"
# With a number, a /proc and a /tmp of its own: the folder that is the first argument.
_ALONE = (
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-ec"),
    'cd "$0"; mount --bind . /tmp; cd /tmp; exec "$@"',
)


def build(folder: Path) -> Path:
    """Compile the program, and return its path."""
    binary = folder / NAME
    flags = ("-O1", "-g", "-fno-omit-frame-pointer", "-Wall", "-Werror")
    subprocess.run(["gcc", *flags, "-o", binary, SOURCE], check=True)
    return binary


@contextmanager
def contained(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a container whose /tmp is the folder, once it has written a line.

    It reads a line before it computes, so that it need not compute before it is sampled.
    """
    started: list[str | Path] = [*_ALONE, folder, *command]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()
