"""/ui/services/{service}: the flame graph of the selection, and flame.svg, the same as a file."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from pprof_merge.analysis import GROUPINGS, FlameView, Grouping, TopOrder
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.views import StackReading
from pgo_collector.errors import AnswerTooLarge, ParameterInvalid
from pgo_collector.http.auth import check_scope
from pgo_collector.http.openapi import BASE, FOCUS
from pgo_collector.http.parameters import one_of, reading_of, root_of
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.selections import base_of, selection_of
from pgo_collector.model.selection import Selection
from pgo_collector.queries.answers import SampleType, Top
from pgo_collector.queries.flames import Flame, flame_of
from pgo_collector.ui.comparisons import groups_of
from pgo_collector.ui.filters import filters_of_name, filters_of_search
from pgo_collector.ui.flame_drawing import ROW_HEIGHT, Drawing, Look, drawing_of
from pgo_collector.ui.links import MAX_SEARCH, Links
from pgo_collector.ui.pages.service import name_of, no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.top import kept_top
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources
from pgo_collector.ui.svg_file import svg_of

OWN = ("root", "search", "by", "recursion", "group", "layout", "table", "sort", *FOCUS)
_LAYOUTS = ("icicle", "flame")
_TABLES = ("beside", "hidden")
_COLOURS = ("difference", "package")
# A page has as many calls as fit into these bytes: each has its box, and a link with the page's parameters.
_CALLS_BYTES = 250_000
_BOX_BYTES = 230
_MOST_CALLS = 1000
_ROWS_BESIDE = 25


def flame_routes(sources: Sources) -> Routes:
    """Return the routes with the page and the file."""
    routes = Routes(require_service(sources.sessions))

    @routes.get("/services/{service}")
    async def flame(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "", *OWN)
        shown, look = FlameParameters(request, selected.links), look_of(request)
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        found = await flame_of(sources.fleet, selected.selection, shown.view, None, shown.reading)
        drawing = await asyncio.to_thread(drawing_of, found, shown.view.search, look)
        table = await table_beside(request, sources, selected.selection, shown.reading)
        return await service_page(
            request,
            sources,
            selected,
            "flame.html",
            top=table,
            **shown.values(found, drawing, look),
        )

    @routes.get("/services/{service}/flame.svg")
    async def file(request: Request) -> Response:
        selection, links = (
            selection_of(request),
            Links.of(request, "flame.svg"),
        )
        shown, look, base = FlameParameters(request, links), look_of(request), None
        if any(name in BASE for name in request.query_params):
            base = base_of(request, selection)
            check_scope(request, base.service)
        found = await flame_of(sources.fleet, selection, shown.view, base, shown.reading)
        drawing = await asyncio.to_thread(drawing_of, found, shown.view.search, look)
        content = await asyncio.to_thread(svg_of, drawing, selection.service)
        headers = {"Content-Disposition": f'attachment; filename="{name_of(sources, selection.service)}.svg"'}
        return Response(content, headers=headers, media_type="image/svg+xml")

    return routes


class FlameParameters:
    """Parameters of a flame graph in a request: the view, the part of the samples, and how stacks are read.

    Raises ParameterInvalid.
    """

    def __init__(self, request: Request, links: Links) -> None:
        self.reading = reading_of(request)
        self.view = _view_of(request, links)
        self._links = links

    def values(self, flame: Flame, drawing: Drawing, look: Look) -> dict[str, Any]:
        """Return what the template of a flame graph gets."""
        links, focus, search = self._links, self.reading.focus, self.view.search
        graph = flame.graph
        found = {name for name, is_match in zip(graph.names, graph.is_match, strict=True) if is_match}
        return {
            "flame": flame,
            "drawing": drawing,
            "svg": links.with_all("flame.svg"),
            "search": search,
            "look": look,
            "reading": self.reading,
            "focus": focus,
            "sample_type": SampleType.of(flame.sample_type),
            "sample_types": [*map(SampleType.of, flame.sample_types)],
            "groupings": GROUPINGS,
            "groups": groups_of(graph, self.reading.group),
            "filters_of_search": filters_of_search(links, focus.patterns, search, found, self.reading.by),
            "filters_of_root": filters_of_name(links, focus.patterns, drawing.root, self.reading.by),
            "row_height": ROW_HEIGHT,
        }


async def table_beside(
    request: Request, sources: Sources, selection: Selection, reading: StackReading
) -> Top | None:
    """Return the table that stands beside a flame graph on a wide window.

    It is None if the visitor has hidden it, or if it takes too much memory: the graph is there without it.
    Raises ParameterInvalid.
    """
    sort = cast("TopOrder", one_of(request, "sort"))
    if _word(request, "table", _TABLES) == "hidden":
        return None
    with suppress(AnswerTooLarge):
        return await kept_top(sources, selection, reading.by, sort, _ROWS_BESIDE, reading.focus)
    return None


def look_of(request: Request) -> Look:
    """Return how a flame graph is drawn, by `by`, `layout` and `colours`. Raises ParameterInvalid."""
    return Look(
        by=cast("Grouping", one_of(request, "by")),
        is_upright=_word(request, "layout", _LAYOUTS) == "flame",
        is_by_package=_word(request, "colours", _COLOURS) == "package",
        is_grouped=bool(first_values(request).get("group")),
    )


def _word(request: Request, parameter: str, words: tuple[str, ...]) -> str:
    """Return the value of a parameter that only pages take; the first of the words is the default."""
    text = first_values(request).get(parameter) or words[0]
    if text not in words:
        raise ParameterInvalid(f"unknown {parameter} {text[:50]!r}; give one of {', '.join(words)}")
    return text


def _view_of(request: Request, links: Links) -> FlameView:
    """Return the view that `root` and `search` ask for, of as many calls as a page has room for."""
    room = _CALLS_BYTES // (_BOX_BYTES + len(links.here(root="")))
    search = first_values(request).get("search") or ""
    return FlameView(root=root_of(request), most=max(1, min(_MOST_CALLS, room)), search=search[:MAX_SEARCH])
