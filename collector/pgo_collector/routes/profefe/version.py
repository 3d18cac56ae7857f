"""GET and HEAD /api/0/version: which collector this is."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from starlette.responses import Response

from pgo_collector.http.profefe import Envelope

# A distribution's version says all of the rest, which profefe tells apart.
_DETAILS = {"version": version("pgo-collector"), "commit": "", "build_time": "", "go_version": ""}


def version_routes() -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.api_route(
        "/version",
        methods=["GET", "HEAD"],
        summary="Return the version of the collector",
        response_description="The version",
    )
    async def details() -> Response:
        return Envelope(_DETAILS)

    return router
