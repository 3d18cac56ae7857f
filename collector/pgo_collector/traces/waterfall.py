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
_OTHER = "other"
# A color for each part, which is seen on white and on black.
_COLORS = {
    "agent": "#b0559f",
    "http": "#2f6fb3",
    "proxy": "#8a8f99",
    "workers": "#5f9bd6",
    "engine": "#3f8f4f",
    "store": "#b3722f",
    "catalog": "#d69a4a",
    "hooks": "#7a68c8",
    "upkeep": "#2a9d97",
    _OTHER: "#a39a3c",
}
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 1.5rem; color: #1b1f2a; background: #fcfcfa }
h1, td:first-child { overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% } th, td { padding: 2px 8px; text-align: left }
th { border-bottom: 1px solid #aaa } tr:hover td { background: #eef3f8 }
td:first-child { padding-left: calc(8px + 14px * var(--depth)) }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.bar { width: 45% } td svg { display: block; width: 100%; height: 14px } .faint { color: #555b66 }
.error { color: #a40000 }
ul { display: flex; flex-wrap: wrap; gap: 4px 16px; padding: 0; list-style: none }
li svg { width: 12px; height: 12px; margin-right: 5px; vertical-align: -1px }
@media (max-width: 640px) {
  body { margin: 1rem } h1 { font-size: 1.2rem } thead { display: none }
  tr { display: grid; grid-template-columns: auto auto 1fr; padding: 5px 0; border-bottom: 1px solid #aaa6 }
  td { padding: 0 } td:first-child, td.bar { grid-column: 1 / -1; width: auto }
  td:first-child { padding-left: calc(6px * min(var(--depth), 16)) }
  td.n { padding-right: 14px } td.n::after { content: " ms" } td.n + td.n::after { content: " ms itself" }
}
@media (prefers-color-scheme: dark) {
  body { color: #e4e6ea; background: #16181d } tr:hover td { background: #23272f } .faint { color: #9aa0ab }
  .error { color: #ff8a80 }
}
""" + "".join(f".{part} {{ fill: {color} }}\n" for part, color in _COLORS.items())


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
    """Return the waterfall as HTML: a legend, and a table of each step, its time, its self time and bar."""
    steps = tree_of(requests)
    start = min((step.span.start for step in steps), default=0)
    whole = max((step.span.end for step in steps), default=1) - start or 1
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Step", "ms", "self ms", "When"))
    rows = "\n".join(_row(step, start, whole) for step in steps)
    dropped = sum(request.dropped for request in requests)
    note = f"<p>{dropped} further steps weren't recorded.</p>\n" if dropped else ""
    found = {_part(step) for step in steps}
    legend = "".join(
        f'<li><svg aria-hidden="true"><rect class="{part}" width="12" height="12"/></svg>{part}</li>'
        for part in _COLORS
        if part in found
    )
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n"
    return f'<main>\n<ul aria-label="Parts">{legend}</ul>\n{table}{note}</main>\n'


def _part(step: Step) -> str:
    return step.span.part if step.span.part in PARTS else _OTHER


def _row(step: Step, start: int, whole: int) -> str:
    span = step.span
    details = ", ".join(f"{key}={value}" for key, value in span.attributes.items())
    error = f' <span class="error">{_escaped(span.error)}</span>' if span.error else ""
    left, width = 1000 * (span.start - start) / whole, max(1000 * step.nanos / whole, 1)
    return (
        f'<tr><td style="--depth:{min(step.depth, 40)}">{_escaped(span.name)}{error}'
        f' <span class="faint">{_escaped(details)}</span></td>'
        f'<td class="n">{step.nanos / 1e6:.3f}</td><td class="n">{step.self_nanos / 1e6:.3f}</td>'
        f'<td class="bar"><svg viewBox="0 0 1000 14" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{_part(step)}" x="{left:.1f}" y="2" width="{width:.1f}" height="10"/></svg></td></tr>'
    )


def _escaped(text: str) -> str:
    shown = printable(text)
    return html.escape(shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}…")
