"""`pgo-agent serve`: profiles of this machine's programs over HTTP, and to a collector on a schedule."""

from __future__ import annotations

import argparse
import logging
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pgo_agent.backends.backend import Wanted
from pgo_agent.collector import Collector
from pgo_agent.commands.arguments import (
    add_sampling,
    add_series,
    candidates_in,
    key_in,
    sampled_names,
    seconds,
)
from pgo_agent.errors import NotInstalled
from pgo_agent.profiler import ContinuousProfiler
from pgo_agent.serve.scheduled import ScheduledSampler
from pgo_agent.serve.turn import Turn
from pgo_agent.spool import DiskSpool, NoSpool


def add_serve(serve: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    serve.description = "Serve profiles of programs on this machine over HTTP, until SIGTERM or Ctrl-C."
    serve.add_argument(
        "--bind",
        metavar="HOST:PORT",
        default="127.0.0.1:3080",
        help=(
            "the address to listen on; :PORT for every interface, port 0 for a free one (default:"
            " %(default)s)"
        ),
    )
    serve.add_argument(
        "--key-file",
        type=Path,
        help=(
            "a file whose first line is the key that requests must have; required unless listening on"
            " loopback"
        ),
    )
    serve.add_argument(
        "--allow-program",
        metavar="PATH",
        action="append",
        default=[],
        help="the path of a program that requests may name as their profiler; may be repeated",
    )
    add_sampling(serve)
    pushed = serve.add_argument_group("to a collector, on a schedule")
    pushed.add_argument(
        "--url", help="the collector's URL, such as http://host:8080; without it, nothing is pushed"
    )
    pushed.add_argument("--submit-key-file", type=Path, help="a file whose first line is the submit key")
    add_series(pushed)
    pushed.add_argument(
        "--spool",
        metavar="FOLDER",
        type=Path,
        help="a folder that keeps profiles during an outage; without it, they are lost",
    )
    pushed.add_argument(
        "--every",
        metavar="SECONDS",
        type=seconds,
        default=3600.0,
        help="the time from one profile to the next (default: %(default)s)",
    )
    pushed.add_argument(
        "--duration",
        metavar="SECONDS",
        type=seconds,
        default=60.0,
        help="the length of each profile (default: %(default)s)",
    )
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    try:
        from pgo_agent.serve.app import Profiling  # noqa: PLC0415 - its libraries are an extra of the agent
        from pgo_agent.serve.server import listen, serve  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise NotInstalled(str(error.name), "serve") from None
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    names = Wanted(sampled_names(options), options.frequency).names
    key = key_in(options.key_file) if options.key_file else None
    profiling = Profiling(Turn(), names, frozenset(options.allow_program), key)
    with listen(options.bind, has_key=key is not None) as listener, _schedule(options, profiling.turn):
        serve(profiling, listener)
    return 0


def _schedule(options: argparse.Namespace, turn: Turn) -> AbstractContextManager[object]:
    """What pushes profiles while it is entered; nothing does if no collector is named."""
    if options.url is None:
        return nullcontext()
    if options.submit_key_file is None:
        raise ValueError("--url needs --submit-key-file")
    collector = Collector(
        options.url, key_in(options.submit_key_file), service=options.service, labels=dict(options.label)
    )
    return ContinuousProfiler(
        collector,
        spool=DiskSpool(options.spool) if options.spool else NoSpool(),
        sampler=ScheduledSampler(turn, candidates_in(options), sampled_names(options), options.frequency),
        every=options.every,
        duration=options.duration,
    )
