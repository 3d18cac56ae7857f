"""Trace queries: which traces a request asks for, of those that its key may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from starlette.requests import Request

from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.auth import check_scope, context_of
from pgo_collector.http.parameters import one_of, whole_number
from pgo_collector.http.routing import first_values
from pgo_collector.http.selections import fleet_service_of, times_of
from pgo_collector.traces.trace_store import LATEST, Order, TraceQuery


def visible_services(request: Request) -> Sequence[str]:
    """Return the services, or patterns of them, whose traces the key of a request is for."""
    return context_of(request).caller.scope.patterns


def trace_query_of(request: Request) -> TraceQuery:
    """Return which traced requests a request asks for, of the services of its key.

    Raises ParameterInvalid and KeyOutOfScope.
    """
    services = visible_services(request)
    if named := first_values(request).get("service"):
        check_scope(request, named)
        context_of(request).service = named
        services = (fleet_service_of(request),)
    begin, end = times_of(request)
    if begin is not None and end is not None and begin >= end:
        raise ParameterInvalid("to: give a later time than in from")
    return TraceQuery(
        services,
        errors=one_of(request, "errors") == "true",
        order=cast("Order", one_of(request, "order")),
        since=max(begin or 0, 0),
        until=LATEST if end is None else end,
        limit=whole_number(request, "limit"),
    )
