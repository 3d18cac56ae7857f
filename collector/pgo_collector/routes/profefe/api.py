"""All routes of profefe's API, as its agents, its users and kube-profefe call it.

The routes of profiles are in `profiles`; those of services and version are here.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import NothingSelected
from pgo_collector.http.auth import allow_anyone, require_key
from pgo_collector.http.context import context_of
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import METHODS
from pgo_collector.merges.merges import Merges
from pgo_collector.routes.profefe.envelope import PREFIX, Envelope
from pgo_collector.routes.profefe.profiles import profile_routes, submit_routes
from pgo_collector.store.store import Store
from pgo_collector.submits.submits import Submits

# profefe answers with all four fields; here the version identifies the build.
_VERSION = {"version": version("pgo-collector"), "commit": "", "build_time": "", "go_version": ""}


def profefe_routes(
    submits: Submits, merges: Merges, submit_keys: KeyFile, merge_keys: KeyFile, *, is_open: bool
) -> APIRouter:
    """Return the routes, which need the keys of those below /v1, or none if they are open."""
    submit, read = (
        [Depends(allow_anyone if is_open else require_key(keys))] for keys in (submit_keys, merge_keys)
    )
    router = APIRouter(prefix=PREFIX)
    router.include_router(submit_routes(submits), dependencies=submit)
    router.include_router(profile_routes(merges), dependencies=read)
    router.include_router(_server_routes(merges.store), dependencies=read)
    return router


def _server_routes(store: Store) -> APIRouter:
    router = APIRouter()

    @router.api_route(
        "/services",
        methods=METHODS,
        summary="List the services that have profiles",
        response_description="The services",
    )
    async def services(request: Request) -> Response:
        scope = context_of(request).caller.scope
        names = list(filter(scope.includes, await asyncio.to_thread(store.catalog.services)))
        if not names:
            raise NothingSelected
        return Envelope(names)

    @router.api_route(
        "/version",
        methods=METHODS,
        summary="Return the version of the collector",
        response_description="The version",
    )
    async def details() -> Response:
        return Envelope(_VERSION)

    return router
