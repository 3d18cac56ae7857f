"""/api/0/profiles: POST stores a profile; GET and HEAD list profiles, return them by id, or merge them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.errors import NoSuchProfile, NothingSelected, ParameterInvalid
from pgo_collector.http.answers import clock_headers, merge_download
from pgo_collector.http.auth import check_scope
from pgo_collector.http.routing import Routes
from pgo_collector.merges.making import OpenMerge
from pgo_collector.merges.merges import Merges
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import BlobName
from pgo_collector.routes.profefe.envelope import (
    FILENAME,
    Envelope,
    parse_profile_id,
    profile_entry,
    profile_id,
)
from pgo_collector.routes.profefe.parameters import (
    created_nanos_of,
    limit_of,
    selection_of,
    selections_of,
    series_of,
)
from pgo_collector.store.store import Store
from pgo_collector.submits.submits import Submits
from pgo_collector.workers.blob_tasks import until_none_is_gone

_PATH = "/profiles"
# The approximate size of a list's entry, in bytes, besides the service, the labels and the id.
_ENTRY_BYTES = 100


def add_submit_routes(routes: Routes, submits: Submits) -> None:
    """Add the route that stores a profile."""

    @routes.post(
        _PATH,
        summary="Store a profile",
        response_description="The profile is stored durably, or already was",
    )
    @routes.post(f"{_PATH}/", include_in_schema=False)
    async def submit(request: Request) -> Response:
        series, created_nanos = series_of(request), created_nanos_of(request)
        submitted = await submits.submit(request, series, created_nanos, may_be_empty=False)
        headers = clock_headers(submitted.seconds_off) if submitted.seconds_off else None
        return Envelope(profile_entry(submitted.name), headers=headers)


def add_profile_routes(routes: Routes, merges: Merges) -> None:
    """Add the routes that read profiles.

    Merges don't use the rules of a service: rules are for compilers, and this API is for people.
    """

    @routes.get(
        _PATH,
        summary="List the stored profiles of a service, in ascending order of time",
        response_description="The profiles",
    )
    @routes.get(f"{_PATH}/", include_in_schema=False)
    async def profiles(request: Request) -> Response:
        selections, newest = selections_of(request), limit_of(request)
        return await asyncio.to_thread(_list_profiles, merges, selections, newest)

    # Before the route of ids, since `merge` isn't an id.
    @routes.get(
        f"{_PATH}/merge",
        summary="Return the merge of the listed profiles",
        response_description="The merge",
    )
    @routes.get(f"{_PATH}/merge/", include_in_schema=False)
    async def merge(request: Request) -> Response:
        selection, newest = selection_of(request), limit_of(request)
        if newest is None:
            made = await merges.current(selection, PLAIN_RENDITION)
        else:
            made = await merges.of_newest(selection, newest, PLAIN_RENDITION)
        return merge_download(request, made, FILENAME)

    @routes.get(
        f"{_PATH}/{{ids}}",
        summary="Return a stored profile, or the merge of several",
        response_description="The profile",
    )
    @routes.get(f"{_PATH}/{{ids}}/", include_in_schema=False)
    async def profile(request: Request, ids: str) -> Response:
        names = list(dict.fromkeys(map(parse_profile_id, ids.split("+"))))
        for name in names:
            check_scope(request, name.series.service)
        if len({(name.series.service, name.series.type) for name in names}) > 1:
            raise ParameterInvalid("ids: profiles of several services or types can't be merged")
        if len(names) == 1:
            made = await asyncio.to_thread(_open_profile, merges.store, names[0])
        else:
            made = await until_none_is_gone(lambda: _merge_of(merges, names))
        return merge_download(request, made, FILENAME)


def _list_profiles(merges: Merges, selections: Sequence[Selection], newest: int | None) -> Response:
    """Return the list of all profiles, or of at most the `newest`, in ascending order of time.

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
    return Envelope([profile_entry(name) for name in wanted])


def _open_profile(store: Store, name: BlobName) -> OpenMerge:
    """Return a stored profile as an open file. Raises NoSuchProfile or StorageFails."""
    _find_blobs(store, [name])
    try:
        return OpenMerge.of(store.blobs.storage.open(str(name)), name.identity.digest)
    except FileNotFoundError:
        _find_blobs(store, [name])  # it may have been combined just now
        raise NoSuchProfile("the profile's file is missing") from None


async def _merge_of(merges: Merges, names: Sequence[BlobName]) -> OpenMerge:
    return await merges.of(await asyncio.to_thread(_find_blobs, merges.store, names), PLAIN_RENDITION)


def _find_blobs(store: Store, names: Sequence[BlobName]) -> list[Blob]:
    """Return the live blobs with these names. Raises NoSuchProfile if one is missing or was combined."""
    blobs = []
    for name in names:
        blob = store.catalog.counting_blob(name)
        if blob is None:
            raise NoSuchProfile("nothing found")
        if blob.name != name:
            raise NoSuchProfile(f"the profile was combined into another, whose id is {profile_id(blob.name)}")
        blobs.append(blob)
    return blobs
