"""Run `pgo-agent symbols`: send a collector the functions of a Go program, for profiles by eBPF."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pgo_agent.collector import Collector
from pgo_agent.commands.arguments import add_collector, read_key
from pgo_agent.native.go_symbols import Symbols


def add_symbols(symbols: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    symbols.description = (
        "Read where each function of a Go program begins, and send it to a collector: profiles by eBPF of"
        " this build, taken from then on, can be used by builds. Needs pgo-agent[symbols]."
    )
    symbols.add_argument(
        "binary", metavar="BINARY", type=Path, help="the program, as it was built: not stripped"
    )
    add_collector(symbols)
    symbols.add_argument("--service", help="the service that the program is")
    symbols.add_argument("--json", action="store_true", help="print what was sent as JSON")
    symbols.set_defaults(run=_symbols)


def _symbols(options: argparse.Namespace) -> int:
    key = read_key(options.key_file)
    symbols = Symbols.read(options.binary)
    with Collector(options.url, key, service=options.service) as collector:
        collector.submit_symbols(symbols.pprof())
    if options.json:
        print(json.dumps({"build_ids": symbols.build_ids, "functions": len(symbols.functions)}, indent=2))
    return 0
