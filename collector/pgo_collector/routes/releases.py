"""/v1/releases: list releases, make one, and pin the one that pipelines get."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pgo_collector.http.auth import context_of, require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import parameters, problems, success
from pgo_collector.http.routing import Routes
from pgo_collector.releases import records
from pgo_collector.releases.release import number_of
from pgo_collector.releases.releases import AllReleases, ServiceReleases
from pgo_collector.routes.release import releases_in

_PROBLEMS = problems(400, 403, 404, 500, 503)
_OF_SERVICE = parameters("service", "weights", several=True)


def releases_routes(every: AllReleases, keys: KeyFile, default_service: str) -> Routes:
    """Return the routes."""
    routes = Routes(require_service_key(keys, default_service))

    async def current_entry(releases: ServiceReleases, release: records.Release) -> dict[str, Any]:
        return _release_entry(release, await releases.choice())

    @routes.get(
        "/v1/releases",
        summary="List the releases that are kept, newest first",
        response_description="The releases",
        responses=_PROBLEMS,
        openapi_extra=_OF_SERVICE,
    )
    async def listed(request: Request) -> Response:
        releases = await releases_in(every, request)
        choice = await releases.choice()
        entries = [_release_entry(release, choice) for release in await releases.all()]
        return JSONResponse({"releases": [_without_report(entry) for entry in entries]})

    @routes.post(
        "/v1/releases",
        summary="Make the current merge the newest release",
        response_description="The newest release already is this merge",
        responses=success(HTTPStatus.CREATED, "The new release") | _PROBLEMS | problems(422),
        openapi_extra=_OF_SERVICE,
    )
    async def make(request: Request) -> Response:
        releases = await releases_in(every, request)
        release, is_new = await releases.make()
        status = HTTPStatus.CREATED if is_new else HTTPStatus.OK
        root = context_of(request).root_path
        location = str(URL(f"{root}/v1/releases/{release.number}").replace(query=request.url.query))
        return JSONResponse(await current_entry(releases, release), status, {"Location": location})

    @routes.get(
        "/v1/releases/{number}",
        summary="Return a release and its report",
        response_description="The release",
        responses=_PROBLEMS,
        openapi_extra=_OF_SERVICE,
    )
    async def one(request: Request, number: str) -> Response:
        releases = await releases_in(every, request)
        return JSONResponse(await current_entry(releases, await releases.release(number_of(number))))

    @routes.put(
        "/v1/releases/{number}/pin",
        summary="Make a release the current one, and pin it",
        response_description="The release",
        responses=_PROBLEMS,
        openapi_extra=_OF_SERVICE,
    )
    async def pin(request: Request, number: str) -> Response:
        releases = await releases_in(every, request)
        return JSONResponse(await current_entry(releases, await releases.pin(number_of(number))))

    @routes.delete(
        "/v1/releases/{number}/pin",
        summary="Unpin a release",
        response_description="The release",
        responses=_PROBLEMS,
        openapi_extra=_OF_SERVICE,
    )
    async def unpin(request: Request, number: str) -> Response:
        releases = await releases_in(every, request)
        return JSONResponse(await current_entry(releases, await releases.unpin(number_of(number))))

    return routes


def _release_entry(release: records.Release, choice: records.Choice | None) -> dict[str, Any]:
    """Return a release as clients see it."""
    is_current = choice is not None and choice.number == release.number
    is_pinned = is_current and choice is not None and choice.pinned
    return {"current": is_current, "pinned": is_pinned, **release.model_dump(mode="json")}


def _without_report(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "report"}
