"""GET and HEAD /api/0/profiles/{ids}: the stored bytes of one profile, or the merge of several."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.errors import NoSuchProfile, ParameterInvalid
from pgo_collector.http.answers import merge_download
from pgo_collector.http.auth import check_scope
from pgo_collector.http.openapi import METHODS
from pgo_collector.http.profefe import FILENAME
from pgo_collector.http.profile_ids import id_of, name_of
from pgo_collector.merges.making import OpenMerge
from pgo_collector.merges.merges import Merges
from pgo_collector.model.blob_names import BlobName
from pgo_collector.model.selection import EXACT
from pgo_collector.store.store import Store


def profile_routes(merges: Merges) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.api_route(
        "/profiles/{ids}",
        methods=METHODS,
        summary="Return a stored profile, or the merge of several",
        response_description="The profile",
    )
    @router.api_route("/profiles/{ids}/", methods=METHODS, include_in_schema=False)
    async def profile(request: Request, ids: str) -> Response:
        names = list(dict.fromkeys(map(name_of, ids.split("+"))))
        for name in names:
            check_scope(request, name.series.service)
        if len({(name.series.service, name.series.type) for name in names}) > 1:
            raise ParameterInvalid("ids: they are of several services or types, which can't be merged")
        if len(names) == 1:
            made = await asyncio.to_thread(_opened, merges.store, names[0])
        else:
            made = await merges.of(await asyncio.to_thread(_stored, merges.store, names), PLAIN_RENDITION)
        return merge_download(request, made, FILENAME)

    return router


def _opened(store: Store, name: BlobName) -> OpenMerge:
    _stored(store, [name])
    try:
        return OpenMerge.at(store.blobs.path(name), name.identity.digest, (), EXACT)
    except FileNotFoundError:
        _stored(store, [name])  # it may have been combined just now
        raise NoSuchProfile("the profile's file is missing") from None


def _stored(store: Store, names: Sequence[BlobName]) -> list[Blob]:
    """Raises NoSuchProfile for one that isn't there, or not by itself any more."""
    blobs = []
    for name in names:
        blob = store.catalog.counting_blob(name)
        if blob is None:
            raise NoSuchProfile("nothing found")
        if blob.name != name:
            raise NoSuchProfile(f"the profile is inside a combined one now, whose id is {id_of(blob.name)}")
        blobs.append(blob)
    return blobs
