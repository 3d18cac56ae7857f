"""The page of all events of the collector's log, from the table of their meanings and the calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pgo_collector
from pgo_collector.logs import EVENTS

from tools.site.reference.markdown import code, page, table

_INTRODUCTION = """\
Every event that `pgo-collector` logs, one JSON object on each line of standard error. Each line has `event`,
`level` and `timestamp` besides these fields. A `reason` says what the system or a library said.
[Operations](../operations.md#what-the-logs-say) explains the line of a request."""


class LogCall(NamedTuple):
    """A call that logs an event: its key and level, the names of its fields, and the module."""

    event: str
    level: str
    fields: tuple[str, ...]
    module: str


def events_page() -> str:
    """Return the page, with a table for each room."""
    calls = sorted(log_calls(Path(pgo_collector.__file__).parent), key=lambda call: (_room(call), call.event))
    sections = (f"## {room}\n\n{_table(found)}" for room, found in groupby(calls, _room))
    return page("Log events", _INTRODUCTION, *sections)


def log_calls(package: Path) -> Iterator[LogCall]:
    """Yield the calls of a package's loggers, which are all named `_log`."""
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("_log"), attr=level), args=[event], keywords=keywords
                ):
                    fields = tuple(keyword.arg for keyword in keywords if keyword.arg)
                    module = str(file.relative_to(package))
                    yield LogCall(
                        str(ast.literal_eval(event)), level.replace("exception", "error"), fields, module
                    )


def _room(call: LogCall) -> str:
    return call.module.partition("/")[0].removesuffix(".py")


def _table(calls: Iterator[LogCall]) -> str:
    rows = (
        [
            code(call.event),
            call.level,
            ", ".join(map(code, call.fields)),
            EVENTS.get(call.event, ""),
            code(call.module),
        ]
        for call in calls
    )
    return table(["event", "level", "fields", "meaning", "logged in"], rows)
