"""Parse the command line of `pgo-agent`, and run the commands `convert` and `submit`.

The other commands are in `commands/`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pgo_agent.collector import Collector
from pgo_agent.commands.arguments import add_collector, add_series, add_trace, read_key, trace_key
from pgo_agent.commands.capture import add_capture
from pgo_agent.commands.doctor import add_doctor
from pgo_agent.commands.latency import add_latency
from pgo_agent.commands.scrape import add_scrape
from pgo_agent.commands.serve import add_serve
from pgo_agent.commands.uploads import add_binary, add_symbols
from pgo_agent.errors import AgentError
from pgo_agent.native import native_profile, read_samples, recording_of

_FAILED = 2
_INTERRUPTED = 130  # the status of a program that SIGINT ended, in shells


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    commands_parser = argparse.ArgumentParser(
        prog="pgo-agent", description="Take profiles of programs, and submit them to a collector."
    )
    commands = commands_parser.add_subparsers(required=True, metavar="COMMAND")
    add_binary(commands.add_parser("binary", help="send native programs to a collector, for better builds"))
    add_capture(commands.add_parser("capture", help="write a pprof profile of programs on this machine"))
    _add_convert(commands.add_parser("convert", help="convert a recording of perf to a pprof profile"))
    add_doctor(commands.add_parser("doctor", help="check what works on this machine"))
    add_latency(commands.add_parser("latency", help="show where programs on this machine wait"))
    add_scrape(commands.add_parser("scrape", help="pull profiles from /debug/pprof, and submit them"))
    add_serve(commands.add_parser("serve", help="serve profiles of programs on this machine over HTTP"))
    _add_submit(commands.add_parser("submit", help="submit pprof profiles to a collector"))
    add_symbols(commands.add_parser("symbols", help="send the functions of a Go program to a collector"))
    return commands_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. Errors give 2, with the reason on standard error."""
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (AgentError, OSError, ValueError) as error:
        print(f"pgo-agent: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _add_convert(convert: argparse.ArgumentParser) -> None:
    convert.description = (
        "Convert a recording of perf record -e cpu-clock -g --buildid-mmap to a gzipped pprof profile."
    )
    convert.add_argument(
        "recording", metavar="RECORDING", type=Path, help="the file that perf record wrote: perf.data"
    )
    convert.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="the file to write")
    convert.set_defaults(run=_convert)


def _convert(options: argparse.Namespace) -> int:
    samples = read_samples(options.recording)
    # perf's clock starts at boot, so the end of the recording is taken from the file's modification time.
    recording = recording_of(samples, options.recording.stat().st_mtime_ns)
    options.output.write_bytes(native_profile(recording))
    return 0


def _add_submit(submit: argparse.ArgumentParser) -> None:
    submit.description = "Submit pprof profiles to a collector. If one is refused, go on with the rest."
    submit.add_argument("files", metavar="FILE", type=Path, nargs="+", help="a profile, gzipped or bare")
    add_collector(submit)
    add_series(submit)
    submit.add_argument("--type", help="the profile type, such as heap (default: cpu)")
    add_trace(submit)
    submit.add_argument("--json", action="store_true", help="print the result for each file as JSON")
    submit.set_defaults(run=_submit)


def _submit(options: argparse.Namespace) -> int:
    key = read_key(options.key_file)
    reasons: dict[str, str] = {}
    with Collector(
        options.url, key, service=options.service, labels=dict(options.label), trace_key=trace_key(options)
    ) as collector:
        if collector.trace_id is not None:
            print(f"to see the trace: pgo-collector trace show {collector.trace_id}", file=sys.stderr)
        for file in _with_progress(options.files):
            try:
                nanos = collector.send(collector.upload(file.read_bytes(), options.type))
                if collector.trace_id is not None:
                    print(f"{file} took {nanos / 1e6:.3f} ms", file=sys.stderr)
            except (AgentError, OSError) as error:
                reasons[str(file)] = str(error)
    if options.json:
        files = ({"file": str(file), "error": reasons.get(str(file))} for file in options.files)
        print(json.dumps(list(files), indent=2))
    else:
        for name, reason in reasons.items():
            print(f"pgo-agent: {name}: {reason}", file=sys.stderr)
    return _FAILED if reasons else 0


def _with_progress(files: Sequence[Path]) -> Iterator[Path]:
    """Yield the files, with a progress bar on a terminal."""
    from tqdm import tqdm  # noqa: PLC0415 - other commands don't need it

    yield from tqdm(files, unit="profile", leave=False, disable=None)


if __name__ == "__main__":
    sys.exit(main())
