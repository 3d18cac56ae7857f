"""Parse the command line of `pgo-agent`, and run a command of `commands/`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pprof_proto.release import ShowVersion

from pgo_agent.commands import (
    add_binary,
    add_capture,
    add_convert,
    add_doctor,
    add_latency,
    add_scrape,
    add_serve,
    add_submit,
    add_symbols,
)
from pgo_agent.errors import AgentError
from pgo_agent.streams import flush_standard_output, open_standard_streams, say

_FAILED = 2
_INTERRUPTED = 130  # the status of a program that SIGINT ended, in shells


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    commands_parser = argparse.ArgumentParser(
        prog="pgo-agent", description="Take profiles of programs, and submit them to a collector."
    )
    commands = commands_parser.add_subparsers(required=True, metavar="COMMAND")
    commands_parser.add_argument("--version", action=ShowVersion, of="pgo-agent")
    add_binary(commands.add_parser("binary", help="send native programs to a collector, for better builds"))
    add_capture(commands.add_parser("capture", help="write a pprof profile of programs on this machine"))
    add_convert(commands.add_parser("convert", help="convert a recording of perf to a pprof profile"))
    add_doctor(commands.add_parser("doctor", help="check what works on this machine"))
    add_latency(commands.add_parser("latency", help="show where programs on this machine wait"))
    add_scrape(commands.add_parser("scrape", help="pull profiles from /debug/pprof, and submit them"))
    add_serve(commands.add_parser("serve", help="serve profiles of programs on this machine over HTTP"))
    add_submit(commands.add_parser("submit", help="submit pprof profiles to a collector"))
    add_symbols(commands.add_parser("symbols", help="send the functions of a Go program to a collector"))
    return commands_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. Errors give 2, with the reason on standard error."""
    open_standard_streams()
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        flush_standard_output()
    except (AgentError, OSError, ValueError) as error:
        say(f"pgo-agent: {error}")
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
