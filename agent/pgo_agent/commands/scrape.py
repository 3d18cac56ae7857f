"""Run `pgo-agent scrape`: pull profiles from programs at /debug/pprof, and submit them."""

from __future__ import annotations

import argparse
import resource
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pgo_agent.collector import Collector
from pgo_agent.commands.arguments import add_collector, add_trace, label, read_key, trace_key
from pgo_agent.scrape import TYPES, Shard, TargetDefaults

_POD_LABELS = {"namespace": "namespace", "version": "label:app.kubernetes.io/version"}
# Few attempts: a profile that stays in the spool is sent again anyway.
_ATTEMPTS, _WITHIN = 3, 60.0


def add_scrape(scrape: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    scrape.description = (
        "Pull profiles from programs that answer at /debug/pprof, again and again, and submit them."
    )
    add = scrape.add_argument
    add_collector(scrape)
    add(
        "--label",
        metavar="NAME=VALUE",
        type=label,
        action="append",
        default=[],
        help="a label to put on all profiles; may be repeated",
    )
    add("--targets", metavar="FILE", type=Path, help="a TOML file with a [[target]] table for each target")
    add("--kubernetes", action="store_true", help="scrape the pods whose annotations ask for it")
    add(
        "--namespace",
        action="append",
        default=[],
        help="a namespace of pods; may be repeated (default: all namespaces)",
    )
    add("--selector", help="a label selector for pods, as kubectl takes it: app=shop,tier!=test")
    add(
        "--pod-label",
        metavar="NAME=SOURCE",
        type=label,
        action="append",
        help="a label of a pod's profiles; SOURCE is namespace, pod, node, label:KEY or annotation:KEY;"
        " may be repeated (default: namespace=namespace, version=label:app.kubernetes.io/version)",
    )
    _add_catalogs(scrape)
    add(
        "--types",
        type=_types,
        default=("cpu",),
        help=f"profile types, from {','.join(TYPES)} (default: cpu)",
    )
    add("--seconds", type=_positive, default=30, help="the length of a profile (default: 30)")
    add("--every", type=_positive, default=600, help="seconds between two scrapes of a target (default: 600)")
    add("--once", action="store_true", help="scrape all targets once, now, and exit")
    add(
        "--shard",
        metavar="INDEX/COUNT",
        type=_shard,
        default=Shard(0, 1),
        help="scrape only this shard of the targets, counted from 0 (default: 0/1)",
    )
    add("--concurrency", type=_positive, default=400, help="targets to scrape at once (default: 400)")
    add(
        "--max-megabytes",
        type=_positive,
        default=8,
        help="the largest profile, gzipped and inflated; no more than the collector's"
        " PGOF_MAX_COMPRESSED_BYTES and PGOF_MAX_INFLATED_BYTES (default: 8)",
    )
    add(
        "--spool",
        metavar="FOLDER",
        type=Path,
        help="a folder where profiles wait for the collector, kept across restarts",
    )
    add_trace(scrape)
    add("--spool-megabytes", type=_positive, default=1024, help="the size of the spool (default: 1024)")
    add(
        "--json",
        action="store_true",
        help="print the result of each round as a line of JSON; with --once, also each failure",
    )
    scrape.set_defaults(run=run)


def _add_catalogs(scrape: argparse.ArgumentParser) -> None:
    add = scrape.add_argument
    for name, title, port in (("nomad", "Nomad", 4646), ("consul", "Consul", 8500)):
        add(
            f"--{name}",
            metavar="URL",
            help=f"scrape the services of {title} whose tags ask for it; the URL of its API, such as"
            f" http://127.0.0.1:{port}",
        )
        add(f"--{name}-token-file", metavar="FILE", type=Path, help=f"a file with an ACL token for {title}")
        add(
            f"--{name}-ca-file",
            metavar="FILE",
            type=Path,
            help=f"the certificates to check {title}'s with, in place of the system's",
        )
    add("--nomad-namespace", metavar="NAME", default="*", help="a namespace of Nomad (default: all)")
    add(
        "--consul-datacenter",
        metavar="NAME",
        default="",
        help="a datacenter of Consul (default: that of the agent that answers)",
    )


def run(options: argparse.Namespace) -> int:
    """Scrape once or repeatedly, and return the exit status, as `scrape.run` documents.

    Raises AgentError, OSError or ValueError for wrong arguments, before anything is scraped.
    """
    # Imported here, so that the other commands start faster.
    import asyncio  # noqa: PLC0415

    from pgo_agent.scrape.run import follow, once, sources  # noqa: PLC0415
    from pgo_agent.scrape.submit_queue import SubmitQueue  # noqa: PLC0415

    if not options.kubernetes and (options.targets, options.nomad, options.consul) == (None, None, None):
        raise ValueError("nothing to scrape: give --targets FILE, --kubernetes, --nomad URL or --consul URL")
    if options.seconds >= options.every:
        raise ValueError("--seconds must be less than --every")
    defaults = TargetDefaults(options.types, options.seconds)
    scraped = sources(options, defaults, dict(options.pod_label or _POD_LABELS))
    _allow_connections()
    with ExitStack() as stack:
        folder = options.spool or stack.enter_context(tempfile.TemporaryDirectory(prefix="pgo-agent-"))
        collector = stack.enter_context(
            Collector(
                options.url,
                read_key(options.key_file),
                attempts=_ATTEMPTS,
                within=_WITHIN,
                trace_key=trace_key(options),
            )
        )
        queue = stack.enter_context(SubmitQueue(collector, folder, max_bytes=options.spool_megabytes << 20))
        return asyncio.run((once if options.once else follow)(options, scraped, queue))


def _allow_connections() -> None:
    """Raise the limit of open files to its hard limit: shells and old service managers often set 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _types(text: str) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(text.split(",")))
    if unknown := [type_ for type_ in types if type_ not in TYPES]:
        raise argparse.ArgumentTypeError(f"unknown type {unknown[0]!r}; use {', '.join(TYPES)}")
    return types


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"not a whole number above 0: {text!r}")
    return int(text)
