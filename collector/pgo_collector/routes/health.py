"""GET and HEAD /readyz: whether requests can be served, what the workers do, and how far they have read."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pgo_collector.http.openapi import METHODS, OPEN, success
from pgo_collector.merges.warming import Warming
from pgo_collector.store.readiness import Readiness
from pgo_collector.workers.pool import Workers


def ready_routes(readiness: Readiness, workers: Workers, warming: Warming) -> APIRouter:
    """Return the route, which asks for no key."""
    router = APIRouter()

    @router.api_route(
        "/readyz",
        methods=METHODS,
        summary="Say whether requests can be served, and how many stored profiles the workers have read",
        response_description="Requests can be served",
        responses=success(HTTPStatus.SERVICE_UNAVAILABLE, "Something fails; `fails` says what"),
        openapi_extra=OPEN,
    )
    async def ready() -> Response:
        tasks = {"oldest_seconds": round(workers.oldest_task_seconds, 1), "waiting": workers.queued}
        fails = await readiness.faults()
        rows = {"read": warming.read, "of": warming.total}
        return ready_answer(fails, tasks=tasks, rows=rows)

    return router


def ready_answer(fails: Mapping[str, str], **details: object) -> Response:
    """Return 200, or 503 where something fails, and what; with details."""
    return JSONResponse(
        {"ready": not fails, "fails": fails, **details},
        HTTPStatus.SERVICE_UNAVAILABLE if fails else HTTPStatus.OK,
        headers={"Cache-Control": "no-store"},
    )


class _Health:
    """An ASGI application and not a function, since the router gives functions a fixed set of methods."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("OK")(scope, receive, send)


def health_route() -> Route:
    """Answers any method, without a key."""
    return Route("/healthz", _Health())
