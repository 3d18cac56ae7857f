"""A C program without frame pointers, which waits or computes by way of libc."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).with_name("frameless.c")
# A name that no other process of the machine has.
NAME = f"frless-{os.getpid()}"
NAPPING = ["clock_nanosleep", "__nanosleep", "nap_once", "work", "main"]
_FLAGS = ("-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-g", "-Wall", "-Werror")
_PATIENCE_SECONDS = 60.0
_IP, _SP = 16, 19  # in struct pt_regs


def build(folder: Path) -> Path:
    """Compile the program and return its path."""
    binary = folder / NAME
    subprocess.run(["gcc", *_FLAGS, "-o", binary, SOURCE], check=True)
    return binary


@contextmanager
def running(binary: Path, way: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program until the end of the block."""
    with subprocess.Popen([binary, way], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"runs\n"
            yield process
        finally:
            process.kill()


class Waiting(NamedTuple):
    """A thread that waits in the kernel: the kernel's struct pt_regs, and its stack as hex."""

    registers: list[int]
    stack: str

    @property
    def address(self) -> int:
        """Return where it will go on."""
        return self.registers[_IP]


def waiting(pid: int) -> Waiting:
    """Return the registers that a program without frame pointers needs, once it waits, and its stack."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        # A number, six arguments, the stack's pointer and the code's; or only "running".
        if len(call := Path(f"/proc/{pid}/syscall").read_text().split()) == 9:
            registers = [0] * 21
            registers[_SP], registers[_IP] = int(call[7], 16), int(call[8], 16)
            found = re.search(r"^\w+-(\w+) .*\[stack\]$", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)
            assert found
            with Path(f"/proc/{pid}/mem").open("rb") as memory:
                memory.seek(registers[_SP])
                return Waiting(registers, memory.read(int(found[1], 16) - registers[_SP]).hex())
    raise AssertionError("it doesn't wait")


def copied(found: Waiting, size: int | None = None) -> dict[str, Any]:
    """Return what stand_ins/bcc.py is told of a copy of the first `size` bytes of a stack."""
    return {"registers": found.registers, "stack": found.stack[: None if size is None else 2 * size]}
