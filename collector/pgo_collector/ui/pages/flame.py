"""/ui/services/{service}: the flame graph of the selection."""

from __future__ import annotations

import asyncio
import re

from fastapi import APIRouter, Depends
from pprof_merge import FlameView
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.openapi import LATENCIES, METHODS
from pgo_collector.http.selections import first_value, latencies_of
from pgo_collector.queries.flames import flame_of
from pgo_collector.ui.flame_drawing import ROW_HEIGHT, drawing_of
from pgo_collector.ui.pages.service import no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources

OWN = ("root", "search", *LATENCIES)
_KEY = re.compile(r"0|[0-9a-f]{16}")
_MAX_SEARCH = 200


def flame_routes(sources: Sources) -> APIRouter:
    """Return the router with the page."""
    router = APIRouter(dependencies=[Depends(require_service(sources.sessions))])

    @router.api_route("/services/{service}", methods=METHODS)
    async def flame(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "", *OWN)
        view, latencies = view_of(request), latencies_of(request)
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        found = await flame_of(sources.fleet, selected.selection, view, latencies=latencies)
        drawing = await asyncio.to_thread(drawing_of, found, view.search)
        return await service_page(
            request,
            sources,
            selected,
            "flame.html",
            flame=found,
            latencies=latencies,
            drawing=drawing,
            search=view.search,
            row_height=ROW_HEIGHT,
        )

    return router


def view_of(request: Request) -> FlameView:
    """Return the view that the parameters `root` and `search` ask for. Raises ParameterInvalid."""
    key, search = first_value(request, "root") or "0", first_value(request, "search") or ""
    if not _KEY.fullmatch(key):
        raise ParameterInvalid(f"root={key[:50]}: not the key of a call, which is 0 or 16 hex digits")
    return FlameView(root=int(key, 16), search=search[:_MAX_SEARCH])
