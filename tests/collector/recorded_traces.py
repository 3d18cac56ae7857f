"""Recorded traces, put into a collector's trace store: a submit, and requests whose names are hostile."""

from __future__ import annotations

import time

from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Part, Span, Value
from pgo_collector.traces.trace_store import FILE, TraceStore

from tests.collector.hostile_names import HOSTILE
from tests.server import Server

SUBMIT = "5b" * 16
_US = 1000
# Part, name, the step above, start and end in µs, and attributes.
_STEPS: list[tuple[Part, str, int, int, int, dict[str, Value]]] = [
    ("http", "POST /v1/submit", 1, 610, 8820, {"http.response.status_code": 204}),
    ("proxy", "proxy", -1, 0, 9400, {}),
    ("http", "key check", 0, 980, 1001, {}),
    ("http", "body", 0, 1160, 1490, {"size": 13610}),
    ("workers", "validate", 0, 1510, 4260, {"bodies": 1}),
    ("engine", "read bodies", 4, 2080, 3960, {"bodies": 1}),
    ("store", "commit", 0, 4270, 7360, {"profiles": 1}),
    ("store", "write blob", 6, 4800, 5350, {"size": 13610}),
    ("catalog", "INSERT", 6, 6020, 6070, {"db.query.text": "INSERT INTO blobs VALUES (?, ?, ?)" * 9}),
    ("catalog", "COMMIT", 6, 6160, 7180, {}),
]


def put_traces(server: Server) -> None:
    """Put the traces into the store of a collector that doesn't trace."""
    start = time.time_ns() - 3600 * 10**9
    spans = [
        Span(_id(number), _id(above), part, name, start + begin * _US, start + end * _US, attributes)
        for number, (part, name, above, begin, end, attributes) in enumerate(_STEPS)
    ]
    traces = [RequestTrace(SUBMIT, "apisvc", 204, spans)]
    for at, name in enumerate(HOSTILE):
        begin = start - (at + 1) * 10**9
        root = Span(_id(0), "", name, name, begin, begin + 10**6, {name[:100]: name}, name)
        deep = [root._replace(id=_id(depth), parent=_id(depth - 1)) for depth in range(1, 40)]
        traces.append(RequestTrace(hostile_trace(at), name[:200], 500, [root, *deep], 7))
    store = TraceStore(server.data / FILE, 7, 64)
    store.write(traces)
    store.close()


def hostile_trace(at: int) -> str:
    """Return the id of the trace whose names are the hostile name with this index."""
    return f"{at + 1:032x}"


def _id(number: int) -> str:
    return "" if number < 0 else f"{number + 1:016x}"
