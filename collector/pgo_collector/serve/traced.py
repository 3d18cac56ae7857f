"""Set up tracing as the settings ask for it, and describe each traced request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI
from starlette.types import Scope

from pgo_collector.errors import TracingUnavailable
from pgo_collector.http.auth import context_of
from pgo_collector.metrics.metering import OTHER, route_templates
from pgo_collector.settings import Settings
from pgo_collector.traces.gate import Description
from pgo_collector.traces.keys import TraceKeys
from pgo_collector.traces.outlets import Outlet, Write
from pgo_collector.traces.reports import ReportBounds
from pgo_collector.traces.signing import Verifier
from pgo_collector.traces.spans import Value
from pgo_collector.traces.trace_store import FILE, TraceStore
from pgo_collector.traces.tracing import NO_TRACING, Choice, Describe, SignedTracing, Tracing

_LONGEST_QUERY = 1000
# No service has a longer name; what a refused request names may be longer.
_LONGEST_SERVICE = 200


def open_tracing(settings: Settings, folder: Path, is_trusted: Callable[[int], bool]) -> Tracing:
    """Return the tracing that the settings ask for; `is_trusted` is as in `TraceStore`.

    Raises CannotStart, for keys that anyone knows, say.
    """
    if not settings.has_traces:
        return NO_TRACING
    keys = None if settings.trace_keys_file is None else TraceKeys(settings.trace_keys_file)
    outlets = []
    if settings.trace_megabytes:
        store = TraceStore(folder / FILE, settings.trace_days, settings.trace_megabytes, is_trusted)
        outlets.append(Outlet("store", store.write, settings.traces_waiting))
    if settings.trace_otlp_url is not None:
        write = _exporter(str(settings.trace_otlp_url))
        outlets.append(Outlet("otlp", write, settings.traces_waiting))
    reported = ReportBounds(settings.trace_steps, settings.trace_step_seconds, settings.trace_window)
    choice = Choice(settings.traced_parts, settings.trace_spans, reported, settings.trace_rate)
    verifier = Verifier(settings.trace_window, takes_osprofiler=settings.trace_osprofiler)
    return SignedTracing(choice, keys, verifier, outlets)


def _exporter(url: str) -> Write:
    """Return what sends traces to a URL. Raises TracingUnavailable."""
    try:
        from pgo_collector.traces.exporter import OtlpExporter  # noqa: PLC0415 - an extra's packages
    except ImportError as error:
        fix = "install pgo-collector[tracing], or unset it"
        raise TracingUnavailable(
            f"PGOF_TRACE_OTLP_URL needs packages that are missing ({error}): {fix}"
        ) from None
    return OtlpExporter(url).write


def describer(app: FastAPI, *, has_values: bool) -> Describe:
    """Return a function that says what a request of `app` was, with the values in its query or without."""
    templates = route_templates(app)

    def describe(scope: Scope) -> Description:
        route = templates.get(scope.get("endpoint")) or OTHER
        context = context_of(scope)
        attributes: dict[str, Value] = {"http.route": route}
        if context.body_bytes is not None:
            attributes["http.request.body.size"] = context.body_bytes
        if has_values:
            attributes["url.query"] = scope["query_string"][:_LONGEST_QUERY].decode("latin-1")
        service = context.service[:_LONGEST_SERVICE]
        return Description(f"{_method(scope)} {route}", service, attributes)

    return describe


def _method(scope: Scope) -> str:
    method = str(scope["method"])
    return method if method in {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"} else OTHER
