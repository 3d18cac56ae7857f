"""The exporter: sends traces to an OpenTelemetry collector, Jaeger or Tempo, with OpenTelemetry's SDK.

Its packages are the extra `tracing`; the server imports them only if PGOF_TRACE_OTLP_URL is set.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Span

_SECONDS = 10.0
_SCOPE = InstrumentationScope("pgo_collector")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OtlpExporter:
    """Sends traces to a URL that takes OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces.

    Headers, as for a key, are taken from the variable OTEL_EXPORTER_OTLP_HEADERS.
    """

    def __init__(self, url: str) -> None:
        # It logs to standard error in a form of its own; the outlet logs what is dropped.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry").propagate = False
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=_SECONDS)
        self._resource = Resource(
            {"service.name": "pgo-collector", "service.version": version("pgo-collector")}
        )

    def write(self, traces: Sequence[RequestTrace]) -> None:
        """Send traces, within some seconds. Raises OSError if they weren't accepted."""
        spans = [self._span(trace, span) for trace in traces for span in trace.spans]
        if self._exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise OSError("the receiver (PGOF_TRACE_OTLP_URL) didn't accept them")

    def _span(self, trace: RequestTrace, span: Span) -> ReadableSpan:
        is_request = span is trace.spans[0] and not trace.is_report
        parent = _context(trace.trace, span.parent, is_remote=is_request) if span.parent else None
        return ReadableSpan(
            span.name,
            _context(trace.trace, span.id, is_remote=False),
            parent,
            self._resource,
            {
                "pgo.part": span.part,
                **({"pgo.service": trace.service} if is_request else {}),
                **span.attributes,
            },
            kind=SpanKind.SERVER if is_request else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start,
            end_time=span.end,
            instrumentation_scope=_SCOPE,
        )


def _context(trace: str, span: str, *, is_remote: bool) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote, _SAMPLED)
