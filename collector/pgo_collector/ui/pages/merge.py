"""/ui/services/{service}/merge: download the merge of the selection, in any format."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.renditions import PLAIN_RENDITION, Rendition
from pgo_collector.http.answers import merge_download
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.selections import (
    format_named,
    latencies_of,
    patterns_of,
    selection_of,
    trim_path_of,
)
from pgo_collector.ui.pages.service import name_of
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources


def merge_routes(sources: Sources) -> Routes:
    """Return the routes with the page."""
    routes = Routes(require_service(sources.sessions))

    @routes.get("/services/{service}/merge")
    async def merge(request: Request) -> Response:
        selection = selection_of(request)
        wanted = format_named(first_values(request).get("format") or PLAIN_RENDITION.format.name)
        rules = await asyncio.to_thread(sources.rules.of, selection.service)
        latencies, patterns = latencies_of(request), patterns_of(request)
        helped = await sources.binaries.choice(selection.service, wanted.name)
        rendition = Rendition(
            wanted,
            rules,
            latencies=latencies,
            patterns=patterns,
            binaries=helped,
            trim_path=trim_path_of(request),
        )
        made = await sources.merges.current(selection, rendition)
        return merge_download(
            request, made, f"{name_of(sources, selection.service)}{wanted.suffix}", wanted.media_type
        )

    return routes
