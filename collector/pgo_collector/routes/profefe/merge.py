"""GET and HEAD /api/0/profiles/merge: one profile made of all that are selected."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.http.answers import merge_download
from pgo_collector.http.openapi import METHODS
from pgo_collector.http.profefe import FILENAME
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
        else:
            made = await merges.of_newest(selection, newest, PLAIN_RENDITION)
        return merge_download(request, made, FILENAME)

    return router
