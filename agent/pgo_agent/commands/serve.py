"""Run `pgo-agent serve`: serve profiles of this machine over HTTP, and submit some on a schedule."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from pgo_agent.backends import SamplingRequest
from pgo_agent.collector import Collector
from pgo_agent.commands.arguments import (
    BINARY_SECONDS,
    add_sampling,
    add_series,
    add_trace,
    candidate_backends,
    read_key,
    sampled_names,
    seconds,
    trace_key,
)
from pgo_agent.commands.latency import add_backend, duration
from pgo_agent.errors import NotInstalled
from pgo_agent.latency import TRACKERS, TrackerBackend, TrackerSettings, tracker_backends
from pgo_agent.outbox import Outbox
from pgo_agent.profiler import ContinuousProfiler
from pgo_agent.programs import BackgroundPrograms, NoPrograms, Programs
from pgo_agent.spool import DiskSpool, NoSpool, Spool, make_folder

_LAST_PROFILE_SECONDS = 60.0  # for a profiler's end, symbols, and an attempt to send
_LAST_SENDING_SECONDS = 10.0  # for what is in the spool then

if TYPE_CHECKING:
    from pgo_agent.serve import CaptureRoutes, LatencyRoutes


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
        "--allow-host",
        metavar="NAME",
        type=_host,
        action="append",
        default=[],
        help="a name of this machine that requests may have in Host, besides localhost, the host of --bind "
        "and IP addresses; may be repeated",
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
    pushed.add_argument(
        "--symbols",
        action="store_true",
        help="send also each profiled program and library that the collector doesn't have, without its code",
    )
    add_series(pushed)
    add_trace(pushed)
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
    pushed.add_argument(
        "--jitter",
        metavar="SECONDS",
        type=seconds,
        help="the first profile begins at a random moment within this time (default: that of --every)",
    )
    tracked = serve.add_argument_group("track latencies all the time")
    renamed = ", ".join(
        f"{tracker.name} as {tracker.sent_as}" for tracker in TRACKERS.values() if tracker.sent_as
    )
    tracked.add_argument(
        "--latency",
        metavar="TRACKER",
        choices=[*TRACKERS],
        action="append",
        default=[],
        help="a tracker to run; may be repeated. With --url, its profiles are submitted, as type TRACKER "
        f"({renamed})",
    )
    tracked.add_argument(
        "--latency-threshold",
        metavar="TIME",
        type=duration,
        default="1ms",
        help="events of this length have a stack, shorter ones are only counted (default: %(default)s)",
    )
    tracked.add_argument(
        "--latency-every",
        metavar="SECONDS",
        type=seconds,
        default=60.0,
        help="the length of each profile of a tracker (default: %(default)s)",
    )
    add_backend(tracked, "--latency-backend")
    serve.set_defaults(run=_serve)


def _host(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a host's name: without scheme, port and path")
    return text


def _serve(options: argparse.Namespace) -> int:
    try:
        from pgo_agent.serve import CaptureLock, CaptureRoutes, LatencyRoutes, listen, serve  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        raise NotInstalled(str(error.name), "serve") from None
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    names = SamplingRequest(sampled_names(options), options.frequency).names
    key = read_key(options.key_file) if options.key_file else None
    routes = CaptureRoutes(CaptureLock(), names, frozenset(options.allow_program), key)
    backend = tracker_backends()[options.latency_backend] if options.latency_backend else None
    latency = LatencyRoutes(key, backend)
    try:
        with (
            listen(options.bind, has_key=key is not None) as listener,
            _schedule(options, routes, latency, backend),
        ):
            serve(routes, latency, listener, [options.bind.rpartition(":")[0], *options.allow_host])
    finally:
        latency.stop()  # only now, since the schedule's last profiles are of these trackers
        routes.kept.close()
    return 0


@contextmanager
def _schedule(
    options: argparse.Namespace, routes: CaptureRoutes, latency: LatencyRoutes, backend: TrackerBackend | None
) -> Iterator[None]:
    """Run what --latency names, and submit profiles; without --url, nothing is submitted."""
    from pgo_agent.serve import LatencySchedule, ScheduledSampler  # noqa: PLC0415 - as above

    profiler: AbstractContextManager[object] = nullcontext()
    outbox = None
    programs: Programs = NoPrograms()
    if options.symbols and options.url is None:
        raise ValueError("--symbols needs --url")
    if options.url is not None:
        if options.submit_key_file is None:
            raise ValueError("--url needs --submit-key-file")
        key = read_key(options.submit_key_file)
        if options.symbols:
            programs = BackgroundPrograms(
                Collector(options.url, key, service=options.service, timeout=BINARY_SECONDS, attempts=1)
            )
        collector = Collector(
            options.url,
            key,
            service=options.service,
            labels=dict(options.label),
            trace_key=trace_key(options),
        )
        sampler = ScheduledSampler(
            routes.lock,
            candidate_backends(options),
            sampled_names(options),
            options.frequency,
            routes.kept,
            programs=programs,
        )
        continuous = ContinuousProfiler(
            collector,
            spool=_spool(options),
            sampler=sampler,
            every=options.every,
            duration=options.duration,
            jitter=options.jitter,
        )
        profiler = _profiling(continuous)
        outbox = Outbox(collector, _spool(options))
        latency.outboxes += [continuous.outbox, outbox]
    settings = TrackerSettings.parse({"threshold": options.latency_threshold})
    names = tuple(dict.fromkeys(options.latency))
    every = options.latency_every
    try:
        with (
            LatencySchedule(
                names, settings, latency.monitors, outbox, programs, every=every, backend=backend
            ),
            profiler,
        ):
            yield
    finally:
        if outbox:  # the last profiles are in the spool
            outbox.end(_LAST_SENDING_SECONDS)


@contextmanager
def _profiling(profiler: ContinuousProfiler) -> Iterator[None]:
    """Run the profiler; at the end, wait until what it has recorded so far is sent."""
    profiler.start()
    try:
        yield
    finally:
        profiler.stop(_LAST_PROFILE_SECONDS)


def _spool(options: argparse.Namespace) -> Spool:
    return DiskSpool(make_folder(options.spool)) if options.spool else NoSpool()
