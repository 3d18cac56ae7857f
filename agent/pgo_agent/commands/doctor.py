"""Run `pgo-agent doctor`: check what works on this machine for the current user, with a fix for the rest."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pgo_agent.backends import Backend, SamplingRequest, backends, lacking, probe
from pgo_agent.commands.arguments import add_executables, sampled_names
from pgo_agent.errors import AgentError, NoSamples, NotInstalled
from pgo_agent.latency import TRACKERS, Tracker
from pgo_agent.latency import probe as probe_tracker
from pgo_agent.native import demangle, run_tool

_FAILED = 2
_AT_A_TIME = 4  # checks wait for the kernel and for samples more than they compute
_PROFILERS = (*backends(),)
_PARTS = (*_PROFILERS, "symbols", "processes", "serve", *TRACKERS)
_SERVE_MODULES = ("starlette", "uvicorn")


class Finding(NamedTuple):
    """The result of a check: if `works`, `detail` describes the part; if not, the reason and the fix."""

    part: str
    works: bool
    detail: str


def add_doctor(doctor: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    doctor.description = (
        "Check all that profiles and latency trackers need, and print a fix for what is missing."
    )
    doctor.add_argument(
        "parts",
        metavar="PART",
        nargs="*",
        default=[],
        type=_part,
        help=f"check only these parts: {', '.join(_PARTS)} (default: all)",
    )
    add_executables(doctor)
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.set_defaults(run=_doctor)


def _part(name: str) -> str:
    """Check the name of a part, for argparse. Raises ArgumentTypeError."""
    if name not in _PARTS:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(_PARTS)}")
    return name


def _doctor(options: argparse.Namespace) -> int:
    names = SamplingRequest(sampled_names(options), 1).names
    checks: dict[str, Callable[[], str]] = {
        **{name: partial(_profiler, backend) for name, backend in backends().items()},
        "symbols": _symbols,
        "processes": partial(_processes, names),
        "serve": _serve_extra,
        **{name: partial(_tracker, tracker) for name, tracker in TRACKERS.items()},
    }
    wanted = {part: check for part, check in checks.items() if part in (options.parts or _PARTS)}
    findings = [*_run_checks(wanted)]
    working = {finding.part for finding in findings if finding.works}
    if options.parts:
        able = working == wanted.keys()
    else:
        able = bool(working.intersection(_PROFILERS)) and "symbols" in working
    if options.json:
        print(json.dumps({"works": able, "findings": [finding._asdict() for finding in findings]}, indent=2))
        return 0 if able else _FAILED
    for finding in findings:
        print(f"{finding.part:<9} {'works' if finding.works else 'FAILS'}  {finding.detail}")
    if not options.parts:
        print(f"user {os.geteuid()} {'can' if able else 'CANNOT'} take profiles here")
    return 0 if able else _FAILED


def _run_checks(checks: Mapping[str, Callable[[], str]]) -> Iterator[Finding]:
    """Run the checks, some at a time; yield their findings in order, with a progress bar on a terminal."""
    from tqdm import tqdm  # noqa: PLC0415 - other commands don't need it

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        running = pool.map(_find, checks, checks.values())
        yield from tqdm(running, total=len(checks), unit="check", leave=False, disable=None)


def _find(part: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(part, works=True, detail=check())
    except AgentError as error:
        return Finding(part, works=False, detail=str(error))


def _profiler(backend: Backend) -> str:
    recording = probe(backend)
    stacks = f"stacks {recording.followed}" if recording.followed else "stacks"
    python = f"; {recording.python}" if recording.python else ""
    return f"gives samples, with {stacks}{python}{_limits()}"


def _tracker(tracker: Tracker) -> str:
    backend = probe_tracker(tracker)
    command, stacks = f"pgo-agent latency {tracker.name}", f"stacks {backend.how_followed()}"
    return f"{command}, by {backend.name}: {tracker.measures}; {stacks}{_limits()}"


def _limits() -> str:
    """Return what the rights of this user don't show of other users' processes; the probe's is its own."""
    if not lacking("CAP_SYS_PTRACE"):
        return ""
    return "; other users' programs without their functions, since the capability CAP_SYS_PTRACE is missing"


def _symbols() -> str:
    version = next((line for line in run_tool("llvm-symbolizer", "--version") if "version" in line), "")
    demangle(())
    return f"llvm-symbolizer and llvm-cxxfilt, {version.strip()}"


def _processes(names: tuple[str, ...]) -> str:
    """Return how many processes of each name run. Raises NoSamples if none does: no profile is possible."""
    running = Counter(filter(names.__contains__, _process_names()))
    if not running:
        raise NoSamples(names)
    return ", ".join(f"{name}: {running[name]}" for name in names)


def _process_names() -> Iterator[str]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                yield (folder / "comm").read_text(errors="surrogateescape").rstrip("\n")
            except OSError:  # the process has just ended
                continue


def _serve_extra() -> str:
    for module in _SERVE_MODULES:
        if find_spec(module) is None:
            raise NotInstalled(module, "serve")
    return "pgo-agent serve is installed"
