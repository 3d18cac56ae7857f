"""/api/0: all routes of profefe's API, as its agents, its users and kube-profefe call it."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from pgo_collector.http.auth import anyone, holder_of
from pgo_collector.http.ingest import Ingest
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.profefe import PREFIX
from pgo_collector.merges.merges import Merges
from pgo_collector.routes.profefe.merge import merge_routes
from pgo_collector.routes.profefe.profile import profile_routes
from pgo_collector.routes.profefe.profiles import profiles_routes, submit_routes
from pgo_collector.routes.profefe.services import services_routes
from pgo_collector.routes.profefe.version import version_routes


def profefe_routes(
    ingest: Ingest, merges: Merges, submit_keys: KeyFile, merge_keys: KeyFile, *, is_open: bool
) -> APIRouter:
    """The routes, which take the keys of those below /v1, or none if they are open."""
    submit, read = ([Depends(anyone if is_open else holder_of(keys))] for keys in (submit_keys, merge_keys))
    store = merges.store
    router = APIRouter(prefix=PREFIX)
    router.include_router(submit_routes(ingest), dependencies=submit)
    router.include_router(profiles_routes(merges), dependencies=read)
    router.include_router(merge_routes(merges), dependencies=read)  # `merge` is not an id: before those
    router.include_router(profile_routes(merges), dependencies=read)
    router.include_router(services_routes(store), dependencies=read)
    router.include_router(version_routes(), dependencies=read)
    return router
