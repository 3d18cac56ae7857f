"""GET and HEAD /readyz: whether requests can be served, and how far workers have read what is stored."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from pgo_collector.http.openapi import METHODS, OPEN, success
from pgo_collector.merges.warming import Warming
from pgo_collector.store.readiness import Readiness


def ready_routes(readiness: Readiness, warming: Warming) -> APIRouter:
    """The route, which asks for no key."""
    router = APIRouter()

    @router.api_route(
        "/readyz",
        methods=METHODS,
        summary="Whether requests can be served, and how far workers have read what is stored",
        response_description="All that requests need is there",
        responses=success(HTTPStatus.SERVICE_UNAVAILABLE, "Something fails, which `fails` names"),
        openapi_extra=OPEN,
    )
    async def ready() -> Response:
        fails = await readiness.faults()
        rows = {"read": warming.read, "of": warming.total}
        return JSONResponse(
            {"ready": not fails, "fails": fails, "rows": rows},
            HTTPStatus.SERVICE_UNAVAILABLE if fails else HTTPStatus.OK,
            headers={"Cache-Control": "no-store"},
        )

    return router
