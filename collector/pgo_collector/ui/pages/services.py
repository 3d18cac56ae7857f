"""/ui/: the fleet that the visitor's key may see: two weeks at one look, and the list of services."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.inventory import Inventory, StoredService
from pgo_collector.catalog.summaries import INSTANCE, VERSION
from pgo_collector.engine.surveys import MOST_NAMES
from pgo_collector.errors import WorkerUnavailable
from pgo_collector.http.auth import context_of
from pgo_collector.http.parameters import decode_cursor, encode_cursor, search_of
from pgo_collector.http.routing import Routes
from pgo_collector.http.selections import type_of
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import EVERY_SERVICE, Scope
from pgo_collector.model.times import DAY_NANOS, format_time
from pgo_collector.queries.answers import FleetChange, FleetOverview
from pgo_collector.submits.example import Example, is_example
from pgo_collector.ui.fleet_drawing import fleet_plot_of
from pgo_collector.ui.links import api_url, site_of
from pgo_collector.ui.pages.visitors import require_session
from pgo_collector.ui.sources import Sources

_PAGE_SIZE = 50
_DAYS = 14
_MOST_ROWS = 15
_MOST_NEWS = 8


@dataclass(frozen=True, slots=True)
class _Row:
    """A service in the list; `days` has the number of profiles of each of the last days, today last."""

    service: str
    types: list[str]
    profiles: int
    end_nanos: int
    versions: int
    instances: int
    size: int
    days: list[int]


def services_routes(sources: Sources) -> Routes:
    """Return the routes with the page."""
    routes = Routes(require_session(sources.sessions))

    @routes.get("/")
    async def services(request: Request) -> Response:
        (after,), search = decode_cursor(request, str) or [""], search_of(request)
        scope = context_of(request).caller.scope
        found = await asyncio.to_thread(_services, sources.inventory, scope, after, search)
        overview, problem = (None, "") if after else await _overview(request, sources, scope, search)
        page, now = found[:_PAGE_SIZE], time.time_ns()
        today = now // DAY_NANOS
        names = [stored.service for stored in page]
        days = await asyncio.to_thread(sources.summaries.days, names, today - _DAYS + 1)
        rows = [_row(stored, days.get(stored.service, {}), today) for stored in page]
        following = encode_cursor(page[-1].service) if len(found) > _PAGE_SIZE else None
        return await sources.rendering.page(
            request,
            "services.html",
            rows=rows,
            overview=overview,
            problem=problem,
            plot=overview and fleet_plot_of(overview),
            search=search,
            type=type_of(request),
            most=_MOST_NEWS,
            most_names=MOST_NAMES,
            changed=[] if overview is None else _changed(overview),
            week_ago=format_time(now - now % 10**9 - 7 * DAY_NANOS),
            following=following,
            is_first=not after,
            now=now,
            root=f"{site_of(request)}/services",
            submit=api_url(request, "submit", {"service": "my-service"}),
            may_load=Example.may_load(scope),
            example=" and ".join(stored.service for stored in page if is_example(stored)),
            highest=max((max(row.days) for row in rows), default=0),
        )

    return routes


async def _overview(
    request: Request, sources: Sources, scope: Scope, search: str
) -> tuple[FleetOverview | None, str]:
    """Return the overview of the services in the scope; if there is none, None and why."""
    selection = Selection(EVERY_SERVICE, type_of(request))
    try:
        return await sources.overviews.make(selection, scope, _MOST_ROWS, search), ""
    except WorkerUnavailable as error:
        return None, str(error)


def _changed(overview: FleetOverview) -> list[tuple[str, FleetChange]]:
    """Return the services with a change, the largest first."""
    found = [(each.service, each.change) for each in overview.services if each.change is not None]
    return sorted(found, key=lambda each: -abs(each[1].difference))


def _services(inventory: Inventory, scope: Scope, after: str, search: str) -> list[StoredService]:
    """Return the services in the scope after a name that contain a text.

    They are one more than fits a page, if there are as many.
    """
    found: list[StoredService] = []
    while len(found) <= _PAGE_SIZE:
        page = inventory.services(scope, _PAGE_SIZE + 1, after)
        found += (stored for stored in page if search.casefold() in stored.service.casefold())
        if len(page) <= _PAGE_SIZE:
            break
        after = page[-1].service
    return found[: _PAGE_SIZE + 1]


def _row(stored: StoredService, days: dict[int, int], today: int) -> _Row:
    return _Row(
        service=stored.service,
        types=[of_type.type for of_type in stored.types],
        profiles=sum(of_type.profiles for of_type in stored.types),
        end_nanos=max(of_type.end_nanos for of_type in stored.types),
        versions=stored.labels.get(VERSION, 0),
        instances=stored.labels.get(INSTANCE, 0),
        size=sum(of_type.size for of_type in stored.types),
        days=[days.get(day, 0) for day in range(today - _DAYS + 1, today + 1)],
    )
