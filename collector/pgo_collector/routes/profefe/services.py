"""GET and HEAD /api/0/services: the services of which something is stored, as far as the key is for them."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import NothingSelected
from pgo_collector.http.context import context_of
from pgo_collector.http.profefe import Envelope
from pgo_collector.store.store import Store


def services_routes(store: Store) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.api_route(
        "/services",
        methods=["GET", "HEAD"],
        summary="List the services that have profiles",
        response_description="The services",
    )
    async def services(request: Request) -> Response:
        scope = context_of(request).caller.scope
        names = list(filter(scope.includes, await asyncio.to_thread(store.catalog.services)))
        if not names:
            raise NothingSelected
        return Envelope(names)

    return router
