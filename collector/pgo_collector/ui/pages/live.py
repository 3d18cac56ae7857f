"""/ui/services/{service}/live: the newest profile, kept fresh; live/events tells of newer ones.

A form on it takes a profile now, from a target of PGOF_CAPTURE_TARGETS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from pgo_collector.errors import CaptureFailed, CapturesBusy
from pgo_collector.http.routing import Routes
from pgo_collector.http.selections import selection_of
from pgo_collector.model.times import format_time
from pgo_collector.queries.flames import flame_of
from pgo_collector.ui.flame_drawing import drawing_of
from pgo_collector.ui.forms import check_same_site, form_of
from pgo_collector.ui.links import Links
from pgo_collector.ui.pages.flame import OWN, FlameParameters, look_of, table_beside
from pgo_collector.ui.pages.service import no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources


def live_routes(sources: Sources) -> Routes:
    """Return the routes with the page, its events, and the form's target."""
    check = require_service(sources.sessions)
    routes = Routes(check)

    async def page(request: Request, status: HTTPStatus = HTTPStatus.OK, problem: str = "") -> Response:
        selected = await selected_profiles(request, sources, "live", *OWN)
        shown, look = FlameParameters(request, selected.links), look_of(request)
        selection = selected.selection
        newest = await asyncio.to_thread(sources.summaries.newest, selection)
        targets = sources.captures.targets(selection.service, selection.type)
        if selected.summary is None or newest is None:
            if not targets:
                return await no_profiles_page(request, sources, selected)
            values: dict[str, object] = {"flame": None}
            status = HTTPStatus.NOT_FOUND if status == HTTPStatus.OK else status
        else:
            only = replace(selection, begin=newest, end=newest + 1)
            flame = await flame_of(sources.fleet, only, shown.view, None, shown.reading)
            drawing = await asyncio.to_thread(drawing_of, flame, shown.view.search, look)
            values = shown.values(flame, drawing, look)
            values["top"] = await table_beside(request, sources, only, shown.reading)
            times = {"from": format_time(newest), "to": format_time(newest + 1), "last": None}
            values["shown"] = await asyncio.to_thread(sources.summaries.summary, only)
            values["svg"] = selected.links.with_all("flame.svg", **times)
        return await service_page(
            request,
            sources,
            selected,
            "live.html",
            status,
            newest=newest or 0,
            targets=targets,
            problem=problem,
            **values,
        )

    @routes.get("/services/{service}/live")
    async def live(request: Request) -> Response:
        return await page(request)

    @routes.post("/services/{service}/live")
    async def take(request: Request) -> Response:
        check_same_site(request)
        selection, links = selection_of(request), Links.of(request, "live")
        instance = (await form_of(request)).get("instance", "")
        try:
            await sources.captures.take(request, selection.service, selection.type, instance)
        except (CaptureFailed, CapturesBusy) as error:
            return await page(request, error.status, str(error))
        return RedirectResponse(links.here(), HTTPStatus.SEE_OTHER)

    @routes.add(["GET"], "/services/{service}/live/events")
    async def events(request: Request) -> Response:
        events = sources.live.events(selection_of(request), partial(check, request))
        first = await anext(events)  # raises if there are too many streams
        headers = {"X-Accel-Buffering": "no"}  # nginx would keep events back
        return StreamingResponse(_stream(first, events), headers=headers, media_type="text/event-stream")

    return routes


async def _stream(first: bytes, events: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    """Yield the first piece, then the others."""
    async with aclosing(events):
        yield first
        async for event in events:
            yield event
