"""Have the stacks of this process's Python threads read by a process beside it.

`ReaderBeside` runs `stack_reader.py`, with the interpreter of this process, for one profile.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from threading import Event
from typing import Any, NamedTuple

from pgo_agent import stack_reader

_PATIENCE = 10.0  # seconds
_SET_PTRACER = 0x59616D61  # of prctl


class Function(NamedTuple):
    """A function in its source file; `name` starts with the name of its module."""

    name: str
    file: str
    start_line: int


Stack = tuple[tuple[Function, int], ...]  # functions and line numbers, innermost first
Samples = Mapping[Stack, tuple[int, int]]  # how often each stack was seen, and its CPU time (ns)


class NotReadable(Exception):
    """Says why this process can't be read from outside."""


class ReaderBeside:
    """A process that reads this one's stacks, for one `read`."""

    comment = "Python stacks: read from a process beside"

    def __init__(self, period: int) -> None:
        """Start it. `period` is the mean time between two looks (ns). Raises NotReadable."""
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_PATIENCE)
        try:
            with theirs:
                self._pid = _spawn(theirs.fileno())
        except (OSError, ValueError) as error:
            self._socket.close()
            raise NotReadable(f"{sys.executable!r} can't be started: {error}") from error
        _allow(self._pid)
        self._answers = self._socket.makefile("rb")
        try:
            self._begin(period)
        except BaseException:
            self._end()
            raise

    def read(self, duration: float, until: Event) -> Samples:
        """Return the stacks that were seen within `duration` seconds, or until `until` is set."""
        try:
            until.wait(duration)
            self._socket.sendall(b"\n")
            return _samples(json.loads(self._answers.readline()))
        finally:
            self._end()

    def _begin(self, period: int) -> None:
        try:
            target = stack_reader.target() | {"period": period / 1e9}
            self._socket.sendall(json.dumps(target).encode() + b"\n")
            answer = self._answers.readline()
        except (OSError, AttributeError, ValueError) as error:
            raise NotReadable(f"the reader doesn't answer: {error}") from error
        if answer != b"ready\n":
            raise NotReadable(answer.decode(errors="replace").strip() or "the reader ended")

    def _end(self) -> None:
        self._answers.close()
        self._socket.close()
        with suppress(OSError):  # another part of the program has waited for its end
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        _allow(0)


def _spawn(channel: int) -> int:
    """Start the reader on a socket, and return its number.

    `subprocess` would wait for a child that another thread forks meanwhile, which has a copy of its pipe.
    """
    files = [
        (os.POSIX_SPAWN_DUP2, channel, 0),
        (os.POSIX_SPAWN_DUP2, channel, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    # -I and -S: nothing but Python's own modules.
    command = [sys.executable or "", "-I", "-S", stack_reader.__file__]
    return os.posix_spawn(command[0], command, os.environ, file_actions=files)


def _allow(pid: int) -> None:
    """Let a process read this one's memory where Yama allows that to parents only; 0 takes it back."""
    ctypes.CDLL(None).prctl(_SET_PTRACER, pid, 0, 0, 0)  # fails where there is no Yama, which needs none


def _samples(result: dict[str, Any]) -> Samples:
    """Return the stacks that the reader wrote, with the names of modules in those of functions."""
    modules = {getattr(sys.modules["__main__"], "__file__", "<string>"): "__main__"}  # that of `python -c`
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str):
            modules.setdefault(file, name)
    frames = [
        (Function(f"{_module(file, modules)}.{name}", file, first_line), line)
        for file, name, first_line, line in result["places"]
    ]
    samples: Counter[Stack] = Counter()
    times: Counter[Stack] = Counter()
    for numbers, count, cpu_time in result["stacks"]:
        stack = tuple(frames[number] for number in numbers)
        samples[stack] += count
        times[stack] += cpu_time
    return {stack: (count, times[stack]) for stack, count in samples.items()}


def _module(file: str, modules: Mapping[str, str]) -> str:
    """Return the name of a file's module; `?` for code without one, such as that of `exec`."""
    frozen = file.removeprefix("<frozen ").removesuffix(">") if file.startswith("<frozen ") else "?"
    return modules.get(file, frozen)
