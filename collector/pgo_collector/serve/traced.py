"""Set up tracing as the settings ask for it, and describe each traced request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
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

# No service has a longer name; what a refused request names may be longer.
_LONGEST_SERVICE = 200
# How long traces are kept, and how many may wait to be written.
_KEEP_DAYS, _MOST_WAITING = 7.0, 1000
# How far the time of a signature may be from now.
_WINDOW_SECONDS = 300.0
# The steps of a request that are recorded; those beyond are counted.
_MOST_SPANS = 1000
# What a client may report around its requests: one header has 100 steps at most.
_MOST_REPORTED_STEPS, _MOST_REPORTED_SECONDS = 64, 30 * 86_400.0


def open_tracing(settings: Settings, folder: Path, is_trusted: Callable[[int], bool]) -> Tracing:
    """Return the tracing that the settings ask for; `is_trusted` is as in `TraceStore`.

    Raises CannotStart, for keys that anyone knows, say.
    """
    if not settings.has_traces:
        return NO_TRACING
    keys = None if settings.trace_keys_file is None else TraceKeys(settings.trace_keys_file)
    outlets = []
    if settings.trace_megabytes:
        store = TraceStore(folder / FILE, _KEEP_DAYS, settings.trace_megabytes, is_trusted)
        outlets.append(Outlet("store", store.write, _MOST_WAITING))
    if settings.trace_otlp_url is not None:
        write = _exporter(settings.trace_otlp_url)
        outlets.append(Outlet("otlp", write, _MOST_WAITING))
    reported = ReportBounds(_MOST_REPORTED_STEPS, _MOST_REPORTED_SECONDS, _WINDOW_SECONDS)
    choice = Choice(_MOST_SPANS, reported, settings.trace_rate)
    return SignedTracing(choice, keys, Verifier(_WINDOW_SECONDS), outlets)


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


def describer(app: Starlette) -> Describe:
    """Return a function that says what a request of `app` was, without the values in its query."""
    templates = route_templates(app)

    def describe(scope: Scope) -> Description:
        route = templates.get(scope.get("endpoint")) or OTHER
        context = context_of(scope)
        attributes: dict[str, Value] = {"http.route": route}
        if context.body_bytes is not None:
            attributes["http.request.body.size"] = context.body_bytes
        service = context.service[:_LONGEST_SERVICE]
        return Description(f"{_method(scope)} {route}", service, attributes)

    return describe


def _method(scope: Scope) -> str:
    method = str(scope["method"])
    return method if method in {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"} else OTHER
