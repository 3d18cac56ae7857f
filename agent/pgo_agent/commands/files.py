"""Run `pgo-agent convert` and `pgo-agent submit`: make a profile of a recording, and submit profiles."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from pgo_agent.collector import Collector
from pgo_agent.commands.arguments import add_collector, add_series, add_trace, read_key, trace_key
from pgo_agent.errors import AgentError, NotReadable
from pgo_agent.native import native_profile, read_branches, read_samples, recording_of, with_stacks_told
from pgo_agent.profile_builder import CPU_TYPES
from pgo_agent.streams import say

_FAILED = 2
_MUCH = 0.1  # of stacks that are cut short


def add_convert(convert: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    convert.description = (
        "Convert a recording of perf record -g --buildid-mmap, of any event, to a gzipped pprof profile."
    )
    convert.add_argument(
        "recording", metavar="RECORDING", type=Path, help="the file that perf record wrote: perf.data"
    )
    convert.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="the file to write")
    convert.add_argument(
        "--event",
        metavar="EVENT",
        default="",
        help="the event to convert, where perf recorded several; such as cycles or page-faults:u",
    )
    convert.add_argument(
        "--branches",
        action="store_true",
        help="convert the branch records (perf record -b) instead of the samples",
    )
    convert.set_defaults(run=_convert)


def _convert(options: argparse.Namespace) -> int:
    path, event = options.recording, options.event
    if options.branches:
        recording = read_branches(path, _ended(path), event=event)
        options.output.write_bytes(native_profile(recording))
        say("branch records aren't CPU time: submit with --type branches")
        return 0
    samples = read_samples(path, event=event)
    if not samples:
        raise NotReadable(path, "it has no samples")
    recording = with_stacks_told(recording_of(samples, _ended(path)), path)
    options.output.write_bytes(native_profile(recording))
    count = sum(count for count, _ in recording.stacks.values())
    if (recording.cut_short or 0) > _MUCH * count:
        say(f"{next(recording.comments())}: record with --call-graph dwarf, of more bytes if you did")
    if recording.types != CPU_TYPES:
        name = recording.types[-1][0]
        label = shlex.quote(f"profile_name={name}")
        say(f"samples of {name} aren't CPU time: submit with --type other --label {label}")
    return 0


def _ended(recording: Path) -> int:
    """Return when a recording ended: perf's clock starts at boot, so by the file's modification time."""
    return recording.stat().st_mtime_ns


def add_submit(submit: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
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
            say(f"to see the trace: pgo-collector trace show {collector.trace_id}")
        for file in _with_progress(options.files):
            try:
                nanos = collector.send(collector.upload(file.read_bytes(), options.type))
                if collector.trace_id is not None:
                    say(f"{file} took {nanos / 1e6:.3f} ms")
            except (AgentError, OSError) as error:
                reasons[str(file)] = str(error)
    if options.json:
        files = ({"file": str(file), "error": reasons.get(str(file))} for file in options.files)
        print(json.dumps(list(files), indent=2))
    else:
        for name, reason in reasons.items():
            say(f"pgo-agent: {name}: {reason}")
    return _FAILED if reasons else 0


def _with_progress(files: Sequence[Path]) -> Iterator[Path]:
    """Yield the files, with a progress bar on a terminal."""
    from tqdm import tqdm  # noqa: PLC0415 - other commands don't need it

    yield from tqdm(files, unit="profile", leave=False, disable=None)
