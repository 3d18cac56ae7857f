"""Run benchmarks, and write docs/benchmarks.md: `python -m tests.bench.run [GROUP ...]`."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack, closing
from pathlib import Path

from tests.bench import corpus, machine, report
from tests.bench.measure import progress
from tests.bench.rig import Rig

# Each group is a module with a function `sections`, imported when it runs. Once one imports an HTTP client or
# the engine, this process is too large to measure the memory of small programs.
GROUPS = (
    "cold",
    "warm",
    "submit",
    "memory",
    "start",
    "http_submit",
    "push",
    "first",
    "http",
    "bulk",
    "several",
    "traces",
    "catalog",
    "pages",
    "compute",
    "latency",
    "client",
    "scrape",
    "hostile",
    "floods",
    "symbols",
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    described = argparse.ArgumentParser(prog="make bench ARGS=", description="Measure ours beside Go.")
    described.add_argument(
        "groups", metavar="GROUP", nargs="*", help=f"of {', '.join(GROUPS)} (default: all)"
    )
    described.add_argument(
        "--profiles",
        type=Path,
        default=corpus.DEFAULT,
        metavar="FOLDER",
        help="real profiles, *.gz, to merge",
    )
    described.add_argument(
        "--profefe", type=Path, metavar="PROGRAM", help="profefe, to be measured beside ours"
    )
    described.add_argument(
        "--report", type=Path, default=report.FILE, metavar="FILE", help="where to write (default: docs)"
    )
    described.add_argument(
        "--scale", type=int, default=1, metavar="N", help="divide all counts, to try the suite itself"
    )
    return described


def main() -> int:
    """Measure the groups and write the results of each. A failing group doesn't stop the others."""
    options = parser().parse_args()
    if unknown := set(options.groups) - set(GROUPS):
        parser().error(f"no such group: {', '.join(sorted(unknown))}")
    sources = corpus.find(options.profiles)
    profiles = corpus.describe(sources)
    failed = []
    began = time.monotonic()
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        rig = Rig(sources, Path(scratch), options.scale, options.profefe)
        if options.scale > 1:  # what starts cost isn't the question then
            _fork_collectors(stack)
        for name in GROUPS if not options.groups else filter(options.groups.__contains__, GROUPS):
            stamp = f"{machine.stamp()} Made of {profiles}."
            progress(f"group {name}: {stamp}")
            try:
                sections = importlib.import_module(f"tests.bench.{name}").sections(rig)
            except Exception:  # noqa: BLE001 - the other groups take minutes, and have nothing to do with it
                traceback.print_exc()
                failed.append(name)
            else:
                stamped = [section._replace(body=f"{section.body}\n\n{stamp}") for section in sections]
                report.write(options.report, stamped)
    progress(f"done in {(time.monotonic() - began) / 60:.0f} minutes; written: {options.report}")
    if failed:
        progress(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _fork_collectors(stack: ExitStack) -> None:
    """Start collectors as forks of one process, which ends with the stack."""
    # Imported here, since they make this process too large to measure the memory of small programs.
    from tests.server import Server  # noqa: PLC0415
    from tests.zygote import Zygote  # noqa: PLC0415

    Server.launcher = stack.enter_context(closing(Zygote()))


if __name__ == "__main__":
    sys.exit(main())
