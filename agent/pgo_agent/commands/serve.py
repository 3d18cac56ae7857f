"""Run `pgo-agent serve`: serve profiles of this machine over HTTP, and submit some on a schedule."""

from __future__ import annotations

import argparse
import logging
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from pgo_agent.backends import SamplingRequest
from pgo_agent.collector import Collector
from pgo_agent.commands.arguments import (
    add_sampling,
    add_series,
    candidate_backends,
    read_key,
    sampled_names,
    seconds,
)
from pgo_agent.errors import NotInstalled
from pgo_agent.profiler import ContinuousProfiler
from pgo_agent.spool import DiskSpool, NoSpool

if TYPE_CHECKING:
    from pgo_agent.serve import CaptureLock


def add_serve(serve: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    serve.description = "Serve profiles of programs on this machine over HTTP until SIGTERM or Ctrl-C."
    serve.add_argument(
        "--bind",
        metavar="HOST:PORT",
        default="127.0.0.1:3080",
        help="the address; :PORT for every interface, port 0 for any free one (default: %(default)s)",
    )
    serve.add_argument(
        "--key-file",
        type=Path,
        help="a file whose first line is the key that requests must have; needed beyond loopback",
    )
    serve.add_argument(
        "--allow-program",
        metavar="PATH",
        action="append",
        default=[],
        help="the path of a program that requests may name as their profiler; may be repeated",
    )
    add_sampling(serve)
    pushed = serve.add_argument_group("submit to a collector on a schedule")
    pushed.add_argument(
        "--url", help="the collector's URL, such as http://host:8080; without it, nothing is submitted"
    )
    pushed.add_argument("--submit-key-file", type=Path, help="a file whose first line is the submit key")
    add_series(pushed)
    pushed.add_argument(
        "--spool",
        metavar="FOLDER",
        type=Path,
        help="where profiles wait in an outage; without it, they are lost",
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
        from pgo_agent.serve import CaptureLock, CaptureRoutes, listen, serve  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        raise NotInstalled(str(error.name), "serve") from None
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    names = SamplingRequest(sampled_names(options), options.frequency).names
    key = read_key(options.key_file) if options.key_file else None
    routes = CaptureRoutes(CaptureLock(), names, frozenset(options.allow_program), key)
    with listen(options.bind, has_key=key is not None) as listener, _schedule(options, routes.lock):
        serve(routes, listener)
    return 0


def _schedule(options: argparse.Namespace, lock: CaptureLock) -> AbstractContextManager[object]:
    """Return a context in which profiles are submitted; without --url, nothing is."""
    if options.url is None:
        return nullcontext()
    from pgo_agent.serve import ScheduledSampler  # noqa: PLC0415 - as above

    if options.submit_key_file is None:
        raise ValueError("--url needs --submit-key-file")
    collector = Collector(
        options.url, read_key(options.submit_key_file), service=options.service, labels=dict(options.label)
    )
    return ContinuousProfiler(
        collector,
        spool=DiskSpool(options.spool) if options.spool else NoSpool(),
        sampler=ScheduledSampler(
            lock, candidate_backends(options), sampled_names(options), options.frequency
        ),
        every=options.every,
        duration=options.duration,
    )
