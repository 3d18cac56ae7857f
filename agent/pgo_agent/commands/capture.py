"""Run `pgo-agent capture`: write one profile of programs on this machine to a file."""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

from pgo_agent.backends import Backend, ProcessSampler, choose
from pgo_agent.commands.arguments import (
    add_programs,
    add_sampling,
    candidate_backends,
    programs_collector,
    sampled_names,
    seconds,
    send_programs,
)
from pgo_agent.native import Recording, native_profile

_TICK_SECONDS = 0.1


def add_capture(capture: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    capture.description = "Sample the CPU time of running programs, and write a gzipped pprof profile."
    capture.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="the file to write")
    add_sampling(capture)
    add_programs(capture)
    capture.add_argument(
        "--duration",
        metavar="SECONDS",
        type=seconds,
        default=10.0,
        help="how long to sample (default: %(default)s)",
    )
    capture.add_argument("--json", action="store_true", help="print a summary as JSON")
    capture.set_defaults(run=_capture)


def _capture(options: argparse.Namespace) -> int:
    collector = programs_collector(options)
    candidates = candidate_backends(options)
    backend = choose(candidates) if len(candidates) > 1 else candidates[0]
    sampler = ProcessSampler(backend, sampled_names(options), options.frequency)
    recording = _record_with_progress(sampler, backend, options.duration)
    options.output.write_bytes(native_profile(recording))
    programs = send_programs(collector, recording.stacks) if collector else None
    if options.json:
        samples, cpu = map(sum, zip(*recording.stacks.values(), strict=True))
        summary = {
            "file": str(options.output),
            "profiler": backend.name,
            "samples": samples,
            "cpu_seconds": cpu / 1e9,
            "duration_seconds": recording.duration / 1e9,
            "lost_stacks": recording.lost_stacks,
            "stacks": recording.followed,
            "cut_short": recording.cut_short,
        }
        if programs is not None:
            summary["programs"] = programs
        print(json.dumps(summary, indent=2))
    return 0


def _record_with_progress(sampler: ProcessSampler, backend: Backend, duration: float) -> Recording:
    """Sample, with a progress bar on a terminal. Ctrl-C stops the profiler cleanly."""
    from tqdm import tqdm  # noqa: PLC0415 - other commands don't need it

    ended, began = Event(), time.monotonic()
    with (
        ThreadPoolExecutor(1) as pool,
        tqdm(total=duration, desc=backend.name, unit="s", leave=False, disable=None) as bar,
    ):
        try:
            recording: Future[Recording] = pool.submit(sampler.record, duration, ended)
            while not wait([recording], _TICK_SECONDS).done:
                bar.update(min(time.monotonic() - began, duration) - bar.n)
        finally:
            ended.set()
        return recording.result()
