"""Texts: a trace for a terminal, and in the forms that other tools read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Span, Value
from pgo_collector.traces.trees import tree_of

_SERVICE = "pgo-collector"
# The numbers of opentelemetry-proto, trace.proto.
_INTERNAL, _SERVER, _OK, _ERROR = 1, 2, 0, 2


def text_of(requests: Sequence[RequestTrace]) -> str:
    """Return a table of a trace's steps: start, duration and self time in ms, and the tree of names."""
    steps = tree_of(requests)
    start = min((step.span.start for step in steps), default=0)
    lines = [f"{'start':>10} {'ms':>10} {'self':>10}  step"]
    for step in steps:
        span = step.span
        times = f"{_ms(span.start - start)} {_ms(step.nanos)} {_ms(step.self_nanos)}"
        lines.append(f"{times}  {'  ' * step.depth}{printable(span.name)}{_details(span)}")
    if dropped := sum(request.dropped for request in requests):
        lines.append(f"{dropped} further steps weren't recorded")
    return "\n".join(lines) + "\n"


def json_of(requests: Sequence[RequestTrace]) -> str:
    """Return a trace as OTLP/JSON, which OpenTelemetry's tools read: ids in hex, times in ns as texts."""
    return json.dumps(otlp_of(requests), indent=1, ensure_ascii=True) + "\n"


def otlp_of(requests: Iterable[RequestTrace]) -> dict[str, Any]:
    """Return traces as an ExportTraceServiceRequest of OTLP/JSON."""
    spans = [_otlp_span(request.trace, span) for request in requests for span in request.spans]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": _SERVICE}}]}
    scope_spans = [{"scope": {"name": "pgo_collector"}, "spans": spans}]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}


def chrome_of(requests: Sequence[RequestTrace]) -> str:
    """Return a trace in Chrome's trace event format, which Perfetto and speedscope read.

    Steps that overlap without one holding the other stand in rows of their own. Times are in whole µs since
    1970: readers add durations to starts in floating point, in which fractions of a µs would have a step end
    after the one that holds it.
    """
    events, rows = [], list[list[int]]()
    for step in tree_of(requests):
        span = step.span
        start, end = span.start // 1000, span.end // 1000
        events.append(
            {
                "name": printable(span.name),
                "cat": printable(span.part),
                "ph": "X",
                "ts": start,
                "dur": end - start,
                "pid": 1,
                "tid": _row(rows, span),
                "args": {**span.attributes, **({"error": span.error} if span.error else {})},
            }
        )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def dot_of(requests: Sequence[RequestTrace]) -> str:
    """Return a trace as a graph for Graphviz's `dot`."""
    lines = ["digraph trace {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    for number, step in enumerate(tree_of(requests)):
        label = f"{printable(step.span.name)}\n{step.nanos / 1e6:.3f} ms, self {step.self_nanos / 1e6:.3f} ms"
        lines.append(f"  s{number} [label={quoted(label)}];")
        if step.parent >= 0:
            lines.append(f"  s{step.parent} -> s{number};")
    return "\n".join([*lines, "}"]) + "\n"


def printable(text: str) -> str:
    """Return a text in which what isn't printable, such as a terminal's escapes, is written as an escape."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def quoted(text: str) -> str:
    """Return a text in quotes, as Graphviz reads it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _ms(nanos: int) -> str:
    return f"{nanos / 1e6:10.3f}"


def _details(span: Span) -> str:
    """Return what stands behind a name: the error, and the attributes."""
    details = [f"error={span.error}"] if span.error else []
    details += [f"{key}={value}" for key, value in span.attributes.items()]
    return f"  [{printable(', '.join(details))}]" if details else ""


def _otlp_span(trace: str, span: Span) -> dict[str, Any]:
    is_server = "http.route" in span.attributes
    written: dict[str, Any] = {
        "traceId": trace,
        "spanId": span.id,
        "parentSpanId": span.parent,
        "name": span.name,
        "kind": _SERVER if is_server else _INTERNAL,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": [
            _attribute(key, value) for key, value in {"pgo.part": span.part, **span.attributes}.items()
        ],
        "status": {"code": _ERROR, "message": span.error} if span.error else {"code": _OK},
    }
    return written


def _attribute(key: str, value: Value) -> dict[str, Any]:
    match value:
        case bool():
            typed: dict[str, Any] = {"boolValue": value}
        case int():
            typed = {"intValue": str(value)}
        case float():
            typed = {"doubleValue": value}
        case _:
            typed = {"stringValue": value}
    return {"key": key, "value": typed}


def _row(rows: list[list[int]], span: Span) -> int:
    """Return the first row in which a span can stand: below a span that holds it, or after all others.

    `rows` has the ends of the spans that are open in each row.
    """
    for number, ends in enumerate(rows):
        while ends and ends[-1] <= span.start:
            ends.pop()
        if not ends or span.end <= ends[-1]:
            ends.append(span.end)
            return number
    rows.append([span.end])
    return len(rows) - 1
