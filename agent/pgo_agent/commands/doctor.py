"""`pgo-agent doctor`: what works on this machine, for whoever asks, and the fix for what doesn't."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pgo_agent.backends.backend import Backend, Wanted
from pgo_agent.backends.choice import backends, probe
from pgo_agent.commands.arguments import add_executables, sampled_names
from pgo_agent.errors import AgentError, NoSamples, NotInstalled
from pgo_agent.native.symbols import demangled
from pgo_agent.native.tool import run_tool

_FAILED = 2
_OF_SERVE = ("starlette", "uvicorn")


class Finding(NamedTuple):
    """Whether a part works; `detail` is what there is of it, or why it doesn't and what to do about it."""

    part: str
    works: bool
    detail: str


def add_doctor(doctor: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    doctor.description = "Try everything that profiling native programs needs, and say how to fix what fails."
    add_executables(doctor)
    doctor.add_argument("--json", action="store_true", help="print the result as JSON")
    doctor.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    names = Wanted(sampled_names(options), 1).names
    profilers = {name: partial(_by, backend) for name, backend in backends().items()}
    checks: dict[str, Callable[[], str]] = {
        **profilers,
        "symbols": _symbols,
        "processes": partial(_processes, names),
        "serve": _serve,
    }
    findings = [*_watched(checks)]
    working = {finding.part for finding in findings if finding.works}
    able = bool(working & profilers.keys()) and "symbols" in working
    if options.json:
        print(json.dumps({"works": able, "findings": [of._asdict() for of in findings]}, indent=2))
    else:
        for finding in findings:
            print(f"{finding.part:<9} {'works' if finding.works else 'FAILS'}  {finding.detail}")
        print(f"user {os.geteuid()} {'can' if able else 'CANNOT'} take profiles here")
    return 0 if able else _FAILED


def _watched(checks: Mapping[str, Callable[[], str]]) -> Iterator[Finding]:
    """What each check found, with a progress bar where a person is watching."""
    from tqdm import tqdm  # noqa: PLC0415 - other commands wait for it in vain

    for part, check in tqdm(checks.items(), unit="check", leave=False, disable=None):
        try:
            yield Finding(part, works=True, detail=check())
        except AgentError as error:
            yield Finding(part, works=False, detail=str(error))


def _by(backend: Backend) -> str:
    probe(backend)
    return "gives samples, with stacks"


def _symbols() -> str:
    version = next((line for line in run_tool("llvm-symbolizer", "--version") if "version" in line), "")
    demangled(())
    return f"llvm-symbolizer and llvm-cxxfilt, {version.strip()}"


def _processes(names: tuple[str, ...]) -> str:
    """How many of each name run; that none does may be as it is to be, but then there is no profile."""
    running = Counter(filter(names.__contains__, _process_names()))
    if not running:
        raise NoSamples(names)
    return ", ".join(f"{name}: {running[name]}" for name in names)


def _process_names() -> Iterator[str]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                yield (folder / "comm").read_text(errors="surrogateescape").rstrip("\n")
            except OSError:  # it has just ended
                continue


def _serve() -> str:
    for module in _OF_SERVE:
        if find_spec(module) is None:
            raise NotInstalled(module, "serve")
    return "pgo-agent serve is installed"
