"""Statements in traces: each SQL statement that works for a traced request is a step, with its text.

The text has placeholders where values go. Values aren't recorded.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from pgo_collector.traces.spans import place

_LONGEST_TEXT = 1000


def trace_statements(engine: sa.Engine) -> None:
    """Record the statements of an engine, and the commits of its transactions, where a request is traced."""
    event.listen(engine, "before_cursor_execute", _note_start)
    event.listen(engine, "after_cursor_execute", _add)


def _note_start(connection: sa.Connection, *_: Any) -> None:
    if place() is not None:
        connection.info["started"] = time.monotonic_ns()


def _add(connection: sa.Connection, _cursor: Any, statement: str, *_: Any) -> None:
    there, started = place(), connection.info.pop("started", None)
    if there is not None and started is not None:
        verb, text = _named(statement)
        there.add("catalog", verb, started, None, **{"db.query.text": text})


@lru_cache(64)
def _named(statement: str) -> tuple[str, str]:
    """Return the verb of a statement, and its text on one line."""
    words = statement.split()
    return words[0], " ".join(words)[:_LONGEST_TEXT]
