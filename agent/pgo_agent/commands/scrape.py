"""`pgo-agent scrape`: profiles of what answers at /debug/pprof, to a collector."""

from __future__ import annotations

import argparse
import resource
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pgo_agent.collector import Collector
from pgo_agent.commands.arguments import key_in, label
from pgo_agent.scrape.shard import Shard
from pgo_agent.scrape.target import TYPES, Wanted

_POD_LABELS = {"namespace": "namespace", "version": "label:app.kubernetes.io/version"}
# What waits in the spool is tried again anyway.
_ATTEMPTS, _WITHIN = 3, 60.0


def add_scrape(scrape: argparse.ArgumentParser) -> None:
    """Describes the command."""
    scrape.description = (
        "Pull profiles from programs that serve /debug/pprof, round after round, and send them to"
        " a collector."
    )
    add = scrape.add_argument
    add("--url", required=True, help="the collector's URL, such as http://host:8080")
    add("--key-file", type=Path, required=True, help="a file whose first line is the submit key")
    add(
        "--label",
        metavar="NAME=VALUE",
        type=label,
        action="append",
        default=[],
        help="a label to add to every profile; may be repeated",
    )
    add(
        "--targets",
        metavar="FILE",
        type=Path,
        help="a TOML file with a [[target]] table for each program to scrape",
    )
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
        help=(
            "a label for the profiles of a pod, from its namespace, pod, node, label:KEY or"
            " annotation:KEY; may be repeated (default: namespace=namespace,"
            " version=label:app.kubernetes.io/version)"
        ),
    )
    add(
        "--types",
        type=_types,
        default=("cpu",),
        help=f"the types to pull, comma-separated: {','.join(TYPES)} (default: cpu)",
    )
    add("--seconds", type=_positive, default=30, help="the length of a profile, in seconds (default: 30)")
    add(
        "--every",
        type=_positive,
        default=600,
        help="the time from one scrape of a target to the next, in seconds (default: 600)",
    )
    add("--once", action="store_true", help="scrape all targets once, now, and exit")
    add(
        "--shard",
        metavar="INDEX/COUNT",
        type=_shard,
        default=Shard(0, 1),
        help="scrape only this part of the targets; the first is 0/COUNT (default: 0/1)",
    )
    add(
        "--concurrency",
        type=_positive,
        default=400,
        help="the largest number of targets to scrape at once (default: 400)",
    )
    add(
        "--max-megabytes",
        type=_positive,
        default=8,
        help=(
            "the largest profile, gzipped and inflated, in MiB, like the collector's"
            " PGOF_MAX_COMPRESSED_BYTES and PGOF_MAX_INFLATED_BYTES (default: 8)"
        ),
    )
    add(
        "--spool",
        metavar="FOLDER",
        type=Path,
        help="a folder in which profiles wait for the collector; they survive a restart",
    )
    add(
        "--spool-megabytes",
        type=_positive,
        default=1024,
        help="the largest total size of waiting profiles, in MiB (default: 1024)",
    )
    add(
        "--json",
        action="store_true",
        help="print a line of JSON for each round; with --once, also the failures of each target",
    )
    scrape.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """The exit status: see `once` and `follow`. Raises AgentError, OSError or ValueError before all else."""
    # For what these import, the other commands need not wait.
    import asyncio  # noqa: PLC0415

    from pgo_agent.scrape.dispatch import Dispatch  # noqa: PLC0415
    from pgo_agent.scrape.run import follow, once, sources  # noqa: PLC0415

    if options.targets is None and not options.kubernetes:
        raise ValueError("nothing to scrape: --targets or --kubernetes says what")
    if options.seconds >= options.every:
        raise ValueError("--seconds must be less than --every")
    wanted = Wanted(options.types, options.seconds)
    scraped = sources(options, wanted, dict(options.pod_label or _POD_LABELS))
    _allow_connections()
    with ExitStack() as stack:
        folder = options.spool or stack.enter_context(tempfile.TemporaryDirectory(prefix="pgo-agent-"))
        collector = stack.enter_context(
            Collector(options.url, key_in(options.key_file), attempts=_ATTEMPTS, within=_WITHIN)
        )
        dispatch = stack.enter_context(Dispatch(collector, folder, max_bytes=options.spool_megabytes << 20))
        return asyncio.run((once if options.once else follow)(options, scraped, dispatch))


def _allow_connections() -> None:
    """As many as the system lets this process have: shells and old services often give it 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _types(text: str) -> tuple[str, ...]:
    types = tuple(dict.fromkeys(text.split(",")))
    if unknown := [type_ for type_ in types if type_ not in TYPES]:
        raise argparse.ArgumentTypeError(f"no such type: {unknown[0]!r}")
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
