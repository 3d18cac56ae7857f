"""Commands, each forked from a process that has the program loaded, as tests/zygote.py forks the collector.

A start costs a fork and not an import of everything. Of each command, a few tests start it as users do.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final, Self

from tests.zygote import Child, Zygote, fork_on_orders

Constants = Mapping[str, float]
NO_CONSTANTS: Final[Constants] = MappingProxyType({})
_ORDER: Final = "TESTS_FORKED"


class Forks(Zygote):
    """Starts a command by a process that runs `program`, which calls `serve_forks`."""

    def __init__(self, program: str) -> None:
        super().__init__(program=program)
        atexit.register(self.close)

    def start_child(self, arguments: Sequence[str], environment: Mapping[str, str], *outputs: int) -> Child:
        return Child(self._fork(arguments, environment, *outputs), None, self._reap)


class Forked:
    """A command in a process of its own, with the methods of `subprocess.Popen` that tests use.

    `constants` are numbers by the full names of the modules' constants, such as
    `pgo_agent.retry.LONGEST_BACKOFF`. Standard error goes to the file `stderr` if that is given.
    """

    def __init__(
        self,
        forks: Forks,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        *,
        stdin: bytes | None = None,
        stderr: IO[bytes] | None = None,
        folder: Path | None = None,
        constants: Constants = NO_CONSTANTS,
    ) -> None:
        order = {
            "folder": str(folder or Path.cwd()),
            "stdin": None if stdin is None else _filled(stdin),
            "process": os.getpid(),
            "constants": dict(constants),
        }
        variables = dict(os.environ if environment is None else environment)
        variables[_ORDER] = json.dumps(order)
        self._stdin = order["stdin"]
        self._stdout = os.memfd_create("stdout")
        self._stderr = os.memfd_create("stderr") if stderr is None else os.dup(stderr.fileno())
        self._written: tuple[bytes, bytes] | None = None
        self._child = forks.start_child(list(map(str, arguments)), variables, self._stdout, self._stderr)
        self.pid = self._child.pid
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self._child.terminate()

    def kill(self) -> None:
        self._child.kill()

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        with suppress(TimeoutError):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal. Raises TimeoutError."""
        self.returncode = self._child.wait(timeout)
        if self._written is None:
            self._written = _taken(self._stdout), _taken(self._stderr)
            if isinstance(self._stdin, int):
                os.close(self._stdin)
        return self.returncode

    def written(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait for the end; return what it has written to standard output and standard error."""
        self.wait(timeout)
        assert self._written is not None
        return self._written

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return what it has written as text."""
        output, errors = self.written(timeout)
        return output.decode(), errors.decode()

    def completed(self, timeout: float) -> subprocess.CompletedProcess[str]:
        """Wait for the end; return what `subprocess.run` would."""
        output, errors = self.communicate(timeout)
        return subprocess.CompletedProcess([], self.wait(), output, errors)


def _filled(content: bytes) -> int:
    """Return a file in memory with this content."""
    number = os.memfd_create("stdin")
    with os.fdopen(number, "wb", closefd=False) as file:
        file.write(content)
    return number


def _taken(output: int) -> bytes:
    """Return what was written to a file in memory, and close it."""
    with os.fdopen(output, "r+b") as file:
        file.seek(0)
        return file.read()


def serve_forks(main: Callable[[list[str]], int], *late: str) -> None:
    """Run the process that commands are forked from. Commands import the modules `late` when they run."""
    for module in late:
        import_module(module)

    def ordered(arguments: list[str]) -> int:
        order = json.loads(os.environ.pop(_ORDER))
        os.chdir(order["folder"])
        if order["stdin"] is not None:
            given = os.open(f"/proc/{order['process']}/fd/{order['stdin']}", os.O_RDONLY)
            os.dup2(given, 0)
            os.close(given)
        for name, number in order["constants"].items():
            module, _, constant = name.rpartition(".")
            found = import_module(module)
            getattr(found, constant)  # it must be there
            setattr(found, constant, number)
        return main(arguments)

    fork_on_orders(ordered)
