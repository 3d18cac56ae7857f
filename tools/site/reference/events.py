"""The pages of all events of the collector's and the agent's logs, from their meanings and the calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pgo_agent
import pgo_agent.logs
import pgo_collector
import pgo_collector.logs

from tools.site.reference.markdown import code, page, table

_INTRODUCTION = """\
Every event that `pgo-collector` logs, one JSON object on each line of standard error. Each line has `event`,
`level` and `timestamp` besides these fields. A `reason` says what the system or a library said.
[Operations](../operations.md#what-the-logs-say) explains the line of a request."""
_AGENT_INTRODUCTION = """\
Every event that the agent logs, with the standard library's `logging`, by loggers below `pgo_agent`. The
message is the event with its fields, such as `profile dropped: reason="413: too large"`. A `reason` says what
the collector, the system or a library said. In
[your own program](../agent.md#a-python-program-that-profiles-itself), records have the attributes `event` and
`fields`, too."""


class LogCall(NamedTuple):
    """A call that logs an event: its key and level, the names of its fields, and the module."""

    event: str
    level: str
    fields: tuple[str, ...]
    module: str


def events_page() -> str:
    """Return the page of the collector's events, with a table for each room."""
    sections = _sections(Path(pgo_collector.__file__).parent, pgo_collector.logs.EVENTS)
    return page("Log events", _INTRODUCTION, *sections)


def agent_events_page() -> str:
    """Return the page of the agent's events, with a table for each room."""
    sections = _sections(Path(pgo_agent.__file__).parent, pgo_agent.logs.EVENTS)
    return page("Log events of the agent", _AGENT_INTRODUCTION, *sections)


def _sections(package: Path, meanings: Mapping[str, str]) -> Iterator[str]:
    calls = sorted(log_calls(package), key=lambda call: (_room(call), call.event))
    for room, found in groupby(calls, _room):
        yield f"## {room}\n\n{_table(found, meanings)}"


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


def _table(calls: Iterator[LogCall], meanings: Mapping[str, str]) -> str:
    rows = (
        [
            code(call.event),
            call.level,
            ", ".join(map(code, call.fields)),
            meanings.get(call.event, ""),
            code(call.module),
        ]
        for call in calls
    )
    return table(["event", "level", "fields", "meaning", "logged in"], rows)
