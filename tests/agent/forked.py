"""Commands of the agent, forked: a start may change constants of the agent's modules.

A test waits a second then where a fleet waits minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

from tests.forked import NO_CONSTANTS, Constants, Forked, Forks, serve_forks

_FORKS: Final = Forks("from tests.agent import forked; forked.serve()")
_ROUND: Final = "TESTS_SECONDS_OF_A_ROUND"


def of_round(seconds: float) -> dict[str, str]:
    """Return the variable that has each target scraped once in this time, which may be less than a second."""
    return {_ROUND: str(seconds)}


class RunningAgent(Forked):
    """A command of the agent."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        constants: Constants = NO_CONSTANTS,
        stderr: IO[bytes] | None = None,
    ) -> None:
        super().__init__(_FORKS, arguments, environment, constants=constants, stderr=stderr)


def run_agent(
    arguments: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    constants: Constants = NO_CONSTANTS,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return RunningAgent(arguments, environment, constants).completed(timeout=300)


def serve() -> None:
    """Run the process that commands are forked from."""
    from pgo_agent.cli import main  # noqa: PLC0415 - only this process needs it

    def in_short_rounds(arguments: list[str]) -> int:
        if seconds := os.environ.pop(_ROUND, None):
            _scrape_every(float(seconds))
        return main(arguments)

    serve_forks(
        in_short_rounds,
        "anyio._backends._asyncio",
        "encodings.idna",
        "pgo_agent.scrape.run",
        "pgo_agent.scrape.submit_queue",
        "pgo_agent.serve",
        "tqdm",
    )


def _scrape_every(seconds: float) -> None:
    run = import_module("pgo_agent.scrape.run")
    follow = run.follow

    async def follow_in_short_rounds(options: argparse.Namespace, *rest: Any) -> int:
        options.every = seconds
        status: int = await follow(options, *rest)
        return status

    run.follow = follow_in_short_rounds  # type: ignore[attr-defined]
