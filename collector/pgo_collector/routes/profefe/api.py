"""All routes of profefe's API, as its agents, its users and kube-profefe call it.

The routes of profiles are in `profiles`; those of services and version are here.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import NothingSelected
from pgo_collector.http.auth import allow_anyone, context_of, require_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.routing import Routes
from pgo_collector.merges.merges import Merges
from pgo_collector.routes.profefe.envelope import PREFIX, Envelope
from pgo_collector.routes.profefe.profiles import add_profile_routes, add_submit_routes
from pgo_collector.store.store import Store
from pgo_collector.submits.submits import Submits

# profefe answers with all four fields; here the version identifies the build.
_VERSION = {"version": version("pgo-collector"), "commit": "", "build_time": "", "go_version": ""}


def profefe_routes(
    submits: Submits, merges: Merges, submit_keys: KeyFile, merge_keys: KeyFile, *, is_open: bool
) -> tuple[Routes, Routes]:
    """Return the routes, which need the keys of those below /v1, or none if they are open."""
    submit, read = (
        Routes(allow_anyone if is_open else require_key(keys), prefix=PREFIX)
        for keys in (submit_keys, merge_keys)
    )
    add_submit_routes(submit, submits)
    add_profile_routes(read, merges)
    _add_server_routes(read, merges.store)
    return submit, read


def _add_server_routes(routes: Routes, store: Store) -> None:

    @routes.get(
        "/services",
        summary="List the services that have profiles",
        response_description="The services",
    )
    async def services(request: Request) -> Response:
        scope = context_of(request).caller.scope
        names = await asyncio.to_thread(store.catalog.services, None, scope)
        if not names:
            raise NothingSelected
        return Envelope(names)

    @routes.get(
        "/version",
        summary="Return the version of the collector",
        response_description="The version",
    )
    async def details(_: Request) -> Response:
        return Envelope(_VERSION)
