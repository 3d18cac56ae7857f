"""Runs the programs of others that the agent is built on, and says which package has one that is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pgo_agent.errors import ToolFailed

_PACKAGES = {"perf": "linux-perf", "llvm-symbolizer": "llvm", "llvm-cxxfilt": "llvm"}


def run_tool(name: str, *arguments: str | Path, given: str = "") -> list[str]:
    """The lines that it prints, with `given` as its input; bytes that aren't UTF-8 are surrogates in both.

    Raises ToolFailed if it is missing or fails.
    """
    try:
        done = subprocess.run(  # noqa: S603 - names of programs from here, and no shell
            [name, *arguments],
            input=given,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except FileNotFoundError:
        package = _PACKAGES.get(name)
        where = f" (Debian's package: {package})" if package else ""
        raise ToolFailed(name, f"it is not installed{where}") from None
    if done.returncode:
        raise ToolFailed(name, done.stderr.strip() or f"it ended with status {done.returncode}")
    return done.stdout.split("\n")[:-1]
