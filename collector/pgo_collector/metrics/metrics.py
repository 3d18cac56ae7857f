"""Metrics: what is counted and timed, declared once each, and the interface that the collector reports to.

    ECHOES = declared(Count("echoes", "Echoes answered."))
    metrics.count(ECHOES)
    metrics.observe(TASKS, seconds, "merge_blobs")

A metric is declared at the top of the module that reports to it, or here if that is about more than metrics
of one room. Values that are read at each scrape are in `gauges`.
"""

from __future__ import annotations

from collections.abc import Container, Sized
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from starlette.applications import Starlette
from starlette.types import ASGIApp

from pgo_collector.connections.connection_pool import REFUSALS

if TYPE_CHECKING:
    from pgo_collector.metrics.gauges import Gauges

# Of what is scraped: Prometheus's text format.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TASK_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Count(NamedTuple):
    """A number that only rises: its name without `pgo_collector_` and `_total`, its help text and its labels.

    The `known` values of the one label are 0 from the start, so that the first count is an increase.
    """

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    known: tuple[tuple[str, ...], ...] = ()


class Duration(NamedTuple):
    """A histogram of seconds, with the upper bounds of its buckets."""

    name: str
    meaning: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]


class Moment(NamedTuple):
    """The time of the last event, in s since 1970."""

    name: str
    meaning: str
    labels: tuple[str, ...]


M = TypeVar("M", Count, Duration, Moment)
# All metrics, in the order of their declarations.
METRICS: list[Count | Duration | Moment] = []


def declared(metric: M) -> M:
    """Add a metric to METRICS, which a server has from its start; return it."""
    METRICS.append(metric)
    return metric


REQUESTS = declared(Count("requests", "Finished requests.", ("route", "method", "status")))
REQUEST_SECONDS = declared(
    Duration(
        "request_seconds",
        "Time from the head of a request to the end of its answer, in seconds.",
        ("route", "method"),
        _REQUEST_SECONDS,
    )
)
RECEIVED = declared(Count("received_bytes", "Bytes of request bodies received.", ("route",)))
SENT = declared(Count("sent_bytes", "Bytes of response bodies sent.", ("route",)))
SUBMITS = declared(
    Count(
        "submits",
        "Submits, by outcome: stored, duplicate, or refused for a reason.",
        ("outcome", "reason"),
        known=(("stored", ""), ("duplicate", "")),
    )
)
KEY_USED = declared(
    Moment(
        "key_used_timestamp_seconds",
        "When a key was last used, by the key's name, or its fingerprint if it has none.",
        ("key",),
    )
)
TASKS = declared(
    Duration(
        "task_seconds",
        "Time from the request for a worker's task to its end, in seconds, with the wait for a worker.",
        ("task",),
        _TASK_SECONDS,
    )
)
DELIVERIES = declared(
    Count(
        "deliveries",
        "Attempts to deliver an event, and dropped events, by outcome.",
        ("outcome",),
        known=(("delivered",), ("failed",), ("gone",), ("too_old",), ("too_many",)),
    )
)
BUILDS_ASKED = declared(
    Count(
        "debuginfod_builds",
        "Build ids that debuginfod servers were asked for, by outcome: found; missing on all servers;"
        " unusable, since what a server has gives no names; or failed, to be asked for again.",
        ("outcome",),
        known=(("found",), ("missing",), ("unusable",), ("failed",)),
    )
)
REFUSED = declared(
    Count(
        "connections_refused",
        "Connections refused or closed, and requests refused before they reached a route, by reason.",
        ("reason",),
        known=tuple((reason,) for reason in REFUSALS),
    )
)


class Metrics(Protocol):
    """Counts and times. Only `exposition` blocks."""

    def count(self, metric: Count, *labels: str, amount: float = 1) -> None:
        """Add to a count, with a value for each of its labels."""

    def observe(self, metric: Duration, seconds: float, *labels: str) -> None:
        """Add a duration, with a value for each of its labels."""

    def around(self, layers: ASGIApp, app: Starlette, submits: Container[str]) -> ASGIApp:
        """Return the middleware of an application with one more around it that measures its requests.

        `submits` has the templates of the routes that store profiles.
        """

    def register_connections(self, connections: Sized) -> None:
        """Read the number of open connections on each scrape from now on."""

    def register_gauges(self, gauges: Gauges) -> None:
        """Read these gauges on each scrape from now on."""

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus's text format 0.0.4. Blocks."""


class NoMetrics:
    """The null implementation, for a collector without metrics."""

    def count(self, metric: Count, *labels: str, amount: float = 1) -> None:
        """Do nothing."""

    def observe(self, metric: Duration, seconds: float, *labels: str) -> None:
        """Do nothing."""

    def around(self, layers: ASGIApp, app: Starlette, submits: Container[str]) -> ASGIApp:  # noqa: ARG002 - see Metrics
        """Return the middleware as it is."""
        return layers

    def register_connections(self, connections: Sized) -> None:
        """Do nothing."""

    def register_gauges(self, gauges: Gauges) -> None:
        """Do nothing."""

    def exposition(self) -> bytes:
        """Return no metrics."""
        return b""


OFF = NoMetrics()
