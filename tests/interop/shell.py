"""A shell, into which commands are pasted as a page has them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

# What `make` leaves to its commands, and a reader's shell lacks. PostgreSQL makes its headers at level 0
# alone.
_OF_MAKE = frozenset({"MAKEFLAGS", "MAKELEVEL", "MFLAGS"})


def pasted(commands: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Return what commands print in a folder, errors too; fail if one does. No proxy is used for loopback."""
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", commands],
        cwd=folder,
        env={**{name: environment[name] for name in environment.keys() - _OF_MAKE}, "no_proxy": "*"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
