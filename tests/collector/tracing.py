"""A collector that traces, and what it keeps of requests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pgo_collector.errors import TracesUnreadable
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.signing import new_origin, sign
from pgo_collector.traces.spans import Span
from pgo_collector.traces.trace_store import FILE, TraceReader
from pgo_collector.traces.trees import union_nanos

from tests.constants import WARMING_PAUSE
from tests.server import Server

KEY, OLD_KEY = "a-trace-key-of-some-length", "another-trace-key-of-some-length"
_PATIENCE_SECONDS = 120.0


def tracing(home: Path, environment: Mapping[str, str] | None = None) -> Server:
    """Return a collector that takes signatures with KEY; it isn't running."""
    home.mkdir(parents=True, exist_ok=True)
    keys = home / "trace_keys"
    keys.write_text(f"{KEY}\n")
    # Nothing is read ahead, so that the spans of merges have all steps.
    settings = {"PGOF_TRACE_KEYS_FILE": str(keys), "PGOF_METRICS_OPEN": "true", WARMING_PAUSE: "3600"}
    return Server(home, settings | dict(environment or {}))


def signed(key: str = KEY, seconds: float | None = None) -> tuple[str, dict[str, str]]:
    """Return a new trace's id, and headers that have a request be part of it."""
    origin = new_origin()
    return origin.trace, sign(key.encode(), *origin, int(time.time() if seconds is None else seconds))


def kept(server: Server, trace: str) -> RequestTrace:
    """Wait until the collector has kept the one request of a trace, and return it without a report."""
    reader = TraceReader(server.data / FILE)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with suppress(TracesUnreadable):  # the first one makes the file
            for request in reader.requests(trace):
                if not request.is_report:
                    return request
        assert time.monotonic() < deadline, f"trace {trace} isn't kept"
        time.sleep(0.01)


def requests_of(server: Server, trace: str, count: int) -> list[RequestTrace]:
    """Wait until `count` requests and reports of a trace are kept, and return them."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with suppress(TracesUnreadable):  # the first one makes the file
            if len(found := [*TraceReader(server.data / FILE).requests(trace)]) >= count:
                return found
        assert time.monotonic() < deadline, f"{count} requests of trace {trace} aren't kept"
        time.sleep(0.05)


def counted(server: Server, name: str, **labels: str) -> float:
    """Return the value of a metric of the collector's."""
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    for line in server.client.get("/metrics").text.splitlines():
        if line.startswith(f"pgo_collector_{name}{{{wanted}}} "):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"no metric {name} {labels}")


def wait_until_counted(server: Server, name: str, least: float, **labels: str) -> None:
    """Wait until a metric of the collector's has reached a value."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while counted(server, name, **labels) < least:
        assert time.monotonic() < deadline, f"{name} {labels} stays below {least}"
        time.sleep(0.05)


def check_times(spans: Sequence[Span]) -> None:
    """Check that every span lies within its parent, and is no shorter than the union of its children."""
    known = {span.id: span for span in spans}
    for span in spans:
        parent = known.get(span.parent)
        assert span.start <= span.end
        if parent is not None:
            assert parent.start <= span.start, (parent, span)
            assert span.end <= parent.end, (parent, span)
        below = [child for child in spans if child.parent == span.id]
        assert union_nanos(span, below) <= span.end - span.start
