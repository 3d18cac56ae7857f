"""Kept traces: those of the trace store that a key may see, within a budget."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pprof_merge import Budget

from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.errors import NoSuchTrace, TracesFail, TracesUnreadable
from pgo_collector.model.times import format_time
from pgo_collector.queries import answers
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.trace_store import FILE, TraceQuery, TraceReader, TraceSummary

_TRACE = re.compile(r"[0-9a-f]{32}")
# What a step takes in memory, and in the longest of the forms.
_STEP_BYTES = 2000


class KeptTraces:
    """Reads the traces in a data folder, for routes and pages."""

    def __init__(self, folder: Path, budget: Budget) -> None:
        self._path = folder / FILE
        self._budget = budget

    async def summaries(self, query: TraceQuery) -> list[TraceSummary]:
        """Return the requests that a query asks for. Raises TracesFail."""
        return await asyncio.to_thread(self._summaries, query)

    async def requests(self, trace: str, services: Sequence[str]) -> list[RequestTrace]:
        """Return the requests of a trace that are about these services, which may be patterns.

        Raises NoSuchTrace if there are none, AnswerTooLarge and TracesFail.
        """
        return await asyncio.to_thread(self._requests, trace, services)

    def _summaries(self, query: TraceQuery) -> list[TraceSummary]:
        if not self._path.exists():
            return []
        with _readable():
            return TraceReader(self._path).summaries(query)

    def _requests(self, trace: str, services: Sequence[str]) -> list[RequestTrace]:
        found: list[RequestTrace] = []
        steps = 0
        if _TRACE.fullmatch(trace) and self._path.exists():
            with _readable(), refuse_too_large("the trace: "):
                for request in TraceReader(self._path).requests(trace, services):
                    found.append(request)
                    steps += len(request.spans)
                    self._budget.check_rows(steps, _STEP_BYTES, "read it with `pgo-collector trace show`")
        if not found:
            raise NoSuchTrace("no trace with this id is kept for the services of this key")
        return found


@contextmanager
def _readable() -> Iterator[None]:
    """Refuse the request if the trace store can't be read."""
    try:
        yield
    except TracesUnreadable as error:
        raise TracesFail(
            "the trace store can't be read; on the server, `pgo-collector trace list` says why"
        ) from error


def traces_of(summaries: Sequence[TraceSummary]) -> answers.Traces:
    """Return the answer with a list of traced requests."""
    return answers.Traces(
        traces=[
            answers.Trace(
                trace=found.trace,
                name=found.name,
                service=found.service,
                time=format_time(found.start),
                duration_nanos=found.nanos,
                status=found.status,
                error=found.has_error,
                steps=found.spans,
            )
            for found in summaries
        ]
    )
