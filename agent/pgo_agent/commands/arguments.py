"""Define and read the arguments that several commands share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from pgo_agent.backends import Backend, backends
from pgo_agent.collector import Collector
from pgo_agent.native import Stack
from pgo_agent.programs import SENT, THERE, ProgramSender
from pgo_agent.streams import say

# The collector reads a program's tables before it answers.
BINARY_SECONDS = 300.0


def add_executables(command: argparse.ArgumentParser) -> None:
    """Add --executable: the programs to sample."""
    command.add_argument(
        "--executable",
        metavar="NAME",
        action="append",
        help="the executable name of a program to profile; may be repeated (default: postgres)",
    )


def add_sampling(command: argparse.ArgumentParser) -> None:
    """Add the arguments for sampling: which programs, how often, and by which profiler."""
    add_executables(command)
    command.add_argument(
        "--frequency", metavar="HZ", type=int, default=99, help="samples per second (default: %(default)s)"
    )
    command.add_argument(
        "--profiler",
        choices=[*backends()],
        help="the profiler to sample with (default: the first that works here)",
    )


def add_collector(command: argparse._ActionsContainer) -> None:
    """Add --url and --key-file: the collector, and the key to submit with. Both are required."""
    command.add_argument("--url", required=True, help="the collector's URL, such as http://host:8080")
    command.add_argument(
        "--key-file", type=Path, required=True, help="a file whose first line is the submit key"
    )


def add_programs(command: argparse.ArgumentParser) -> None:
    """Add --symbols, and the collector to which it sends the programs that are profiled."""
    sent = command.add_argument_group("send a collector the symbols of what is profiled")
    sent.add_argument(
        "--symbols",
        action="store_true",
        help="send each profiled program and library that the collector doesn't have, without its code",
    )
    sent.add_argument("--url", help="the collector's URL, such as http://host:8080")
    sent.add_argument("--key-file", type=Path, help="a file whose first line is the submit key")
    sent.add_argument("--service", help="the service that the programs are")


def programs_collector(options: argparse.Namespace) -> Collector | None:
    """Return the collector of --symbols, None without it. Raises ValueError, and as `read_key` does."""
    if not options.symbols:
        if options.url or options.key_file or options.service:
            raise ValueError("--url, --key-file and --service are for --symbols")
        return None
    if not (options.url and options.key_file):
        raise ValueError("--symbols needs --url and --key-file")
    return Collector(options.url, read_key(options.key_file), service=options.service, timeout=BINARY_SECONDS)


def send_programs(collector: Collector, stacks: Iterable[Stack]) -> list[dict[str, str]]:
    """Send the programs of these stacks, and name those that weren't sent on standard error.

    Return what became of each, as JSON has it. Raises as `ProgramSender.send` does.
    """
    with collector:
        sent = ProgramSender(collector).send(stacks)
    for file, _, outcome in sent:
        if outcome not in {SENT, THERE}:
            say(f"pgo-agent: {file} wasn't sent: {outcome}")
    return [each._asdict() for each in sent]


def add_series(command: argparse._ActionsContainer) -> None:
    """Add --service and --label, which describe the profiles to the collector."""
    command.add_argument("--service", help="the service that the profiles belong to")
    command.add_argument(
        "--label",
        metavar="NAME=VALUE",
        type=label,
        action="append",
        default=[],
        help="a label to put on the profiles; may be repeated",
    )


def add_trace(command: argparse._ActionsContainer) -> None:
    """Add --trace, the file of a trace key."""
    command.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        help="a file whose first line is a trace key: have the collector record where the time goes",
    )


def trace_key(options: argparse.Namespace) -> str | None:
    """Return the key in the file that --trace names, None without it. Raises as `read_key` does."""
    return read_key(options.trace) if options.trace else None


def sampled_names(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the names of the processes to sample."""
    return tuple(options.executable or ("postgres",))


def candidate_backends(options: argparse.Namespace) -> Sequence[Backend]:
    """Return the backend that --profiler names, or all backends in order of preference."""
    known = backends()
    return [known[options.profiler]] if options.profiler else [*known.values()]


def seconds(text: str) -> float:
    """Parse a finite number of seconds above 0, for argparse. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"not a number of seconds above 0: {text!r}")
    return value


def label(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE into its two parts, for argparse. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"not NAME=VALUE: {text!r}")
    if not name:
        raise argparse.ArgumentTypeError("a label has no name")
    return name, value


def read_key(file: Path) -> str:
    """Return the key in a file, its first line. Raises OSError, and ValueError if the line is empty."""
    key = file.read_text(encoding="utf-8-sig").partition("\n")[0].strip()
    if not key:
        raise ValueError(f"{file}: the first line is empty; put the key there")
    return key
