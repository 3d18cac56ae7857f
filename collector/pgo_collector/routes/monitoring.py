"""GET and HEAD /healthz, /readyz and /metrics: what load balancers, Kubernetes and Prometheus ask for."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pgo_collector.http.auth import allow_anyone, require_key
from pgo_collector.http.first_answers import ready_answer
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import NO_KEY_NEEDED, download, problems, success
from pgo_collector.http.routing import Routes
from pgo_collector.merges.warming import Warming
from pgo_collector.metrics.metrics import CONTENT_TYPE, Metrics
from pgo_collector.store.readiness import Readiness
from pgo_collector.workers.pool import Workers


def health_route() -> Route:
    """Return the route of /healthz, which answers every method, without a key."""
    return Route("/healthz", _Health())


class _Health:
    """An ASGI application, since Starlette restricts the methods of routes that are functions."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("OK")(scope, receive, send)


def ready_routes(readiness: Readiness, workers: Workers, warming: Warming) -> Routes:
    """Return the route of /readyz, which needs no key."""
    routes = Routes()

    @routes.get(
        "/readyz",
        summary="Say whether requests can be served, and how many stored profiles the workers have read",
        response_description="Requests can be served",
        responses=success(HTTPStatus.SERVICE_UNAVAILABLE, "Something fails; `fails` says what"),
        openapi_extra=NO_KEY_NEEDED,
    )
    async def ready(_: Request) -> Response:
        tasks = {"oldest_seconds": round(workers.oldest_task_seconds, 1), "waiting": workers.queued}
        faults = await readiness.faults()
        rows = {"read": warming.read, "of": warming.total, "behind": warming.behind}
        return ready_answer(faults, tasks=tasks, rows=rows)

    return routes


def metrics_routes(metrics: Metrics, keys: KeyFile, *, is_open: bool) -> Routes:
    """Return the route of /metrics, which needs one of the keys, or none if it is open."""
    routes = Routes()

    @routes.get(
        "/metrics",
        checks=[allow_anyone if is_open else require_key(keys)],
        summary="Return metrics for Prometheus",
        response_class=Response,
        responses=download("Text format 0.0.4", CONTENT_TYPE) | problems(403),
    )
    async def scrape(_: Request) -> Response:
        return Response(await asyncio.to_thread(metrics.exposition), media_type=CONTENT_TYPE)

    return routes
