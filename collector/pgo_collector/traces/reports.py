"""Reports: what a client did around its traced requests, which it tells when it has ended.

The server sees neither the way back nor what an agent did before it sent. So the client sends one more
request, `POST /v1/traces/{trace}/steps`, signed with the same key, whose header PGO-Trace-Steps has

    <agent or fetch>=<µs since 1970>:<µs>,<step>=<span id>:<µs after that>:<µs>,…

The first is the root of the trace: when it began by the client's clock, and how long it took. Its span id is
that of the `traceparent`. Each try has the span id that its request was signed with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pgo_collector.errors import ReportInvalid
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.signing import Answered, Origin
from pgo_collector.traces.spans import Span

# The roots that clients report. A trace in the store whose root has such a name is no request.
CLIENTS = ("agent", "fetch")
_ROOT = re.compile(rf"({'|'.join(CLIENTS)})=([0-9]{{1,16}}):([0-9]{{1,16}})")
_STEP = re.compile(r"(sample|scrape|spool|send|ask|wait)=([0-9a-f]{16}):([0-9]{1,16}):([0-9]{1,16})")
_LONGEST_STEP = 80  # bytes


class ReportBounds(NamedTuple):
    """Bounds of a report: the number of steps, seconds of each, and seconds between its clock and ours."""

    steps: int
    seconds: float
    clock_seconds: float


class Report(NamedTuple):
    """The steps of a client, in ns since 1970 by its clock; the first is the root."""

    trace: str
    spans: list[Span]

    @classmethod
    def of(cls, origin: Origin, told: bytes, bounds: ReportBounds) -> Report:
        """Return the report in a header. Raises ReportInvalid."""
        if len(told) > _LONGEST_STEP * (bounds.steps + 1):
            raise ReportInvalid(f"there are more than {bounds.steps} steps")
        first, *steps = told.decode("latin-1").split(",")
        if len(steps) > bounds.steps:
            raise ReportInvalid(f"there are more than {bounds.steps} steps")
        root = _ROOT.fullmatch(first)
        if root is None:
            raise ReportInvalid("PGO-Trace-Steps begins with agent=<µs since 1970>:<µs>, or with fetch=")
        start, end = int(root[2]) * 1000, (int(root[2]) + int(root[3])) * 1000
        spans = [Span(origin.parent, "", "agent", root[1], start, end, {})]
        for text in steps:
            step = _STEP.fullmatch(text)
            if step is None:
                raise ReportInvalid("a step is <name>=<span id>:<µs after the first>:<µs>")
            begin = start + int(step[3]) * 1000
            spans.append(
                Span(step[2], origin.parent, "agent", step[1], begin, begin + int(step[4]) * 1000, {})
            )
        if any(span.end > end for span in spans):
            raise ReportInvalid("a step ends after the whole")
        if end - start > bounds.seconds * 1e9:
            raise ReportInvalid(f"it took more than {bounds.seconds:g} s")
        return cls(origin.trace, spans)

    def by_our_clock(self, requests: Mapping[str, Answered], bounds: ReportBounds) -> RequestTrace:
        """Return the report as a trace, moved as little as it takes for each try to hold its request.

        `requests` are those that were traced, by span; there is at least one. Raises ReportInvalid if the
        client's clock is too far from ours.
        """
        move = _move((span, requests[span.id]) for span in self.spans if span.id in requests)
        if abs(move) > bounds.clock_seconds * 1e9:
            raise ReportInvalid(f"its clock is {abs(move) / 1e9:.0f} s from ours")
        moved = [span._replace(start=span.start + move, end=span.end + move) for span in self.spans]
        *_, last = requests.values()
        return RequestTrace(self.trace, last.service, 0, moved)


def _move(tries: Iterable[tuple[Span, Answered]]) -> int:
    """Return the shortest move after which each span holds its request, or begins no later than it."""
    pairs = [*tries]
    most = min(request.start - span.start for span, request in pairs)
    least = max(request.end - span.end for span, request in pairs)
    return min(max(least, 0), most)
