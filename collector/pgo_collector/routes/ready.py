"""GET and HEAD /readyz: the collector serves, and how far its workers have read what is stored."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from pgo_collector.http.openapi import METHODS, OPEN
from pgo_collector.merges.warming import Warming


def ready_routes(warming: Warming) -> APIRouter:
    """The route, which asks for no key."""
    router = APIRouter()

    @router.api_route(
        "/readyz",
        methods=METHODS,
        summary="That it serves, and how far its workers have read what is stored",
        response_description="It serves",
        openapi_extra=OPEN,
    )
    async def ready() -> Response:
        rows = {"read": warming.read, "of": warming.total}
        return JSONResponse({"ready": True, "rows": rows}, headers={"Cache-Control": "no-store"})

    return router
