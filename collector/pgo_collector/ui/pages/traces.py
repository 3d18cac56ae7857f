"""/ui/traces: the traced requests about the services of the visitor's key, and one trace as a waterfall."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.auth import context_of
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.traces import trace_query_of, visible_services
from pgo_collector.model.ids import ANY_ID
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import SERVICE_PATTERN
from pgo_collector.model.times import format_time
from pgo_collector.queries.meanwhile import samples_meanwhile
from pgo_collector.traces.spans import PARTS
from pgo_collector.traces.texts import printable
from pgo_collector.traces.trees import Step, tree_of
from pgo_collector.ui.links import path_of, query_of, services_of, site_of
from pgo_collector.ui.pages.visitors import require_session
from pgo_collector.ui.sources import Sources

_CHOICES = ("service", "order", "errors", "from", "to", "last", "limit")
# A page shows the first steps, up to this number, and indents them up to this depth.
_MOST_STEPS = 1000
_DEEPEST = 16
_OTHER = "other"
# A trace is mostly of one service. It may be of a pattern, or of several as one name.
_MOST_SERVICES = 3
_SERVICE = re.compile(SERVICE_PATTERN)


@dataclass(frozen=True, slots=True)
class _Row:
    """A step in a waterfall: its bar begins at `left` and is `width` wide, in thousandths of the whole."""

    name: str
    error: str
    details: str
    part: str
    indent: int
    nanos: int
    self_nanos: int
    left: float
    width: float


def traces_pages(sources: Sources) -> Routes:
    """Return the routes with the pages."""
    routes = Routes(require_session(sources.sessions))

    @routes.get("/traces")
    async def listed(request: Request) -> Response:
        found = await sources.traces.summaries(query := trace_query_of(request))
        values = first_values(request)
        root = f"{site_of(request)}/traces"
        chosen = {name: text for name in _CHOICES if (text := values.get(name))}

        def link(**changes: str) -> str:
            return root + query_of({name: text for name, text in (chosen | changes).items() if text})

        return await sources.rendering.page(
            request,
            "traces.html",
            found=found,
            query=query,
            chosen=chosen,
            link=link,
            root=root,
            longest=max((each.nanos for each in found), default=0) or 1,
        )

    @routes.get("/traces/{trace}")
    async def one(request: Request, trace: str) -> Response:
        trace = trace.lower()
        requests = await sources.traces.requests(trace, visible_services(request))
        steps = await asyncio.to_thread(tree_of, requests)
        start = min(step.span.start for step in steps)
        whole = max(step.span.end for step in steps) - start
        rows = _rows(steps[:_MOST_STEPS], start, whole or 1)
        services = [*dict.fromkeys(of.service for of in requests if of.service)]
        scope = context_of(request).caller.scope
        named = (each for each in services if _SERVICE.fullmatch(each) and scope.includes(each))
        samples = await samples_meanwhile(
            sources.fleet, sources.inventory, islice(named, _MOST_SERVICES), trace, (start, start + whole)
        )
        return await sources.rendering.page(
            request,
            "trace.html",
            trace=trace,
            requests=requests,
            rows=rows,
            steps=len(steps),
            start=start,
            whole=whole,
            dropped=sum(of.dropped for of in requests),
            parts=[part for part in (*PARTS, _OTHER) if any(row.part == part for row in rows)],
            services=sorted(map(printable, services)),
            samples=None if samples is None else _link(services_of(request), samples),
            are_labelled=samples is not None and samples.ids != ANY_ID,
            has_error=any(of.has_error for of in requests),
            root=f"{site_of(request)}/traces",
        )

    return routes


def _link(services: str, samples: Selection) -> str:
    """Return a link to the flame graph of selected samples, of which there are some."""
    begin, end = (format_time(nanos or 0) for nanos in (samples.begin, samples.end))
    query = {"type": samples.type, "from": begin, "to": end}
    if samples.ids.requests.traces:
        query["trace_id"] = ",".join(samples.ids.requests.traces)
    return path_of(services, samples.service, "") + query_of(query)


def _rows(steps: Sequence[Step], start: int, whole: int) -> list[_Row]:
    return [
        _Row(
            name=printable(step.span.name),
            error=printable(step.span.error),
            details=printable(", ".join(f"{key}={value}" for key, value in step.span.attributes.items())),
            part=step.span.part if step.span.part in PARTS else _OTHER,
            indent=min(step.depth, _DEEPEST),
            nanos=step.nanos,
            self_nanos=step.self_nanos,
            left=1000 * (step.span.start - start) / whole,
            width=max(1000 * step.nanos / whole, 1),
        )
        for step in steps
    ]
