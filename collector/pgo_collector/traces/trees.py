"""Trees: the spans of a trace in the order in which they are read, with the time that each took itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Span


class Step(NamedTuple):
    """A span in a tree: `parent` is the index of the step above it, -1 for a root.

    `self_nanos` is its duration less the union of its children: the time in which only it was at work.
    """

    span: Span
    parent: int
    depth: int
    self_nanos: int

    @property
    def nanos(self) -> int:
        """How long it took, in ns."""
        return self.span.end - self.span.start


def tree_of(requests: Iterable[RequestTrace]) -> list[Step]:
    """Return the steps of a trace: a step before those below it, and siblings by their start.

    A span whose parent isn't there is a root, such as that of a request whose client didn't report. Spans
    with one id, which requests share, are one step. Spans that are each other's parents, which no code of
    ours makes, are roots. A proxy's clock is coarse: its step is cut to the one above it.
    """
    spans: dict[str, Span] = {}
    for request in requests:
        for span in request.spans:
            spans.setdefault(span.id, span)
    for span in [span for span in spans.values() if span.part == "proxy"]:
        if (above := spans.get(span.parent)) is not None:
            begin = min(max(span.start, above.start), span.end)
            spans[span.id] = span._replace(start=begin, end=max(min(span.end, above.end), begin))
    below: dict[str, list[Span]] = {}
    for span in spans.values():
        below.setdefault(span.parent if span.parent in spans else "", []).append(span)
    for siblings in below.values():
        siblings.sort(key=lambda span: (span.start, span.end), reverse=True)
    steps: list[Step] = []
    seen: set[str] = set()
    for start in ([*reversed(below.get("", ()))], [*spans.values()]):
        for root in start:
            _walk(root, below, steps, seen)
    return steps


def _walk(root: Span, below: dict[str, list[Span]], steps: list[Step], seen: set[str]) -> None:
    waiting = [(root, -1, 0)]
    while waiting:
        span, parent, depth = waiting.pop()
        if span.id in seen:
            continue
        seen.add(span.id)
        children = below.get(span.id, ())
        steps.append(Step(span, parent, depth, span.end - span.start - union_nanos(span, children)))
        waiting += ((child, len(steps) - 1, depth + 1) for child in children)


def union_nanos(span: Span, children: Iterable[Span]) -> int:
    """Return for how many ns of a span at least one of its children was at work."""
    total, reached = 0, span.start
    for start, end in sorted((max(child.start, span.start), min(child.end, span.end)) for child in children):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


def paths_of(steps: Sequence[Step]) -> list[tuple[str, ...]]:
    """Return the names of the spans from the root to each step."""
    paths: list[tuple[str, ...]] = []
    for step in steps:
        above = paths[step.parent] if step.parent >= 0 else ()
        paths.append((*above, step.span.name))
    return paths
