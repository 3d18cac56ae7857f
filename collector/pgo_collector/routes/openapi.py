"""GET and HEAD /v1/openapi.json: the OpenAPI document. It needs no key, since it has no secrets."""

from __future__ import annotations

import asyncio
import json
import warnings
from functools import lru_cache
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.auth import context_of
from pgo_collector.http.openapi import NO_KEY_NEEDED, problems, schema_of
from pgo_collector.http.routing import Routes, check_parameters
from pgo_collector.queries import answers


def openapi_routes() -> Routes:
    """Return the route."""
    routes = Routes()

    @routes.get(
        "/v1/openapi.json",
        checks=[check_parameters],
        summary="Return this document",
        responses={
            200: {"content": {"application/json": {}}, "description": "OpenAPI 3.1"},
            **problems(400),
        },
        openapi_extra=NO_KEY_NEEDED,
    )
    async def openapi(request: Request) -> Response:
        content = await asyncio.to_thread(_document, request.app, context_of(request).root_path)
        return Response(content, media_type="application/json")

    return routes


def _document(app: Starlette, root_path: str) -> bytes:
    return json.dumps(_schema(app) | {"servers": [{"url": root_path or "/"}]}).encode()


@lru_cache(maxsize=1)
def _schema(app: Starlette) -> dict[str, Any]:
    with warnings.catch_warnings():
        # FastAPI warns about routes with several methods; `schema_of` gives each operation its own id.
        warnings.filterwarnings("ignore", "Duplicate Operation ID")
        return schema_of(app, answers)
