"""The implementation of metrics with Prometheus's client library."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sized
from importlib.metadata import version

from fastapi import FastAPI
from pprof_merge import ENGINE
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from starlette.types import ASGIApp

from pgo_collector.connections.connection_pool import REFUSALS
from pgo_collector.http.context import NO_KEY
from pgo_collector.metrics.gauges import Gauges
from pgo_collector.metrics.metering import EndedRequest, Metering

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX = "pgo_collector"
_REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TASK_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class PrometheusMetrics:
    """Metrics in memory. There is one server process, so its own values are all there are."""

    def __init__(self) -> None:
        # Without this, the library adds a second series with a time of creation for each metric.
        disable_created_metrics()  # type: ignore[no-untyped-call] # its own fault
        self._registry = registry = CollectorRegistry()
        self._submit_routes: Container[str] = ()
        ProcessCollector(registry=registry)
        Info(
            _PREFIX, "The collector's version, and whether its merge engine is compiled.", registry=registry
        ).info({"version": version("pgo-collector"), "engine": ENGINE})
        self._requests = Counter(
            f"{_PREFIX}_requests",
            "Finished requests.",
            ("route", "method", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            f"{_PREFIX}_request_seconds",
            "Time from the head of a request to the end of its answer, in seconds.",
            ("route", "method"),
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self._received = Counter(
            f"{_PREFIX}_received_bytes", "Bytes of request bodies received.", ("route",), registry=registry
        )
        self._sent = Counter(
            f"{_PREFIX}_sent_bytes", "Bytes of response bodies sent.", ("route",), registry=registry
        )
        self._submits = Counter(
            f"{_PREFIX}_submits",
            "Submits, by outcome: stored, duplicate, or refused for a reason.",
            ("outcome", "reason"),
            registry=registry,
        )
        for outcome in ("stored", "duplicate"):  # 0 from the start, so that the first is an increase
            self._submits.labels(outcome, "")
        self._key_used = Gauge(
            f"{_PREFIX}_key_used_timestamp_seconds",
            "When a key was last used, by the key's name, or its fingerprint if it has none.",
            ("key",),
            registry=registry,
        )
        self._tasks = Histogram(
            f"{_PREFIX}_task_seconds",
            "Time from the request for a worker's task to its end, in seconds, with the wait for a worker.",
            ("task",),
            buckets=_TASK_SECONDS,
            registry=registry,
        )

        self._deliveries = Counter(
            f"{_PREFIX}_deliveries",
            "Attempts to deliver an event, and dropped events, by outcome.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("delivered", "failed", "gone", "too_old", "too_many"):  # as above
            self._deliveries.labels(outcome)

        self._refused = Counter(
            f"{_PREFIX}_connections_refused",
            "Connections refused or closed, and requests refused before they reached a route, by reason.",
            ("reason",),
            registry=registry,
        )
        for reason in REFUSALS:  # as above
            self._refused.labels(reason)
        self._connections = Gauge(f"{_PREFIX}_connections", "Open connections.", registry=registry)

    def around(self, layers: ASGIApp, app: FastAPI, submits: Container[str]) -> ASGIApp:
        """Return the application inside a layer that measures each request."""
        self._submit_routes = submits
        return Metering(layers, app, self._record)

    def observe_task(self, name: str, seconds: float) -> None:
        """Add the time that a task of a worker took, in seconds."""
        self._tasks.labels(name).observe(seconds)

    def count_deliveries(self, outcome: str, count: int) -> None:
        """Add to the count of attempts to deliver events, by outcome."""
        self._deliveries.labels(outcome).inc(count)

    def count_refused(self, reason: str) -> None:
        """Add one to the count of refused requests or connections, by reason."""
        self._refused.labels(reason).inc()

    def register_connections(self, connections: Sized) -> None:
        """Serve the number of open connections as a gauge."""
        self._connections.set_function(lambda: len(connections))

    def register_gauges(self, gauges: Gauges) -> None:
        """Serve gauges that are read on each scrape."""
        self._registry.register(gauges)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def _record(self, ended: EndedRequest) -> None:
        route, context = ended.route, ended.context
        self._requests.labels(route, ended.method, ended.status).inc()
        self._seconds.labels(route, ended.method).observe(ended.seconds)
        self._received.labels(route).inc(ended.received)
        self._sent.labels(route).inc(ended.sent)
        if (key := context.key) is not None and key is not NO_KEY:
            self._key_used.labels(key.name or key.fingerprint).set_to_current_time()
        if ended.method == "POST" and route in self._submit_routes:
            self._count_submits(context.submits, context.problem)

    def _count_submits(self, outcomes: Iterable[str], problem: str | None) -> None:
        for outcome in outcomes:
            self._submits.labels(outcome, "").inc()
        if problem is not None:
            self._submits.labels("refused", problem).inc()
