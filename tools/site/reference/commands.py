"""The page of all commands, with their arguments and options."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pgo_agent.cli
import pgo_collector.command.cli
import pprof_merge.command.parser

from tools.site.reference.markdown import code, page, table

# The scripts for pipelines belong to no package.
sys.path.append(str(Path(__file__).parents[3] / "deploy" / "pipeline"))
import pgo_fetch
import pgo_pull_request

_INTRODUCTION = """\
Every command, with its arguments and options. A command exits with 0 if it succeeds. If it fails, it
exits with 2 and prints the reason to standard error. [`pgo_fetch.py` and
`pgo_pull_request.py`](../pipelines.md) have exit codes of their own, for pipelines."""


def commands_page() -> str:
    """Return the page."""
    parsers = (
        pgo_collector.command.cli.build_parser(),
        pgo_agent.cli.parser(),
        pprof_merge.command.parser.parser(),
        pgo_fetch.parser(),
        pgo_pull_request.parser(),
    )
    sections = (_section(*found) for parser in parsers for found in commands(parser))
    return page("Commands", _INTRODUCTION, *sections)


def commands(
    parser: argparse.ArgumentParser, meaning: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield each command that runs something: its words, its parser, and its description."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001 - argparse lists them nowhere else
    if not nested:
        yield parser.prog, parser, parser.description or meaning
    for action in nested:
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001 - as above
        for name, child in action.choices.items():
            yield from commands(child, helps[name])


def _section(words: str, command: argparse.ArgumentParser, meaning: str) -> str:
    rows = [_row(action) for action in command._actions if action.dest != "help"]  # noqa: SLF001 - as above
    first = meaning.strip().partition("\n\n")[0]
    sentence = first[:1].upper() + first[1:].rstrip(".") + "."
    parts = [f"## {words}", sentence]
    if rows:
        parts.append(table(["argument", "default", "meaning"], rows))
    return "\n\n".join(parts)


def _row(action: argparse.Action) -> list[str]:
    value = action.metavar or (action.dest.upper() if action.nargs is None else "")
    if action.choices is not None:
        value = ""
    if not action.option_strings:
        names = code(action.metavar or action.dest)
    else:
        names = ", ".join(code(f"{option} {value}".rstrip()) for option in action.option_strings)
    expanded = (action.help or "") % vars(action) if action.help else ""
    stated = re.search(r" ?\(default: (.*?)\)", expanded)
    meaning = expanded.replace(stated[0], "") if stated else expanded
    if action.choices is not None:
        meaning += f": {', '.join(code(choice) for choice in action.choices)}"
    return [names, _default(action, stated[1] if stated else ""), meaning.strip()]


def _default(action: argparse.Action, stated: str) -> str:
    """Return "required", the default that the help states, or the value; empty if that says nothing."""
    if action.required:
        return "required"
    if stated:
        return stated if " " in stated else code(stated)
    return "" if action.default in (None, False, [], argparse.SUPPRESS) else code(action.default)
