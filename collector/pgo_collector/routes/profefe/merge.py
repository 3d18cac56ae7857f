"""GET and HEAD /api/0/profiles/merge: one profile made of all that are selected."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.http.answers import coarse_headers, merge_download
from pgo_collector.http.openapi import METHODS
from pgo_collector.http.profefe import FILENAME
from pgo_collector.merges.inputs import live_blobs
from pgo_collector.merges.merges import Merges
from pgo_collector.routes.profefe.queries import limit_of, selection_of


def merge_routes(merges: Merges) -> APIRouter:
    """The route. A service's rules play no part: they are for compilers, and this is for people."""
    router = APIRouter()

    @router.api_route(
        "/profiles/merge",
        methods=METHODS,
        summary="Return the merge of the listed profiles",
        response_description="The merge",
    )
    @router.api_route("/profiles/merge/", methods=METHODS, include_in_schema=False)
    async def merge(request: Request) -> Response:
        selection, newest = selection_of(request), limit_of(request)
        if newest is None:
            made = await merges.current(selection, PLAIN_RENDITION)
            coarse = await asyncio.to_thread(merges.store.catalog.coarse, selection)
        else:
            blobs = await asyncio.to_thread(live_blobs, merges.store, selection, newest)
            made = await merges.of(blobs, PLAIN_RENDITION)
            coarse = await asyncio.to_thread(merges.store.catalog.coarse, selection)
            coarse = replace(coarse, blobs=coarse.blobs & {blob.id for blob in blobs})
        answer = merge_download(request, made, FILENAME)
        answer.headers.update(coarse_headers(coarse))
        return answer

    return router
