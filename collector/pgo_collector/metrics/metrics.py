"""The seam: what the collector tells of itself, and the metrics of one that nobody scrapes."""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol

from fastapi import FastAPI
from starlette.types import ASGIApp

from pgo_collector.metrics.gauges import Gauges


class Metrics(Protocol):
    """Counts and times. Nothing but `exposition` blocks."""

    def around(self, layers: ASGIApp, app: FastAPI) -> ASGIApp:
        """The layers of an application, the outermost of which counts its requests."""

    def task(self, name: str, seconds: float) -> None:
        """The engine has ended a task, so long after it was asked to."""

    def delivery(self, outcome: str, count: int) -> None:
        """So many events had an outcome."""

    def refused(self, reason: str) -> None:
        """A connection was refused or closed, or a request on one, before any route had it."""

    def count_connections(self, connections: Sized) -> None:
        """From now on a scrape counts these."""

    def watch(self, gauges: Gauges) -> None:
        """From now on a scrape reads these, too."""

    def exposition(self) -> bytes:
        """All of it, in Prometheus's text format 0.0.4. Blocks."""


class NoMetrics:
    """Metrics that are off."""

    def around(self, layers: ASGIApp, app: FastAPI) -> ASGIApp:  # noqa: ARG002 - see Metrics
        """The layers as they are."""
        return layers

    def task(self, name: str, seconds: float) -> None:
        """Nothing."""

    def delivery(self, outcome: str, count: int) -> None:
        """Nothing."""

    def refused(self, reason: str) -> None:
        """Nothing."""

    def count_connections(self, connections: Sized) -> None:
        """Nothing."""

    def watch(self, gauges: Gauges) -> None:
        """Nothing."""

    def exposition(self) -> bytes:
        """Nothing."""
        return b""


OFF = NoMetrics()
