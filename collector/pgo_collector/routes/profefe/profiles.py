"""/api/0/profiles: POST stores a profile, GET and HEAD list what is stored of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.errors import NothingSelected
from pgo_collector.http.ingest import Ingest
from pgo_collector.http.openapi import METHODS
from pgo_collector.http.profefe import Envelope, described
from pgo_collector.merges.merges import Merges
from pgo_collector.model.selection import Selection
from pgo_collector.routes.profefe.queries import created_nanos_of, limit_of, selections_of, series_of

_PATH = "/profiles"
# What an entry of a list has besides the service, the labels and the id, about.
_ENTRY_BYTES = 100


def submit_routes(ingest: Ingest) -> APIRouter:
    """The route that stores."""
    router = APIRouter()

    @router.post(
        _PATH,
        summary="Store a profile",
        response_description="The profile is stored durably, or already was",
    )
    @router.post(f"{_PATH}/", include_in_schema=False)
    async def submit(request: Request) -> Response:
        series, created_nanos = series_of(request), created_nanos_of(request)
        submitted = await ingest.submit(request, series, created_nanos, may_be_empty=False)
        return Envelope(described(submitted.name))

    return router


def profiles_routes(merges: Merges) -> APIRouter:
    """The route that lists."""
    router = APIRouter()

    @router.api_route(
        _PATH,
        methods=METHODS,
        summary="List the stored profiles of a service, in ascending order of time",
        response_description="The profiles",
    )
    @router.api_route(f"{_PATH}/", methods=METHODS, include_in_schema=False)
    async def profiles(request: Request) -> Response:
        selections, newest = selections_of(request), limit_of(request)
        return await asyncio.to_thread(_listed, merges, selections, newest)

    return router


def _listed(merges: Merges, selections: Sequence[Selection], newest: int | None) -> Response:
    """Return the list of all, or of so many of the `newest`, in ascending order of time whatever their type.

    Raises NothingSelected or AnswerTooLarge.
    """
    catalog = merges.store.catalog
    names = [blob.name for selection in selections for blob in catalog.live(selection, newest)]
    if not names:
        raise NothingSelected
    with refuse_too_large("the list: "):
        merges.budget.check(sum(_ENTRY_BYTES + len(str(name)) for name in names), "ask for fewer with limit")
    names.sort(key=lambda name: (name.identity, name.series))
    wanted = names if newest is None else names[-newest:]
    return Envelope([described(name) for name in wanted])
