"""The implementation of metrics with Prometheus's client library."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sized
from importlib.metadata import version

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
from starlette.applications import Starlette
from starlette.types import ASGIApp

from pgo_collector.http.auth import NO_KEY
from pgo_collector.metrics.gauges import Gauges
from pgo_collector.metrics.metering import EndedRequest, Metering
from pgo_collector.metrics.metrics import (
    KEY_USED,
    METRICS,
    RECEIVED,
    REQUEST_SECONDS,
    REQUESTS,
    SENT,
    SUBMITS,
    Count,
    Duration,
)

_PREFIX = "pgo_collector"


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
        self._counts: dict[str, Counter] = {}
        self._durations: dict[str, Histogram] = {}
        self._moments: dict[str, Gauge] = {}
        for metric in METRICS:
            name, meaning, labels = f"{_PREFIX}_{metric.name}", metric.meaning, metric.labels
            if isinstance(metric, Count):
                counter = self._counts[metric.name] = Counter(name, meaning, labels, registry=registry)
                for values in metric.known:
                    counter.labels(*values)
            elif isinstance(metric, Duration):
                self._durations[metric.name] = Histogram(
                    name, meaning, labels, buckets=metric.buckets, registry=registry
                )
            else:
                self._moments[metric.name] = Gauge(name, meaning, labels, registry=registry)
        self._connections = Gauge(f"{_PREFIX}_connections", "Open connections.", registry=registry)

    def count(self, metric: Count, *labels: str, amount: float = 1) -> None:
        """Add to a count."""
        counter = self._counts[metric.name]
        (counter.labels(*labels) if labels else counter).inc(amount)

    def observe(self, metric: Duration, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        self._durations[metric.name].labels(*labels).observe(seconds)

    def around(self, layers: ASGIApp, app: Starlette, submits: Container[str]) -> ASGIApp:
        """Return the application inside a layer that measures each request."""
        self._submit_routes = submits
        return Metering(layers, app, self._record)

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
        self.count(REQUESTS, route, ended.method, str(ended.status))
        self.observe(REQUEST_SECONDS, ended.seconds, route, ended.method)
        self.count(RECEIVED, route, amount=ended.received)
        self.count(SENT, route, amount=ended.sent)
        if (key := context.key) is not None and key is not NO_KEY:
            self._moments[KEY_USED.name].labels(key.name or key.fingerprint).set_to_current_time()
        if ended.method == "POST" and route in self._submit_routes:
            self._count_submits(context.submits, context.problem)

    def _count_submits(self, outcomes: Iterable[str], problem: str | None) -> None:
        for outcome in outcomes:
            self.count(SUBMITS, outcome, "")
        if problem is not None:
            self.count(SUBMITS, "refused", problem)
