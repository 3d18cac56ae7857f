"""The command `pgo-agent`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pgo_agent.errors import AgentError
from pgo_agent.native_profile import native_profile
from pgo_agent.perf import read_recording

_FAILED = 2
_INTERRUPTED = 130  # what shells give for SIGINT


def parser() -> argparse.ArgumentParser:
    """The command line."""
    described = argparse.ArgumentParser(
        prog="pgo-agent", description="Profiles of native programs, as pprof."
    )
    commands = described.add_subparsers(required=True, metavar="COMMAND")
    convert = commands.add_parser(
        "convert",
        help="write a pprof profile of what perf recorded",
        description="Writes a pprof profile of what perf record -e cpu-clock -g --buildid-mmap recorded.",
    )
    convert.add_argument(
        "recording", metavar="RECORDING", type=Path, help="what perf record wrote: perf.data"
    )
    convert.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="where to write")
    convert.set_defaults(run=_convert)
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; its exit status: 0, or 2 with the reason on standard error."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except (AgentError, OSError) as error:
        print(f"pgo-agent: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _convert(options: argparse.Namespace) -> None:
    samples = read_recording(options.recording)
    # perf's clock counts from the machine's start; the file was last written to when it stopped.
    options.output.write_bytes(native_profile(samples, options.recording.stat().st_mtime_ns))


if __name__ == "__main__":
    sys.exit(main())
