"""The waterfall: one trace as a page of HTML that loads nothing and runs nothing."""

from __future__ import annotations

import html
from collections.abc import Sequence

from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import PARTS
from pgo_collector.traces.texts import printable
from pgo_collector.traces.trees import Step, tree_of

_LONGEST_NAME = 240
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 1.5rem; color: #1b1f2a; background: #fcfcfa }
table { border-collapse: collapse; width: 100% } th, td { padding: 2px 8px; text-align: left }
th { border-bottom: 1px solid #aaa } tr:hover td { background: #eef3f8 }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.bar { width: 45% } svg { display: block; width: 100%; height: 14px } .faint { color: #555b66 }
.error { color: #a40000 } rect { fill: #2f6fb3 } rect.store, rect.catalog { fill: #b3722f }
rect.engine { fill: #3f8f4f } rect.proxy, rect.agent { fill: #8a8f99 }
@media (prefers-color-scheme: dark) {
  body { color: #e4e6ea; background: #16181d } tr:hover td { background: #23272f } .faint { color: #9aa0ab }
  .error { color: #ff8a80 }
}
"""


def page_of(trace: str, requests: Sequence[RequestTrace]) -> str:
    """Return the page of a trace. Names are escaped, and cut to 240 letters."""
    title = html.escape(f"Trace {trace}")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{table_of(requests)}</body>\n</html>\n"
    )


def table_of(requests: Sequence[RequestTrace]) -> str:
    """Return the waterfall as a table of HTML: each step with its time, its self time and its bar."""
    steps = tree_of(requests)
    start = min((step.span.start for step in steps), default=0)
    whole = max((step.span.end for step in steps), default=1) - start or 1
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Step", "ms", "self ms", "When"))
    rows = "\n".join(_row(step, start, whole) for step in steps)
    dropped = sum(request.dropped for request in requests)
    note = f"<p>{dropped} further steps weren't recorded (PGOF_TRACE_SPANS).</p>\n" if dropped else ""
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n{note}"


def _row(step: Step, start: int, whole: int) -> str:
    span = step.span
    details = ", ".join(f"{key}={value}" for key, value in span.attributes.items())
    error = f' <span class="error">{_escaped(span.error)}</span>' if span.error else ""
    part = span.part if span.part in PARTS else "other"
    left, width = 1000 * (span.start - start) / whole, max(1000 * step.nanos / whole, 1)
    return (
        f'<tr><td style="padding-left:{8 + 14 * min(step.depth, 40)}px">{_escaped(span.name)}{error}'
        f' <span class="faint">{_escaped(details)}</span></td>'
        f'<td class="n">{step.nanos / 1e6:.3f}</td><td class="n">{step.self_nanos / 1e6:.3f}</td>'
        f'<td class="bar"><svg viewBox="0 0 1000 14" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{part}" x="{left:.1f}" y="2" width="{width:.1f}" height="10"/></svg></td></tr>'
    )


def _escaped(text: str) -> str:
    shown = printable(text)
    return html.escape(shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}…")
