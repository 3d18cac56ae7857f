"""Commands of the agent, each forked from a process that has the agent loaded, as tests/zygote.py has it.

A start costs a fork and not an import of everything, and may change constants of the agent's modules, so
that a test waits a second where a fleet waits minutes.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, Self

from tests.zygote import Child, Zygote, fork_on_orders

Constants = Mapping[str, float]
_NONE: Final[Constants] = MappingProxyType({})
_CONSTANTS: Final = "TESTS_AGENT_CONSTANTS"
_ROUND: Final = "seconds of a round"


def of_round(seconds: float) -> dict[str, float]:
    """Return what has each target scraped once in this time, which may be less than `--every` takes."""
    return {_ROUND: seconds}


class _AgentZygote(Zygote):
    def __init__(self) -> None:
        super().__init__(program="from tests.agent import forked; forked.serve_forks()")

    def start_child(self, arguments: Sequence[str], environment: Mapping[str, str], *outputs: int) -> Child:
        return Child(self._fork(arguments, environment, *outputs), None, self._reap)


_ZYGOTE: Final = _AgentZygote()
atexit.register(_ZYGOTE.close)


class RunningAgent:
    """A command of the agent in a process, with the methods of `subprocess.Popen` that tests use.

    `constants` are numbers by the full names of the modules' constants, such as
    `pgo_agent.retry.LONGEST_BACKOFF`. Standard error goes to the file `stderr` if that is given.
    """

    def __init__(
        self,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        constants: Constants = _NONE,
        stderr: IO[bytes] | None = None,
    ) -> None:
        variables = dict(os.environ if environment is None else environment)
        variables[_CONSTANTS] = json.dumps(dict(constants))
        self._stdout = os.memfd_create("stdout")
        self._stderr = os.memfd_create("stderr") if stderr is None else os.dup(stderr.fileno())
        self._written: tuple[str, str] | None = None
        self._child = _ZYGOTE.start_child(list(map(str, arguments)), variables, self._stdout, self._stderr)
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
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return what it has written to standard output and standard error."""
        self.wait(timeout)
        assert self._written is not None
        return self._written


def _taken(output: int) -> str:
    """Return what was written to a file in memory, and close it."""
    with os.fdopen(output, "r+b") as file:
        file.seek(0)
        return file.read().decode()


def run_agent(
    arguments: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    constants: Constants = _NONE,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    agent = RunningAgent(arguments, environment, constants)
    stdout, stderr = agent.communicate(timeout=300)
    return subprocess.CompletedProcess(arguments, agent.wait(), stdout, stderr)


def serve_forks() -> None:
    """Run the process that commands are forked from."""
    from pgo_agent.cli import main  # noqa: PLC0415 - only this process needs it

    # What commands import when they run.
    for late in (
        "anyio._backends._asyncio",
        "encodings.idna",
        "pgo_agent.scrape.run",
        "pgo_agent.scrape.submit_queue",
        "pgo_agent.serve",
        "tqdm",
    ):
        import_module(late)

    def changed(arguments: list[str]) -> int:
        for name, number in json.loads(os.environ.pop(_CONSTANTS)).items():
            if name == _ROUND:
                _scrape_every(number)
            else:
                module, _, constant = name.rpartition(".")
                found = import_module(module)
                getattr(found, constant)  # it must be there
                setattr(found, constant, number)
        return main(arguments)

    fork_on_orders(changed)


def _scrape_every(seconds: float) -> None:
    run = import_module("pgo_agent.scrape.run")
    follow = run.follow

    async def follow_in_short_rounds(options: argparse.Namespace, *rest: Any) -> int:
        options.every = seconds
        status: int = await follow(options, *rest)
        return status

    run.follow = follow_in_short_rounds  # type: ignore[attr-defined]
