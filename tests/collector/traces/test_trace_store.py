"""The file of traces in this process: how large it becomes, and what is told of one that can't be read."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from math import inf
from pathlib import Path
from secrets import token_bytes

import pytest
from pgo_collector.errors import TracesUnreadable
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Span
from pgo_collector.traces.trace_store import FILE, TraceQuery, TraceReader, TraceStore

pytestmark = pytest.mark.any_store

EVERY = TraceQuery(since=0, until=1 << 62, limit=1000)


def trace(number: int) -> RequestTrace:
    """Return the trace of a request, of some 1 KB when packed; later ones have higher numbers."""
    start = time.time_ns() + number
    span = Span("1" * 16, "", "http", "GET /", start, start + 1, {"text": token_bytes(1000).hex()})
    return RequestTrace(f"{number:032x}", "shop", 200, [span])


def test_the_oldest_go_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    file = tmp_path / FILE
    for last in (150, 300):  # the second time it begins with what is there
        with closing(TraceStore(file, inf, 100_000 / (1 << 20))) as store:
            for first in range(last - 150, last, 10):
                store.write([trace(number) for number in range(first, first + 10)])
        kept = [int(each.trace, 16) for each in TraceReader(file).summaries(EVERY)]
        assert kept == [*range(last - 1, last - 1 - len(kept), -1)]
        assert 30 < len(kept) <= 100


def test_one_that_is_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    with closing(TraceStore(tmp_path / FILE, inf, 100 / (1 << 20))) as store:
        store.write([trace(1)])
        store.write([])
    assert TraceReader(tmp_path / FILE).summaries(EVERY) == []


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / FILE
    reader = TraceReader(file)
    with pytest.raises(TracesUnreadable, match="there are no traces yet"):
        reader.summaries(EVERY)
    with closing(TraceStore(file, inf, inf)) as store:
        store.write([trace(1)])
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE requests SET body = ?", (b"damaged",))
        connection.commit()
    assert len(reader.summaries(EVERY)) == 1
    with pytest.raises(TracesUnreadable, match=f"trace {1:032x} is damaged"):
        [*reader.traces(EVERY)]
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("ALTER TABLE requests RENAME TO others")
    with pytest.raises(TracesUnreadable, match="no such table"):
        reader.summaries(EVERY)
    file.unlink()
    file.mkdir()
    with pytest.raises(TracesUnreadable, match=re.escape(str(file))):
        reader.summaries(EVERY)
