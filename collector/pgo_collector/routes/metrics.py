"""GET and HEAD /metrics: what Prometheus scrapes."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Depends
from starlette.responses import Response

from pgo_collector.http.auth import anyone, holder_of
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import METHODS, download, problems
from pgo_collector.metrics.metrics import Metrics
from pgo_collector.metrics.prometheus import CONTENT_TYPE


def metrics_routes(metrics: Metrics, keys: KeyFile, *, is_open: bool) -> APIRouter:
    """The route, which takes one of these keys, or none if it is open."""
    router = APIRouter()

    @router.api_route(
        "/metrics",
        methods=METHODS,
        dependencies=[Depends(anyone if is_open else holder_of(keys))],
        summary="Return metrics for Prometheus",
        response_class=Response,
        responses=download("Text format 0.0.4", CONTENT_TYPE) | problems(403),
    )
    async def scrape() -> Response:
        return Response(await asyncio.to_thread(metrics.exposition), media_type=CONTENT_TYPE)

    return router
