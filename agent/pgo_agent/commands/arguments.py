"""Arguments that several commands have."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from pgo_agent.backends.backend import Backend
from pgo_agent.backends.choice import backends


def add_executables(command: argparse.ArgumentParser) -> None:
    """What is sampled."""
    command.add_argument(
        "--executable",
        metavar="NAME",
        action="append",
        help="the executable name of a program to profile; may be repeated (default: postgres)",
    )


def add_sampling(command: argparse.ArgumentParser) -> None:
    """What is sampled, how often, and by what."""
    add_executables(command)
    command.add_argument(
        "--frequency", metavar="HZ", type=int, default=99, help="samples per second (default: %(default)s)"
    )
    command.add_argument(
        "--profiler", choices=[*backends()], help="the profiler to use (default: the first that works here)"
    )


def add_series(command: argparse._ActionsContainer) -> None:
    """What the collector is told of the profiles."""
    command.add_argument("--service", help="the service that the profiles belong to")
    command.add_argument(
        "--label",
        metavar="NAME=VALUE",
        type=label,
        action="append",
        default=[],
        help="a label of the profiles; may be repeated",
    )


def sampled_names(options: argparse.Namespace) -> tuple[str, ...]:
    """The names of the processes to sample."""
    return tuple(options.executable or ("postgres",))


def candidates_in(options: argparse.Namespace) -> Sequence[Backend]:
    """What to sample by: the one that is named, or all, those first that are preferred."""
    known = backends()
    return [known[options.profiler]] if options.profiler else [*known.values()]


def seconds(text: str) -> float:
    """A time that is more than 0, and not without end. For argparse, raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"not a number of seconds above 0: {text!r}")
    return value


def label(text: str) -> tuple[str, str]:
    """A name and its value. For argparse, raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"not NAME=VALUE: {text!r}")
    if not name:
        raise argparse.ArgumentTypeError("a label has no name")
    return name, value


def key_in(file: Path) -> str:
    """The key in a file: its first line. Raises OSError, and ValueError if that is empty."""
    key = file.read_text().partition("\n")[0].strip()
    if not key:
        raise ValueError(f"{file}: its first line is to be a key, and is empty")
    return key
