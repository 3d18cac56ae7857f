"""The interface to metrics, which the collector reports to, and its null implementation."""

from __future__ import annotations

from collections.abc import Container, Sized
from typing import Protocol

from fastapi import FastAPI
from starlette.types import ASGIApp

from pgo_collector.metrics.gauges import Gauges


class Metrics(Protocol):
    """Counts and times. Only `exposition` blocks."""

    def around(self, layers: ASGIApp, app: FastAPI, submits: Container[str]) -> ASGIApp:
        """Return the middleware of an application with one more around it that measures its requests.

        `submits` has the templates of the routes that store profiles.
        """

    def observe_task(self, name: str, seconds: float) -> None:
        """Record that a worker ended a task `seconds` after it was requested."""

    def count_deliveries(self, outcome: str, count: int) -> None:
        """Count events whose delivery had an outcome."""

    def count_refused(self, reason: str) -> None:
        """Count a connection that was refused or closed, or a request refused before it reached a route."""

    def register_connections(self, connections: Sized) -> None:
        """Read the number of open connections on each scrape from now on."""

    def register_gauges(self, gauges: Gauges) -> None:
        """Read these gauges on each scrape from now on."""

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus's text format 0.0.4. Blocks."""


class NoMetrics:
    """The null implementation, for a collector without metrics."""

    def around(self, layers: ASGIApp, app: FastAPI, submits: Container[str]) -> ASGIApp:  # noqa: ARG002 - see Metrics
        """Return the middleware as it is."""
        return layers

    def observe_task(self, name: str, seconds: float) -> None:
        """Do nothing."""

    def count_deliveries(self, outcome: str, count: int) -> None:
        """Do nothing."""

    def count_refused(self, reason: str) -> None:
        """Do nothing."""

    def register_connections(self, connections: Sized) -> None:
        """Do nothing."""

    def register_gauges(self, gauges: Gauges) -> None:
        """Do nothing."""

    def exposition(self) -> bytes:
        """Return no metrics."""
        return b""


OFF = NoMetrics()
