"""GET and HEAD /v1/services and /v1/profiles: lists of what is stored."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.inventory import Inventory, Position
from pgo_collector.http.answers import json_answer
from pgo_collector.http.auth import require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import PROFILES, parameters, problems
from pgo_collector.http.parameters import decode_cursor, encode_cursor, whole_number
from pgo_collector.http.routing import Routes
from pgo_collector.http.selections import fleet_selection_of, fleet_service_of
from pgo_collector.model.series import EVERY_SERVICE, Scope
from pgo_collector.queries import import_answers
from pgo_collector.queries.listings import profiles_of, services_of
from pgo_collector.store.store import Store


def inventory_routes(store: Store, keys: KeyFile, default_service: str) -> Routes:
    """Return the routes."""
    routes = Routes(tags=["questions"])
    inventory = Inventory(store.catalog)

    @routes.get(
        "/v1/services",
        checks=[require_service_key(keys, EVERY_SERVICE), import_answers],
        summary="List the services and what is stored for each",
        response_description="The services",
        response_model="Services",
        responses=problems(400, 403),
        openapi_extra=parameters("service", "limit", "cursor"),
    )
    async def services(request: Request) -> Response:
        limit = whole_number(request, "limit")
        (after,) = decode_cursor(request, str) or [""]
        scope = Scope((fleet_service_of(request),))
        page = await asyncio.to_thread(inventory.services, scope, limit + 1, after)
        following = encode_cursor(page[limit - 1].service) if len(page) > limit else None
        return await json_answer(services_of(page[:limit], following))

    @routes.get(
        "/v1/profiles",
        checks=[require_service_key(keys, default_service), import_answers],
        summary="List the stored profiles of a selection, latest first",
        response_description="The stored profiles",
        response_model="StoredProfiles",
        responses=problems(400, 403),
        openapi_extra=parameters(*PROFILES, "limit", "cursor"),
    )
    async def profiles(request: Request) -> Response:
        selection = fleet_selection_of(request)
        limit = whole_number(request, "limit")
        parts = decode_cursor(request, int, str, str, str)
        after = None if parts is None else Position(*parts)
        page = await asyncio.to_thread(inventory.profiles, selection, limit + 1, after)
        following = encode_cursor(*page[limit - 1].position) if len(page) > limit else None
        return await json_answer(profiles_of(page[:limit], following))

    return routes
