"""GET and HEAD /v1/release and /v1/releases/{number}/profile: the profiles that pipelines build with."""

from __future__ import annotations

from http import HTTPStatus

from pprof_merge import FORMATS
from pprof_merge.formats import Format
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.renditions import PLAIN_RENDITION
from pgo_collector.http.answers import Download, etag_matches
from pgo_collector.http.auth import context_of, require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import download, parameters, problems
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.selections import format_named, services_in, weights_of
from pgo_collector.releases.release import number_of
from pgo_collector.releases.releases import AllReleases, ServiceReleases
from pgo_collector.releases.renditions import OpenRelease

_HEADER = "PGO-Release"
_PROFILE = download("The profile", *(known.media_type for known in FORMATS.values()))


def release_routes(every: AllReleases, keys: KeyFile, default_service: str) -> Routes:
    """Return the routes."""
    routes = Routes(require_service_key(keys, default_service))

    @routes.get(
        "/v1/release",
        summary="Return the current release, the profile to build with",
        response_class=Response,
        responses=_PROFILE | problems(400, 403, 404, 422, 500, 501, 503),
        openapi_extra=parameters("service", "weights", "format", several=True),
    )
    async def current(request: Request) -> Response:
        releases, wanted = await releases_in(every, request), _format(request)
        opened = await releases.current(wanted)
        return _answer(request, opened, wanted, f"{releases.service}{wanted.suffix}")

    @routes.get(
        "/v1/releases/{number}/profile",
        summary="Return the profile of a release",
        response_class=Response,
        responses=_PROFILE | problems(400, 403, 404, 422, 500, 501, 503),
        openapi_extra=parameters("service", "weights", "format", several=True),
    )
    async def numbered(request: Request, number: str) -> Response:
        releases, wanted = await releases_in(every, request), _format(request)
        opened = await releases.numbered(number_of(number), wanted)
        return _answer(request, opened, wanted, f"{releases.service}-{opened.number}{wanted.suffix}")

    return routes


async def releases_in(every: AllReleases, request: Request) -> ServiceReleases:
    """Return the releases that a request is about. Raises ParameterInvalid and TooManyReleaseSets."""
    service = services_in(request)
    return await every.of(service, weights_of(request, service))


def _format(request: Request) -> Format:
    return format_named(first_values(request).get("format", PLAIN_RENDITION.format.name))


def _answer(request: Request, opened: OpenRelease, wanted: Format, filename: str) -> Response:
    context = context_of(request)
    context.profile, context.release = opened.etag, opened.number
    headers = {
        "ETag": f'"{opened.etag}"',
        "Cache-Control": "private, no-cache",
        _HEADER: str(opened.number),
    }
    if etag_matches(request.headers.get("If-None-Match", ""), opened.etag):
        opened.file.close()
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{filename}"'
    return Download(opened.file, opened.size, wanted.media_type, headers)
