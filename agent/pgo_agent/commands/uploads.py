"""Run `pgo-agent binary` and `pgo-agent symbols`: send a collector what it needs for better builds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pgo_agent.collector import Collector
from pgo_agent.commands.arguments import BINARY_SECONDS, add_collector, read_key
from pgo_agent.errors import NotReadable
from pgo_agent.native import Elf, Symbols


def add_binary(binary: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    binary.description = (
        "Send a collector the programs that are profiled, in C, C++ or Rust: with them, merges in the format"
        " llvm are better. The collector knows a program by its build id."
    )
    binary.add_argument(
        "binaries",
        metavar="BINARY",
        type=Path,
        nargs="+",
        help="a program, as it was built: not stripped, and with a build id",
    )
    add_collector(binary)
    binary.add_argument("--service", help="the service that the programs are")
    binary.add_argument("--json", action="store_true", help="print what was sent as JSON")
    binary.set_defaults(run=_binary)


def _binary(options: argparse.Namespace) -> int:
    key = read_key(options.key_file)
    build_ids = {str(file): _build_id(file) for file in options.binaries}
    with Collector(options.url, key, service=options.service, timeout=BINARY_SECONDS) as collector:
        for file in options.binaries:
            collector.submit_binary(file)
    if options.json:
        print(json.dumps([{"file": name, "build_id": id_} for name, id_ in build_ids.items()], indent=2))
    return 0


def _build_id(file: Path) -> str:
    """Return the build id of a program. Raises NotReadable if it has none."""
    build_id = Elf.read(file).build_id
    if not build_id:
        raise NotReadable(file, "it has no build id: link it with -Wl,--build-id")
    return build_id


def add_symbols(symbols: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    symbols.description = (
        "Read where each function of a Go program begins and on which line each call is, and send that to a"
        " collector: profiles by eBPF of this build, taken from then on, can be used by builds. Needs"
        " pgo-agent[symbols]."
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
        for part in range(symbols.parts):
            collector.submit_symbols(symbols.pprof(part))
    if options.json:
        print(json.dumps({"build_ids": symbols.build_ids, "functions": len(symbols.functions)}, indent=2))
    return 0
